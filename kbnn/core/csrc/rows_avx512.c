/* The rows for x86-64 with AVX-512. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,fma,prefer-vector-width=512")
#endif
#define KB_TARGET avx512
#define KB_WIDTH 8
#include "rows.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
