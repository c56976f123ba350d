/* Vectors of one register: KB_WIDTH doubles. */
#ifndef KBNN_VECTOR_H
#define KBNN_VECTOR_H

#include "target.h"

#include <stdint.h>

typedef double KB(vec) __attribute__((vector_size(8 * KB_WIDTH), aligned(8), may_alias));
typedef int64_t KB(mask) __attribute__((vector_size(8 * KB_WIDTH), aligned(8), may_alias));

/* The sum of a vector's entries, as a tree. */
KB_INLINE double KB(total)(KB(vec) v)
{
    for (int half = KB_WIDTH / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            v[k] += v[k + half];
    return v[0];
}

/* out_r += the sum of v_r's entries for the vectors of a tile. */
KB_INLINE void KB(add_totals)(const KB(vec) *v, double *out)
{
#if KB_SHUFFLES && KB_WIDTH == 8
    KB(vec) a[4], b[2];
    for (int k = 0; k < 4; k++, v += 2)
        a[k] = __builtin_shufflevector(v[0], v[1], 0, 8, 2, 10, 4, 12, 6, 14)
               + __builtin_shufflevector(v[0], v[1], 1, 9, 3, 11, 5, 13, 7, 15);
    for (int k = 0; k < 2; k++)
        b[k] = __builtin_shufflevector(a[2 * k], a[2 * k + 1], 0, 1, 8, 9, 4, 5, 12, 13)
               + __builtin_shufflevector(a[2 * k], a[2 * k + 1], 2, 3, 10, 11, 6, 7, 14, 15);
    *(KB(vec) *)out += __builtin_shufflevector(b[0], b[1], 0, 1, 2, 3, 8, 9, 10, 11)
                       + __builtin_shufflevector(b[0], b[1], 4, 5, 6, 7, 12, 13, 14, 15);
#elif KB_SHUFFLES && KB_WIDTH == 4
    KB(vec) a = __builtin_shufflevector(v[0], v[1], 0, 4, 2, 6)
                + __builtin_shufflevector(v[0], v[1], 1, 5, 3, 7);
    KB(vec) b = __builtin_shufflevector(v[2], v[3], 0, 4, 2, 6)
                + __builtin_shufflevector(v[2], v[3], 1, 5, 3, 7);
    *(KB(vec) *)out += __builtin_shufflevector(a, b, 0, 1, 4, 5)
                       + __builtin_shufflevector(a, b, 2, 3, 6, 7);
#else
    for (int r = 0; r < KB_TILE; r++)
        out[r] += KB(total)(v[r]);
#endif
}

/* The diagonal of a square of KB_WIDTH vectors. */
KB_INLINE KB(vec) KB(diagonal)(const KB(vec) *v)
{
#if KB_SHUFFLES && KB_WIDTH == 8
    KB(vec) a[4];
    for (int k = 0; k < 4; k++)
        a[k] = __builtin_shufflevector(v[k], v[k + 4], 0, 1, 2, 3, 12, 13, 14, 15);
    a[0] = __builtin_shufflevector(a[0], a[2], 0, 1, 10, 11, 4, 5, 14, 15);
    a[1] = __builtin_shufflevector(a[1], a[3], 0, 1, 10, 11, 4, 5, 14, 15);
    return __builtin_shufflevector(a[0], a[1], 0, 9, 2, 11, 4, 13, 6, 15);
#elif KB_SHUFFLES && KB_WIDTH == 4
    KB(vec) a = __builtin_shufflevector(v[0], v[1], 0, 5, 2, 7);
    KB(vec) b = __builtin_shufflevector(v[2], v[3], 0, 5, 2, 7);
    return __builtin_shufflevector(a, b, 0, 1, 6, 7);
#else
    KB(vec) d;
    for (int k = 0; k < KB_WIDTH; k++)
        d[k] = v[k][k];
    return d;
#endif
}

/* Whether any entry is set. */
KB_INLINE int KB(any)(KB(mask) v)
{
    for (int half = KB_WIDTH / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            v[k] |= v[k + half];
    return v[0] != 0;
}

/* Rows to columns: a square of KB_WIDTH vectors. */
KB_INLINE void KB(transpose)(KB(vec) *v)
{
#if KB_SHUFFLES && KB_WIDTH == 8
    KB(vec) a[8], b[8];
    for (int k = 0; k < 8; k += 2) {
        a[k] = __builtin_shufflevector(v[k], v[k + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        a[k + 1] = __builtin_shufflevector(v[k], v[k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int half = 0; half < 8; half += 4)
        for (int k = half; k < half + 2; k++) {
            b[k] = __builtin_shufflevector(a[k], a[k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            b[k + 2] = __builtin_shufflevector(a[k], a[k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int k = 0; k < 4; k++) {
        v[k] = __builtin_shufflevector(b[k], b[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        v[k + 4] = __builtin_shufflevector(b[k], b[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
#elif KB_SHUFFLES && KB_WIDTH == 4
    KB(vec) a[4];
    for (int k = 0; k < 4; k += 2) {
        a[k] = __builtin_shufflevector(v[k], v[k + 1], 0, 4, 2, 6);
        a[k + 1] = __builtin_shufflevector(v[k], v[k + 1], 1, 5, 3, 7);
    }
    for (int k = 0; k < 2; k++) {
        v[k] = __builtin_shufflevector(a[k], a[k + 2], 0, 1, 4, 5);
        v[k + 2] = __builtin_shufflevector(a[k], a[k + 2], 2, 3, 6, 7);
    }
#else
    for (int i = 0; i < KB_WIDTH; i++)
        for (int j = 0; j < i; j++) {
            double up = v[j][i];
            v[j][i] = v[i][j];
            v[i][j] = up;
        }
#endif
}

/* out = c v in whole vectors: up to KB_WIDTH - 1 numbers beyond the last are written too. */
KB_INLINE void KB(scale)(const double *restrict v, double c, int64_t n, double *restrict out)
{
    for (int64_t i = 0; i < n; i += KB_WIDTH)
        *(KB(vec) *)(out + i) = c * *(const KB(vec) *)(v + i);
}

KB_INLINE double KB(dot)(const double *a, const double *b, int64_t n)
{
    KB(vec) sum = {0}, other = {0};
    int64_t i = 0;
    for (; i + 2 * KB_WIDTH <= n; i += 2 * KB_WIDTH) {
        sum += *(const KB(vec) *)(a + i) * *(const KB(vec) *)(b + i);
        other += *(const KB(vec) *)(a + i + KB_WIDTH) * *(const KB(vec) *)(b + i + KB_WIDTH);
    }
    sum += other;
    for (; i + KB_WIDTH <= n; i += KB_WIDTH)
        sum += *(const KB(vec) *)(a + i) * *(const KB(vec) *)(b + i);
    double rest = 0.0;
    for (; i < n; i++)
        rest += a[i] * b[i];
    return KB(total)(sum) + rest;
}

/* The larger of each pair of entries; `raised` counts down by one where it is that of `least`. */
KB_INLINE KB(vec) KB(at_least)(KB(vec) value, KB(vec) least, KB(mask) *raised)
{
    KB(mask) low = value < least;
    *raised += low;
    return (KB(vec))(((KB(mask))value & ~low) | ((KB(mask))least & low));
}

#endif
