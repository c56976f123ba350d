/* The rows for x86-64 with AVX2. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define KB_TARGET avx2
#define KB_WIDTH 4
#include "rows.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
