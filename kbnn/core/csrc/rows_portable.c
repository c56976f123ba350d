/* The rows for any machine. Where others are compiled too, few need these. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#define KB_TARGET portable
#define KB_WIDTH 2
#include "rows.h"
