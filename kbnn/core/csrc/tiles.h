/* Covariances in tiles of KB_TILE rows by KB_WIDTH columns (see kb_tiles): products and the rank-1
 * updates. Up to KB_PENDING updates C -= u u' wait beside the memory. A product C h passes over it
 * anyway and takes them into account entry by entry, in the order and rounding in which they would
 * have been written; only a product that finds all of them waiting writes, for memory is read
 * faster than it is written. The squares on the diagonal are few and always up to date after a
 * product, because their diagonal has a floor. Every covariance write of a tiled block is in
 * `square_shrink` or `rows_pass`. */
#ifndef KBNN_TILES_H
#define KBNN_TILES_H

#include "vector.h"
#include "work.h"

/* P -= u u' on the square of rows i.., u the newest update; no diagonal entry below its least. */
KB_INLINE void KB(square_shrink)(kb_tiles *t, KB(vec) *p, int64_t i)
{
    const double *u = t->u + (t->pending - 1) * t->padded + i;
    for (int j = 0; j < KB_TILE; j += KB_WIDTH)
        for (int r = 0; r < KB_TILE; r++)
            p[j / KB_WIDTH * KB_TILE + r] -= u[r] * *(const KB(vec) *)(u + j);
    for (int r = 0; r < KB_TILE; r++) {
        double *d = (double *)(p + r / KB_WIDTH * KB_TILE + r) + r % KB_WIDTH;
        if (*d < t->least[i + r]) {
            *d = t->least[i + r];
            ++*t->repairs;
        }
    }
}

/* The tiles of rows i.. beyond the square, with `pending` updates: adds P h, the rows' own products
 * to `sum` and those of the mirrored entries to g. Writes P if it is to `keep` the updates. */
KB_INLINE void KB(rows_pass)(const kb_tiles *t, KB(vec) *p, int64_t i, const double *h, double *g,
                             KB(vec) *sum, int pending, int keep)
{
    const int64_t n = t->padded;
    const double *u = t->u;
    double down_u[KB_PENDING][KB_TILE], down[KB_TILE];
    for (int r = 0; r < KB_TILE; r++) {
        down[r] = h[i + r];
        for (int k = 0; k < pending; k++)
            down_u[k][r] = u[k * n + i + r];
    }
    for (int64_t j = i + KB_TILE; j < n; j += KB_WIDTH, p += KB_TILE) {
        KB(vec) mirrored[2] = {*(KB(vec) *)(g + j), {0}}, across = *(const KB(vec) *)(h + j);
        KB(vec) across_u[KB_PENDING];
        for (int k = 0; k < pending; k++)
            across_u[k] = *(const KB(vec) *)(u + k * n + j);
        for (int r = 0; r < KB_TILE; r++) {
            KB(vec) c = p[r];
            for (int k = 0; k < pending; k++)
                c -= down_u[k][r] * across_u[k];
            if (keep)
                p[r] = c;
            sum[r] += c * across;
            mirrored[r % 2] += c * down[r];
        }
        *(KB(vec) *)(g + j) = mirrored[0] + mirrored[1];
    }
}

/* g = P h for `outputs` vectors of length `padded`, one after another; makes room for an update. */
static void KB(tiles_multiply)(kb_tiles *t, const double *restrict h, double *restrict g,
                               int64_t outputs)
{
    const int square = KB_TILE / KB_WIDTH;
    int keep = t->pending == KB_PENDING || outputs > 1;
    memset(g, 0, (size_t)(outputs * t->padded) * sizeof(double));
    for (int64_t i = 0; i < t->padded; i += KB_TILE) {
        KB(vec) *p = (KB(vec) *)(t->tiles + t->row[i / KB_TILE]), *rest = p + square * KB_TILE;
        if (t->unsquared)
            KB(square_shrink)(t, p, i);
        for (int64_t o = 0; o < outputs; o++) {
            const double *right = h + o * t->padded;
            const KB(vec) *across = (const KB(vec) *)(right + i);
            double *out = g + o * t->padded;
            KB(vec) sum[KB_TILE];
            for (int r = 0; r < KB_TILE; r++)
                sum[r] = p[r] * across[0];
            for (int j = 1; j < square; j++)
                for (int r = 0; r < KB_TILE; r++)
                    sum[r] += p[j * KB_TILE + r] * across[j];
            if (o || !t->pending)
                KB(rows_pass)(t, rest, i, right, out, sum, 0, 0);
            else if (t->pending == KB_PENDING)
                KB(rows_pass)(t, rest, i, right, out, sum, KB_PENDING, 1);
            else if (keep)
                KB(rows_pass)(t, rest, i, right, out, sum, 1, 1);
            else
                KB(rows_pass)(t, rest, i, right, out, sum, 1, 0);
            KB(add_totals)(sum, out + i);
        }
    }
    t->unsquared = 0;
    t->pending = keep ? 0 : t->pending;
}

/* An update to fill in, u of length `dim`; a product or `tiles_settle` has made room. */
KB_INLINE double *KB(tiles_update)(kb_tiles *t)
{
    t->unsquared = 1;
    return t->u + t->pending++ * t->padded;
}

/* Brings the squares, and so the diagonal, up to date. */
static void KB(tiles_square)(kb_tiles *t)
{
    for (int64_t i = 0; t->unsquared && i < t->padded; i += KB_TILE)
        KB(square_shrink)(t, (KB(vec) *)(t->tiles + t->row[i / KB_TILE]), i);
    t->unsquared = 0;
}

/* Writes what is pending without a product. */
static void KB(tiles_settle)(kb_tiles *t)
{
    KB(tiles_square)(t);
    for (int64_t i = 0; t->pending && i < t->padded; i += KB_TILE) {
        KB(vec) *p = (KB(vec) *)(t->tiles + t->row[i / KB_TILE]) + KB_TILE / KB_WIDTH * KB_TILE;
        for (int64_t j = i + KB_TILE; j < t->padded; j += KB_WIDTH)
            for (int r = 0; r < KB_TILE; r++, p++)
                for (const double *u = t->u; u < t->u + t->pending * t->padded; u += t->padded)
                    *p -= u[i + r] * *(const KB(vec) *)(u + j);
    }
    t->pending = 0;
}

/* P = (1 - share) P + share times the prior. */
static void KB(tiles_forget)(kb_tiles *t, double share)
{
    int64_t end = t->row[t->padded / KB_TILE - 1] + KB_TILE * KB_TILE;
    for (int64_t k = 0; k < end; k++)
        t->tiles[k] *= 1.0 - share;
    for (int64_t i = 0; i < t->dim; i++)
        *kb_entry(t, KB_WIDTH, i, i) += share * t->prior[i];
}

#endif
