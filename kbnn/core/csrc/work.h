/* Working memory: the state in the order that the row loop needs.
 *
 * A layer of separate neurons is kept in groups of `width` *lanes*: weights [group][input][lane],
 * covariance triangles [group][entry][lane], so that every vector register is full and every access
 * is in sequence. A layer of fewer than four separate neurons, every joint block and every noise
 * head is kept in *tiles*. The units below joint blocks have lanes for their weights alone. Lanes,
 * rows and columns beyond the last hold zeros. The loose weights of a wide network have lanes for
 * their variances beside those for the weights. */
#ifndef KBNN_WORK_H
#define KBNN_WORK_H

#include "kernel.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KB_ALIGN 8
#define KB_TILE_ROWS(width) ((width) > 4 ? (width) : 4)
#define KB_TILE KB_TILE_ROWS(KB_WIDTH)
#define KB_PENDING 2 /* updates that may wait for one write */
#define KB_LANES_FROM 4

/* The upper triangle of a symmetric matrix in tiles of KB_TILE_ROWS rows by `width` columns, a row
 * of tiles after the other; each begins on the diagonal, whose squares are stored whole. Updates
 * P -= u u' may be pending, on the squares the newest alone. */
typedef struct {
    int64_t dim, padded, start; /* start: in the state's packed vector */
    double *tiles;
    double *u;                  /* (KB_PENDING, padded): the pending updates, oldest first */
    double *prior, *least;      /* prior variances, and what no diagonal entry may fall below */
    int64_t *row;               /* where each tile row begins */
    int64_t *repairs;
    int pending, unsquared;     /* unsquared: the newest is pending on the squares too */
} kb_tiles;

typedef struct {
    int64_t inputs;   /* incoming weights per unit, bias included */
    int64_t joint;    /* those of them that are in blocks; the others are loose */
    int64_t units, groups, padded;
    int64_t start;    /* in the mean vector */
    int64_t cov;      /* in the covariance vector, separate layers only */
    int lanes, pending;
    const kb_activation *f; /* NULL of the output layer */
    double *weights;  /* lanes: [groups][inputs][width]; else a view of the mean vector */
    double *triangle; /* separate, lanes: [groups][entries][width] */
    double *prior, *least; /* separate, lanes: [groups][inputs][width], see kb_tiles */
    double *loose, *loose_prior, *loose_least; /* [groups][inputs - joint][width] variances */
    double *loose_own; /* z' C z over the loose weights, per unit */
    kb_tiles *tiles;  /* separate, not lanes: one per unit */
    double *gain;     /* separate: C z, lanes [groups][inputs][width], else [units][stride];
                       * joint: vectors [units][width] whose totals are `own` */
    double *old_gain; /* that of the pending update */
    int64_t stride;
    double *z;        /* this layer's input [1, z], zeros around it */
    double *vz;       /* and its variance */
    double *mu, *var, *seen_var, *own, *slope, *trace, *var_z; /* per unit, padded */
    double *coefficient; /* (outputs, padded): dE[y]/da */
    int64_t *home;       /* joint, lanes: (block, place in it) of each unit's weights */
    double *pull, *push; /* the two scalars of each unit's update */
} kb_layer;

typedef struct {
    int64_t pieces;
    const kb_piece *piece;
    kb_tiles *tiles;
    double *h, *g; /* (outputs, padded): H and G = P H' */
} kb_block;

typedef struct {
    const kb_net *net;
    kb_state state;        /* our own copies; cov and head_cov are in lanes and tiles instead */
    int64_t width;         /* doubles in a vector register */
    int64_t outputs, inputs, features, largest;
    int64_t directions, loose; /* of a wide network; loose: where its variances begin in cov */
    kb_layer *layer;
    kb_block *block;       /* joint blocks */
    kb_tiles *tiles, *head;
    int64_t tiled;
    int64_t unseen;        /* repairs that are not counted: those of the heads */
    double *memory;
    size_t size;           /* of it, in bytes */
    double *before;        /* what a replay restores, see kbnn/core/csrc/replay.h */
    double *q;             /* (outputs, outputs) covariance of the outputs */
    double *out_mean, *out_var, *stated_var, *input_var, *target, *label_var, *residual;
    double *now_mean, *now_cov, *now_gain; /* m, Q, A while a label is processed */
    double *pull, *spread; /* b, and B column after column */
    int64_t columns;
    double *direction, *cov_d, *gain_d;
    double *x_cov;         /* covariance of this row's inputs */
    double *x_gain, *x_used, *x_measured; /* what rows with the same missing inputs share */
    double *x_mean, *x_var, *z_joint, *low, *loose_gain; /* of a wide network, see wide.h */
    double *head_gain, *head_log_mean, *head_log_var, *noise_var, *new_noise, *share;
    double *probability;   /* of each class, before the row's label */
    double *scratch, *zeros;
    double kappa;          /* variance inflation, see kbnn/core/belief.py */
    int64_t role;          /* of the rows, see kb_data */
    int64_t raised;        /* this row's variances that the paper's formula puts too low */
    int uncertain;         /* this row's inputs have a variance */
    int same_missing;      /* it is that of the row before, and so is what follows from it alone */
} kb_work;

