/* Covariances in tiles of KB_TILE rows by KB_WIDTH columns (see kb_tiles): products and the rank-1
 * updates. Up to KB_PENDING updates C -= u u' wait beside the memory. A product C h passes over it
 * anyway and takes them into account entry by entry, in the order and rounding in which they would
 * have been written; only a product that finds all of them waiting writes, for memory is read
 * faster than it is written. The squares on the diagonal are few and always up to date after a
 * product, because their diagonal has a floor. Every covariance write of a tiled block is in
 * `squares_shrink` or `rows_pass`. */
#ifndef KBNN_TILES_H
#define KBNN_TILES_H

#include "vector.h"
#include "work.h"

/* Brings the squares up to date: P -= u u', u the newest update; no diagonal entry stays below its
 * least. */
KB_PART void KB(squares_shrink)(kb_tiles *t)
{
    const int64_t n = t->padded, *row = t->row;
    const double *u = t->u + (t->pending - 1) * n, *least = t->least;
    double *tiles = t->tiles;
    KB(mask) low = {0};
    for (int64_t i = 0; i < n; i += KB_TILE) {
        KB(vec) *p = (KB(vec) *)(tiles + row[i / KB_TILE]);
        for (int j = 0; j < KB_TILE; j += KB_WIDTH, p += KB_TILE) {
            KB(vec) c[KB_TILE];
            for (int r = 0; r < KB_TILE; r++)
                p[r] = c[r] = p[r] - u[i + r] * *(const KB(vec) *)(u + i + j);
            low |= KB(diagonal)(c + j) < *(const KB(vec) *)(least + i + j);
        }
    }
    t->unsquared = 0;
    if (!KB(any)(low))
        return;
    for (int64_t i = 0; i < n; i++) {
        double *d = kb_entry(t, KB_WIDTH, i, i);
        if (*d < least[i]) {
            *d = least[i];
            ++*t->repairs;
        }
    }
}

/* The squares, and so the diagonal, are up to date after it. */
KB_INLINE void KB(tiles_square)(kb_tiles *t)
{
    if (t->unsquared)
        KB(squares_shrink)(t);
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
    KB(tiles_square)(t);
    memset(g, 0, (size_t)(outputs * t->padded) * sizeof(double));
    for (int64_t i = 0; i < t->padded; i += KB_TILE) {
        KB(vec) *p = (KB(vec) *)(t->tiles + t->row[i / KB_TILE]), *rest = p + square * KB_TILE;
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
    t->pending = keep ? 0 : t->pending;
}

/* An update to fill in, u of length `dim`; a product or `tiles_settle` has made room. */
KB_INLINE double *KB(tiles_update)(kb_tiles *t)
{
    t->unsquared = 1;
    return t->u + t->pending++ * t->padded;
}

/* z' P z over n weights from `at` and over each n after them, the totals of `out` to its end, with
 * `pending` updates taken into account but not written; the squares are up to date. z has zeros
 * around it. */
KB_INLINE void KB(tiles_own)(const kb_tiles *t, int64_t at, int64_t n, const double *z,
                             KB(vec) *out, KB(vec) *out_end, int pending)
{
    const int64_t pitch = t->padded, *row = t->row;
    const double *u = t->u, *tiles = t->tiles;
    for (; out < out_end; out++, at += n) {
        const double *here = z - at;
        const int64_t end = at + n;
        KB(vec) square = {0}, rest = {0};
        for (int64_t i = at & -KB_TILE;; i += KB_TILE) {
            const KB(vec) *p = (const KB(vec) *)(tiles + row[i / KB_TILE]);
            double down[KB_TILE], down_u[KB_PENDING][KB_TILE];
            for (int r = 0; r < KB_TILE; r++)
                down[r] = here[i + r];
            for (int j = 0; j < KB_TILE; j += KB_WIDTH, p += KB_TILE) {
                KB(vec) sum = p[0] * down[0];
                for (int r = 1; r < KB_TILE; r++)
                    sum += p[r] * down[r];
                square += sum * *(const KB(vec) *)(here + i + j);
            }
            if (i + KB_TILE >= end)
                break;
            for (int r = 0; r < KB_TILE; r++)
                for (int k = 0; k < pending; k++)
                    down_u[k][r] = u[k * pitch + i + r];
            for (int64_t j = i + KB_TILE; j < end; j += KB_WIDTH, p += KB_TILE) {
                KB(vec) across_u[KB_PENDING], sum[2] = {{0}, {0}};
                for (int k = 0; k < pending; k++)
                    across_u[k] = *(const KB(vec) *)(u + k * pitch + j);
                for (int r = 0; r < KB_TILE; r++) {
                    KB(vec) c = p[r];
                    for (int k = 0; k < pending; k++)
                        c -= down_u[k][r] * across_u[k];
                    sum[r % 2] += c * down[r];
                }
                rest += (sum[0] + sum[1]) * *(const KB(vec) *)(here + j);
            }
        }
        *out = square + 2.0 * rest;
    }
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
