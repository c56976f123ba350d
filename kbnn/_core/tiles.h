/* Covariances in tiles of KB_TILE rows by KB_WIDTH columns (see kb_tiles): products and the rank-1
 * updates. An update C -= u u' is left pending until the next product C h reads the memory anyway;
 * every covariance write of a tiled block is in `rows_shrink` or `rows_both`. Included once per
 * instruction set. */

#define KB_SQUARE (KB_WIDTH > KB_TILE ? KB_WIDTH : KB_TILE)

/* No diagonal entry of rows i.. below its least. */
KB_INLINE void KB(rows_floor)(kb_tiles *t, double *tile, int64_t i)
{
    for (int64_t r = 0; r < KB_TILE; r++) {
        int64_t column = i % KB_SQUARE + r;
        double *d = tile + (column / KB_WIDTH * KB_TILE + r) * KB_WIDTH + column % KB_WIDTH;
        if (*d < t->least[i + r]) {
            *d = t->least[i + r];
            ++*t->repairs;
        }
    }
}

/* P -= u u' over tile columns `from` to `to` of rows i.. . */
KB_INLINE void KB(rows_shrink)(KB(vec) *p, const double *u, int64_t i, int64_t from, int64_t to)
{
    const KB(vec) *across = (const KB(vec) *)u;
    for (int64_t j = from; j < to; j++, p += KB_TILE)
        for (int r = 0; r < KB_TILE; r++)
            p[r] -= u[i + r] * across[j];
}

/* Adds P h: the rows' own products to `sum`, those of the mirrored entries to g. */
KB_INLINE void KB(rows_multiply)(const KB(vec) *p, const double *h, double *g, int64_t i,
                                 int64_t from, int64_t to, KB(vec) *sum)
{
    const KB(vec) *across = (const KB(vec) *)h;
    KB(vec) *out = (KB(vec) *)g;
    for (int64_t j = from; j < to; j++, p += KB_TILE) {
        KB(vec) mirrored = out[j];
        for (int r = 0; r < KB_TILE; r++) {
            sum[r] += p[r] * across[j];
            mirrored += p[r] * h[i + r];
        }
        out[j] = mirrored;
    }
}

/* Both of the above in one pass. */
KB_INLINE void KB(rows_both)(KB(vec) *p, const double *u, const double *h, double *g, int64_t i,
                             int64_t from, int64_t to, KB(vec) *sum)
{
    const KB(vec) *u_across = (const KB(vec) *)u, *across = (const KB(vec) *)h;
    KB(vec) *out = (KB(vec) *)g;
    for (int64_t j = from; j < to; j++, p += KB_TILE) {
        KB(vec) mirrored = out[j];
        for (int r = 0; r < KB_TILE; r++) {
            KB(vec) c = p[r] - u[i + r] * u_across[j];
            p[r] = c;
            sum[r] += c * across[j];
            mirrored += c * h[i + r];
        }
        out[j] = mirrored;
    }
}

/* g = P h for `outputs` vectors of length `padded`, one after another; settles what is pending. */
static void KB(tiles_multiply)(kb_tiles *t, const double *restrict h, double *restrict g,
                               int64_t outputs)
{
    int64_t columns = t->padded / KB_WIDTH, square = KB_SQUARE / KB_WIDTH;
    const double *restrict u = t->u;
    memset(g, 0, (size_t)(outputs * t->padded) * sizeof(double));
    for (int64_t i = 0; i < t->padded; i += KB_TILE) {
        KB(vec) *p = (KB(vec) *)(t->tiles + t->row[i / KB_TILE]);
        int64_t first = i / KB_SQUARE * square, beyond = first + square;
        if (t->pending) {
            KB(rows_shrink)(p, u, i, first, beyond);
            KB(rows_floor)(t, (double *)p, i);
        }
        for (int64_t o = 0; o < outputs; o++) {
            const double *right = h + o * t->padded;
            double *out = g + o * t->padded;
            KB(vec) sum[KB_TILE];
            for (int r = 0; r < KB_TILE; r++)
                sum[r] = p[r] * ((const KB(vec) *)right)[first];
            for (int64_t j = 1; j < square; j++)
                for (int r = 0; r < KB_TILE; r++)
                    sum[r] += p[j * KB_TILE + r] * ((const KB(vec) *)right)[first + j];
            if (t->pending && !o)
                KB(rows_both)(p + square * KB_TILE, u, right, out, i, beyond, columns, sum);
            else
                KB(rows_multiply)(p + square * KB_TILE, right, out, i, beyond, columns, sum);
            KB(add_totals)(sum, out + i);
        }
    }
    t->pending = 0;
}

/* Settles what is pending without a product. */
static void KB(tiles_settle)(kb_tiles *t)
{
    int64_t columns = t->padded / KB_WIDTH, square = KB_SQUARE / KB_WIDTH;
    for (int64_t i = 0; t->pending && i < t->padded; i += KB_TILE) {
        KB(vec) *p = (KB(vec) *)(t->tiles + t->row[i / KB_TILE]);
        KB(rows_shrink)(p, t->u, i, i / KB_SQUARE * square, columns);
        KB(rows_floor)(t, (double *)p, i);
    }
    t->pending = 0;
}
