/* Rows replayed for the means alone: the covariances are restored afterwards, because a row that was
 * learned before adds no information. */
#ifndef KBNN_REPLAY_H
#define KBNN_REPLAY_H

#include "work.h"

#include <stdlib.h>

static inline int64_t kb_tiles_size(const kb_work *w, const kb_tiles *t)
{
    int64_t rows = KB_TILE_ROWS(w->width);
    return t->row[t->padded / rows - 1] + rows * rows;
}

/* Between `there` and ours, `load` into ours; returns where the next goes. */
static inline double *kb_swap(double *there, double *ours, int64_t size, int load)
{
    memcpy(load ? ours : there, load ? there : ours, (size_t)size * sizeof(double));
    return there + size;
}

static inline int64_t kb_loose_size(const kb_work *w)
{
    return w->layer[0].padded * (w->layer[0].inputs - w->layer[0].joint);
}

/* All covariances of weights; returns the end of what they take. */
static inline double *kb_covs_swap(kb_work *w, double *there, int load)
{
    for (kb_layer *a = w->layer; a < w->layer + w->net->layers; a++)
        if (a->triangle)
            there = kb_swap(there, a->triangle, a->padded * kb_triangle(a->inputs), load);
    if (w->directions)
        there = kb_swap(there, w->layer[0].loose, kb_loose_size(w), load);
    for (kb_tiles *t = w->tiles; t < w->tiles + w->tiled; t++)
        if (!kb_is_head(w, t))
            there = kb_swap(there, t->tiles, kb_tiles_size(w, t), load);
    return there;
}

/* Keeps the covariances, in which nothing is pending; -1 without memory. */
static inline int kb_covs_keep(kb_work *w)
{
    int64_t size = w->directions ? kb_loose_size(w) : 0;
    for (kb_layer *a = w->layer; a < w->layer + w->net->layers; a++)
        size += a->triangle ? a->padded * kb_triangle(a->inputs) : 0;
    for (kb_tiles *t = w->tiles; t < w->tiles + w->tiled; t++)
        size += kb_is_head(w, t) ? 0 : kb_tiles_size(w, t);
    if (!w->before)
        w->before = malloc((size_t)size * sizeof(double));
    if (!w->before)
        return -1;
    kb_covs_swap(w, w->before, 0);
    return 0;
}

/* Restore them; pending updates and their repairs are discarded. */
static inline void kb_covs_put_back(kb_work *w, int64_t repairs)
{
    for (kb_layer *a = w->layer; a < w->layer + w->net->layers; a++)
        a->pending = 0;
    for (kb_tiles *t = w->tiles; t < w->tiles + w->tiled; t++)
        if (!kb_is_head(w, t))
            t->pending = t->unsquared = 0;
    kb_covs_swap(w, w->before, 1);
    w->state.counts[KB_REPAIRS] = repairs;
}

#endif
