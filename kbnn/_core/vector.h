/* Vectors of one register: KB_WIDTH doubles. Included once per instruction set. */

typedef double KB(vec) __attribute__((vector_size(8 * KB_WIDTH), aligned(8), may_alias));
typedef double KB(quad) __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t KB(mask) __attribute__((vector_size(8 * KB_WIDTH), aligned(8), may_alias));

/* The sum of a vector's entries, as a tree. */
KB_INLINE double KB(total)(KB(vec) v)
{
    for (int half = KB_WIDTH / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            v[k] += v[k + half];
    return v[0];
}

/* out_r += the sum of v_r's entries for four vectors. */
KB_INLINE void KB(add_totals)(const KB(vec) *v, double *out)
{
#if KB_SHUFFLES && KB_WIDTH == 8
    KB(vec) a = __builtin_shufflevector(v[0], v[1], 0, 8, 2, 10, 4, 12, 6, 14)
                + __builtin_shufflevector(v[0], v[1], 1, 9, 3, 11, 5, 13, 7, 15);
    KB(vec) b = __builtin_shufflevector(v[2], v[3], 0, 8, 2, 10, 4, 12, 6, 14)
                + __builtin_shufflevector(v[2], v[3], 1, 9, 3, 11, 5, 13, 7, 15);
    KB(vec) c = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
                + __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    *(KB(quad) *)out += __builtin_shufflevector(c, c, 0, 1, 2, 3)
                        + __builtin_shufflevector(c, c, 4, 5, 6, 7);
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

KB_INLINE double KB(dot)(const double *a, const double *b, int64_t n)
{
    KB(vec) sum = {0};
    int64_t i = 0;
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
