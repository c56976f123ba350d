/* Packed symmetric matrices: products, quadratic forms and the one function that shrinks them.
 * Included once per instruction set. */

typedef double KB(v8) __attribute__((vector_size(64), aligned(8), may_alias));

KB_INLINE double KB(sum8)(KB(v8) v)
{
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

KB_INLINE double KB(dot)(const double *a, const double *b, int64_t n)
{
    KB(v8) sum = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        sum += *(const KB(v8) *)(a + i) * *(const KB(v8) *)(b + i);
    double rest = 0.0;
    for (; i < n; i++)
        rest += a[i] * b[i];
    return KB(sum8)(sum) + rest;
}

/* g = P h, both triangles served by one reading of the upper one. */
KB_INLINE void KB(multiply)(const double *restrict p, const double *restrict h, double *restrict g,
                            int64_t dim)
{
    for (int64_t i = 0; i < dim; i++)
        g[i] = 0.0;
    for (int64_t i = 0; i < dim; i++) {
        int64_t n = dim - i - 1, j = 0;
        const double *row = p + 1, *right = h + i + 1;
        double *out = g + i + 1, scale = h[i], rest = p[0] * scale;
        KB(v8) sum = {0};
        for (; j + 8 <= n; j += 8) {
            KB(v8) c = *(const KB(v8) *)(row + j);
            sum += c * *(const KB(v8) *)(right + j);
            *(KB(v8) *)(out + j) += c * scale;
        }
        for (; j < n; j++) {
            rest += row[j] * right[j];
            out[j] += row[j] * scale;
        }
        g[i] += KB(sum8)(sum) + rest;
        p += dim - i;
    }
}

/* z' P z over `n` consecutive rows of a packed triangle; `p` is its first diagonal entry and `dim`
 * the length of that row. */
KB_INLINE double KB(quadratic)(const double *p, int64_t dim, const double *z, int64_t n)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        total += z[i] * (p[0] * z[i] + 2.0 * KB(dot)(p + 1, z + i + 1, n - i - 1));
        p += dim - i;
    }
    return total;
}

/* P -= scale u u', then no diagonal entry below its floor: every covariance write of a row-packed
 * block goes through here. */
KB_INLINE void KB(shrink)(double *restrict p, const double *restrict u, double scale, int64_t dim,
                          double floor, const double *prior, int64_t *repairs)
{
    for (int64_t i = 0; i < dim; i++) {
        int64_t n = dim - i, j = 0;
        double c = scale * u[i], least = floor * prior[i];
        const double *right = u + i;
        for (; j + 8 <= n; j += 8)
            *(KB(v8) *)(p + j) -= c * *(const KB(v8) *)(right + j);
        for (; j < n; j++)
            p[j] -= c * right[j];
        if (p[0] < least) {
            p[0] = least;
            ++*repairs;
        }
        p += n;
    }
}

/* gain = C z for eight neurons at once. */
KB_INLINE void KB(multiply_lanes)(const double *restrict c, const double *restrict z,
                                  double *restrict gain, int64_t dim)
{
    KB(v8) *out = (KB(v8) *)gain;
    const KB(v8) *entry = (const KB(v8) *)c;
    for (int64_t i = 0; i < dim; i++)
        out[i] = (KB(v8)){0};
    for (int64_t i = 0; i < dim; i++) {
        KB(v8) sum = out[i] + *entry++ * z[i];
        for (int64_t j = i + 1; j < dim; j++, entry++) {
            sum += *entry * z[j];
            out[j] += *entry * z[i];
        }
        out[i] = sum;
    }
}

/* C -= scale gain gain' for eight neurons at once, floor included: the lanes' covariance write. */
KB_INLINE void KB(shrink_lanes)(double *restrict c, const double *restrict gain,
                                const double *restrict scale, int64_t dim, double floor,
                                const double *prior, int64_t lanes, int64_t *repairs)
{
    KB(v8) *entry = (KB(v8) *)c;
    const KB(v8) *g = (const KB(v8) *)gain;
    KB(v8) weight = *(const KB(v8) *)scale;
    for (int64_t i = 0; i < dim; i++) {
        KB(v8) left = g[i] * weight;
        double *diagonal = (double *)entry;
        for (int64_t j = i; j < dim; j++)
            *entry++ -= left * g[j];
        for (int64_t k = 0; k < lanes; k++)
            if (diagonal[k] < floor * prior[k * dim + i]) {
                diagonal[k] = floor * prior[k * dim + i];
                ++*repairs;
            }
    }
}