/* The code of one instruction set. */
typedef struct {
    const char *name;
    int64_t width;
    void (*run)(kb_work *, const kb_data *, kb_records *, int);
    void (*settle)(kb_work *);
    void (*settle_diagonals)(kb_work *);
} kb_variant;

extern const kb_variant kb_portable, kb_avx2, kb_avx512;

static inline int64_t kb_triangle(int64_t dim) { return dim * (dim + 1) / 2; }

static inline int64_t kb_round_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

/* Entry (i, j), j >= i or both in one square on the diagonal. */
static inline double *kb_entry(const kb_tiles *t, int64_t width, int64_t i, int64_t j)
{
    int64_t rows = KB_TILE_ROWS(width), column = j - i / rows * rows;
    return t->tiles + t->row[i / rows] + column / width * rows * width + i % rows * width
           + column % width;
}

/* Lane order <-> the state's order, one layer at a time. */
static inline void kb_weights_move(const kb_layer *a, int64_t width, double *mean, int load)
{
    for (int64_t u = 0; u < a->units; u++)
        for (int64_t i = 0; i < a->inputs; i++) {
            double *lane = a->weights + (u / width * a->inputs + i) * width + u % width;
            double *flat = mean + a->start + u * a->inputs + i;
            *(load ? lane : flat) = *(load ? flat : lane);
        }
}

static inline void kb_triangles_move(const kb_layer *a, int64_t width, double *cov, int load)
{
    int64_t entries = kb_triangle(a->inputs);
    for (int64_t u = 0; u < a->units; u++)
        for (int64_t i = 0; i < entries; i++) {
            double *lane = a->triangle + (u / width * entries + i) * width + u % width;
            double *flat = cov + a->cov + u * entries + i;
            *(load ? lane : flat) = *(load ? flat : lane);
        }
}

/* Loose variances, and as further lanes the values given for each of them. */
static inline void kb_loose_move(const kb_layer *a, int64_t width, double *cov, int load)
{
    int64_t n = a->inputs - a->joint;
    for (int64_t u = 0; u < a->units; u++)
        for (int64_t i = 0; i < n; i++) {
            double *lane = a->loose + (u / width * n + i) * width + u % width;
            *(load ? lane : cov + u * n + i) = *(load ? cov + u * n + i : lane);
        }
}

/* Tiles <-> packed rows, a run of at most `width` columns at a time. */
static inline void kb_tiles_move(const kb_tiles *t, int64_t width, double *packed, int load)
{
    int64_t rows = KB_TILE_ROWS(width);
    packed += t->start;
    for (int64_t i = 0; i < t->dim; i++) {
        int64_t corner = i / rows * rows, skip = (i - corner) % width, n;
        double *tile = kb_entry(t, width, i, i) - skip;
        for (int64_t j = i; j < t->dim; j += n, packed += n, tile += rows * width, skip = 0) {
            n = width - skip < t->dim - j ? width - skip : t->dim - j;
            memcpy(load ? tile + skip : packed, load ? packed : tile + skip,
                   (size_t)n * sizeof(double));
        }
        for (int64_t j = corner; load && j < i; j++)
            *kb_entry(t, width, i, j) = *kb_entry(t, width, j, i);
    }
}

static inline int kb_is_head(const kb_work *w, const kb_tiles *t) { return w->head && t >= w->head; }

/* From the state's order to ours; nothing may be pending. */
static inline void kb_work_load(kb_work *w, const kb_state *from)
{
    const kb_net *net = w->net;
    for (int64_t l = 0; l < net->layers; l++) {
        if (w->layer[l].lanes)
            kb_weights_move(&w->layer[l], w->width, from->mean, 1);
        if (w->layer[l].lanes && net->separate)
            kb_triangles_move(&w->layer[l], w->width, from->cov, 1);
    }
    if (w->directions)
        kb_loose_move(&w->layer[0], w->width, from->cov + w->loose, 1);
    for (kb_tiles *t = w->tiles; t < w->tiles + w->tiled; t++)
        kb_tiles_move(t, w->width, kb_is_head(w, t) ? from->head_cov : from->cov, 1);
}

/* The weight means in the state's order. */
static inline void kb_work_means(const kb_work *w, double *mean)
{
    for (int64_t l = 0; l < w->net->layers; l++) {
        const kb_layer *a = &w->layer[l];
        if (a->lanes)
            kb_weights_move(a, w->width, mean, 0);
        else
            memcpy(mean + a->start, a->weights, (size_t)(a->units * a->inputs) * sizeof(double));
    }
}

/* The covariances in the state's order. */
static inline void kb_work_covs(const kb_work *w, double *cov, double *head_cov)
{
    for (int64_t l = 0; l < w->net->layers; l++)
        if (w->layer[l].lanes && w->net->separate)
            kb_triangles_move(&w->layer[l], w->width, cov, 0);
    if (w->directions)
        kb_loose_move(&w->layer[0], w->width, cov + w->loose, 0);
    for (kb_tiles *t = w->tiles; t < w->tiles + w->tiled; t++)
        kb_tiles_move(t, w->width, kb_is_head(w, t) ? head_cov : cov, 0);
}

#endif
