/* Opens and closes the working memory of kb_work: shapes, places, contents. */
#ifndef KBNN_PLAN_H
#define KBNN_PLAN_H

#include "work.h"

#include <stdlib.h>

void kb_lengths_of(const kb_net *net, kb_lengths *n)
{
    int64_t inputs = net->widths[0] - net->directions;
    int64_t features = net->widths[net->layers - 1] + 1;
    memset(n, 0, sizeof *n);
    for (int64_t l = 0; l < net->layers; l++)
        n->mean += net->widths[l + 1] * (net->widths[l] + 1);
    for (int64_t b = 0; b < net->blocks; b++) {
        int64_t dim = 0;
        for (int64_t k = net->block_pieces[b]; k < net->block_pieces[b + 1]; k++)
            dim += ((const kb_piece *)net->pieces)[k].length;
        n->cov += kb_triangle(dim);
    }
    n->cov += net->directions ? net->widths[1] * inputs : 0;
    n->prior_mean = n->prior_var = n->mean;
    n->noise = net->learns_noise ? 2 * net->labels : 0;
    n->head_mean = net->head ? net->labels * features : 0;
    n->head_cov = net->head ? net->labels * kb_triangle(features) : 0;
    n->input_mean = inputs;
    n->input_cov = net->directions ? kb_triangle(net->directions) + inputs : kb_triangle(inputs);
    n->view = net->directions ? inputs * (net->directions + 2) : 0;
    n->surprise = 1;
    n->counts = KB_COUNTS;
}

/* Counts with `memory` NULL, hands out with it set. */
static double *kb_take(double *memory, int64_t *used, int64_t size)
{
    double *place = memory ? memory + *used : NULL;
    *used += kb_round_up(size, KB_ALIGN);
    return place;
}

static void kb_plan_tiles(kb_tiles *t, int64_t width, double *memory, int64_t *used)
{
    int64_t rows = KB_TILE_ROWS(width), size = 0;
    t->row = (int64_t *)kb_take(memory, used, t->padded / rows);
    for (int64_t i = 0; i < t->padded; i += rows) {
        if (memory)
            t->row[i / rows] = size;
        size += rows * (t->padded - i);
    }
    t->tiles = kb_take(memory, used, size);
    t->u = kb_take(memory, used, KB_PENDING * t->padded);
    t->prior = kb_take(memory, used, t->padded);
    t->least = kb_take(memory, used, t->padded);
}

static void kb_plan_layer(kb_work *w, kb_layer *a, double *memory, int64_t *used)
{
    if (a->lanes) {
        a->weights = kb_take(memory, used, a->padded * a->inputs);
        a->home = (int64_t *)kb_take(memory, used, 2 * a->padded);
    }
    if (a->lanes && w->net->separate) {
        a->triangle = kb_take(memory, used, a->padded * kb_triangle(a->inputs));
        a->prior = kb_take(memory, used, a->padded * a->inputs);
        a->least = kb_take(memory, used, a->padded * a->inputs);
        a->old_gain = kb_take(memory, used, a->padded * a->inputs);
    }
    if (a->joint < a->inputs) {
        int64_t size = a->padded * (a->inputs - a->joint);
        a->loose = kb_take(memory, used, size);
        a->loose_prior = kb_take(memory, used, size);
        a->loose_least = kb_take(memory, used, size);
        a->loose_own = kb_take(memory, used, a->padded);
    }
    a->gain = kb_take(memory, used, w->net->separate ? a->padded * a->stride
                                                     : kb_round_up(a->units, KB_ALIGN) * w->width);
    kb_take(memory, used, KB_ALIGN); /* the zeros before z, see tiles_own */
    a->z = kb_take(memory, used, a->inputs + 2 * KB_ALIGN);
    a->vz = kb_take(memory, used, a->inputs + 2 * KB_ALIGN);
    double **per_unit[] = {&a->mu, &a->var, &a->seen_var, &a->own, &a->slope, &a->trace,
                           &a->var_z, &a->pull, &a->push};
    for (size_t k = 0; k < sizeof per_unit / sizeof *per_unit; k++)
        *per_unit[k] = kb_take(memory, used, a->padded);
    a->coefficient = kb_take(memory, used, w->outputs * a->padded);
}

/* Room for the arrays that rows change, the covariances left out. */
static void kb_plan_state(kb_work *w, double *memory, int64_t *used)
{
    kb_state *s = &w->state;
    kb_lengths n;
    kb_lengths_of(w->net, &n);
    s->mean = kb_take(memory, used, n.mean);
    s->prior_mean = kb_take(memory, used, n.prior_mean);
    s->noise = kb_take(memory, used, n.noise);
    s->head_mean = kb_take(memory, used, n.head_mean);
    s->input_mean = kb_take(memory, used, n.input_mean);
    s->input_cov = kb_take(memory, used, n.input_cov);
    s->surprise = kb_take(memory, used, n.surprise);
    s->counts = (int64_t *)kb_take(memory, used, n.counts);
    s->view = kb_take(memory, used, n.view);
}

static int64_t kb_plan(kb_work *w, double *memory)
{
    int64_t used = 0, o = w->outputs;
    kb_plan_state(w, memory, &used);
    for (int64_t l = 0; l < w->net->layers; l++)
        kb_plan_layer(w, &w->layer[l], memory, &used);
    for (int64_t k = 0; k < w->tiled; k++)
        kb_plan_tiles(&w->tiles[k], w->width, memory, &used);
    for (int64_t b = 0; !w->net->separate && b < w->net->blocks; b++) {
        /* Whole vectors are written and read from where a unit's weights begin, beyond its last. */
        w->block[b].h = kb_take(memory, &used, o * w->block[b].tiles->padded + KB_ALIGN);
        w->block[b].g = kb_take(memory, &used, o * w->block[b].tiles->padded + KB_ALIGN);
    }
    double **square[] = {&w->q, &w->now_cov, &w->now_gain, &w->spread};
    for (size_t k = 0; k < sizeof square / sizeof *square; k++)
        *square[k] = kb_take(memory, &used, o * o);
    double **per_output[] = {&w->out_mean, &w->out_var, &w->stated_var, &w->input_var, &w->target,
                             &w->label_var, &w->residual, &w->now_mean, &w->pull, &w->direction,
                             &w->cov_d, &w->gain_d, &w->head_log_mean, &w->head_log_var,
                             &w->noise_var, &w->share};
    for (size_t k = 0; k < sizeof per_output / sizeof *per_output; k++)
        *per_output[k] = kb_take(memory, &used, o);
    w->new_noise = kb_take(memory, &used, 2 * o);
    w->probability = kb_take(memory, &used, o + 1);
    w->head_gain = kb_take(memory, &used, o * kb_round_up(w->features, KB_ALIGN));
    w->x_cov = kb_take(memory, &used, w->directions ? 0 : w->inputs * w->inputs);
    w->x_gain = kb_take(memory, &used, w->directions ? 0 : w->inputs * w->inputs);
    w->x_used = kb_take(memory, &used, w->inputs);
    w->x_measured = kb_take(memory, &used, w->inputs);
    if (w->directions) {
        w->x_mean = kb_take(memory, &used, w->inputs);
        w->x_var = kb_take(memory, &used, w->inputs);
        w->low = kb_take(memory, &used, 4 * w->directions * w->directions + 2 * w->directions);
        w->loose_gain = kb_take(memory, &used, w->inputs * w->width);
        kb_take(memory, &used, KB_ALIGN); /* the zeros before z, see tiles_own */
        w->z_joint = kb_take(memory, &used, 1 + w->directions + 2 * KB_ALIGN);
    }
    w->scratch = kb_take(memory, &used, w->largest + 4 * KB_ALIGN);
    w->zeros = kb_take(memory, &used, w->largest + KB_ALIGN);
    return used;
}

static void kb_shape_layer(kb_work *w, int64_t l, int64_t *start, int64_t *cov)
{
    kb_layer *a = &w->layer[l];
    a->f = l + 1 < w->net->layers ? &w->net->activations[l] : NULL;
    a->inputs = w->net->widths[l] + 1;
    a->joint = l == 0 && w->directions ? 1 + w->directions : a->inputs;
    a->units = w->net->widths[l + 1];
    a->lanes = w->net->separate ? a->units >= KB_LANES_FROM : l == 0 || l < w->net->layers - 1;
    a->groups = (a->units + w->width - 1) / w->width;
    a->padded = a->groups * w->width;
    a->stride = a->lanes ? a->inputs : kb_round_up(a->inputs, KB_ALIGN);
    a->start = *start;
    a->cov = *cov;
    *start += a->units * a->inputs;
    *cov += a->units * kb_triangle(a->inputs);
    w->largest = a->inputs > w->largest ? a->inputs : w->largest;
    w->largest = a->padded > w->largest ? a->padded : w->largest;
}

static kb_tiles *kb_shape_tiles(kb_work *w, int64_t dim, int64_t start)
{
    kb_tiles *t = &w->tiles[w->tiled++];
    t->dim = dim;
    t->padded = kb_round_up(dim, KB_ALIGN);
    t->start = start;
    return t;
}

static void kb_shape(kb_work *w)
{
    const kb_net *net = w->net;
    int64_t start = 0, cov = 0;
    w->directions = net->directions;
    w->inputs = net->widths[0] - net->directions;
    w->outputs = net->widths[net->layers];
    w->features = net->widths[net->layers - 1] + 1;
    w->largest = w->inputs + 1;
    for (int64_t l = 0; l < net->layers; l++) {
        kb_layer *a = &w->layer[l];
        kb_shape_layer(w, l, &start, &cov);
        a->tiles = w->tiles + w->tiled;
        for (int64_t u = 0; net->separate && !a->lanes && u < a->units; u++)
            kb_shape_tiles(w, a->inputs, a->cov + u * kb_triangle(a->inputs));
    }
    cov = 0;
    for (int64_t b = 0; !net->separate && b < net->blocks; b++) {
        int64_t dim = 0;
        w->block[b].piece = (const kb_piece *)net->pieces + net->block_pieces[b];
        w->block[b].pieces = net->block_pieces[b + 1] - net->block_pieces[b];
        for (int64_t k = 0; k < w->block[b].pieces; k++)
            dim += w->block[b].piece[k].length;
        w->block[b].tiles = kb_shape_tiles(w, dim, cov);
        cov += kb_triangle(dim);
    }
    w->loose = cov;
    for (int64_t o = 0; net->head && o < net->labels; o++) {
        kb_tiles *t = kb_shape_tiles(w, w->features, o * kb_triangle(w->features));
        w->head = o ? w->head : t;
    }
}

static void kb_place(double *prior, double *least, int64_t at, double var, double floor)
{
    prior[at] = var;
    least[at] = floor * var;
}

/* The prior and the least variance of every weight, and the home of every unit with lanes. */
static void kb_fill(kb_work *w, const double *prior_var)
{
    const kb_net *net = w->net;
    for (int64_t l = 0; l < net->layers; l++) {
        kb_layer *a = &w->layer[l];
        const double *prior = prior_var + a->start;
        for (int64_t u = 0; u < a->units; u++)
            for (int64_t i = 0; i < a->inputs; i++, prior++) {
                if (a->lanes && net->separate)
                    kb_place(a->prior, a->least,
                             (u / w->width * a->inputs + i) * w->width + u % w->width, *prior,
                             net->floor);
                else if (net->separate)
                    kb_place(a->tiles[u].prior, a->tiles[u].least, i, *prior, net->floor);
                else if (i >= a->joint)
                    kb_place(a->loose_prior, a->loose_least,
                             (u / w->width * (a->inputs - a->joint) + i - a->joint) * w->width
                             + u % w->width, *prior, net->floor);
            }
    }
    for (int64_t b = 0; !net->separate && b < net->blocks; b++) {
        kb_tiles *t = w->block[b].tiles;
        const kb_piece *piece = w->block[b].piece, *end = piece + w->block[b].pieces;
        for (int64_t at = 0; piece < end; at += piece++->length) {
            const kb_layer *a = &w->layer[piece->layer];
            if (a->lanes) {
                a->home[2 * piece->unit] = b;
                a->home[2 * piece->unit + 1] = at;
            }
            const double *prior = prior_var + a->start + piece->unit * a->inputs + piece->first;
            for (int64_t i = 0; i < piece->length; i++)
                kb_place(t->prior, t->least, at + i, prior[i], net->floor);
        }
    }
}

static void kb_copy(void *to, const void *from, int64_t length)
{
    if (length)
        memcpy(to, from, (size_t)length * 8);
}

/* Copy the arrays that need no reordering from one state to another. */
static void kb_copy_state(const kb_net *net, kb_state *to, const kb_state *from)
{
    kb_lengths n;
    kb_lengths_of(net, &n);
    kb_copy(to->prior_mean, from->prior_mean, n.prior_mean);
    kb_copy(to->noise, from->noise, n.noise);
    kb_copy(to->head_mean, from->head_mean, n.head_mean);
    kb_copy(to->input_mean, from->input_mean, n.input_mean);
    kb_copy(to->input_cov, from->input_cov, n.input_cov);
    kb_copy(to->surprise, from->surprise, n.surprise);
    kb_copy(to->counts, from->counts, n.counts);
    kb_copy(to->view, from->view, n.view);
}

static void kb_work_close(kb_work *w)
{
    free(w->memory);
    free(w->before);
    free(w->layer);
    free(w->block);
    free(w->tiles);
}

/* Load a state into working memory, replacing all of the previous one. */
static void kb_work_take(kb_work *w, const kb_state *state)
{
    const kb_net *net = w->net;
    memset(w->memory, 0, w->size);
    kb_plan(w, w->memory);
    kb_copy_state(net, &w->state, state);
    for (kb_layer *a = w->layer; a < w->layer + net->layers; a++) {
        a->pending = 0;
        if (!a->lanes) {
            a->weights = w->state.mean + a->start;
            kb_copy(a->weights, state->mean + a->start, a->units * a->inputs);
        }
        a->z[0] = 1.0;
    }
    for (kb_tiles *t = w->tiles; t < w->tiles + w->tiled; t++) {
        t->pending = t->unsquared = 0;
        t->repairs = kb_is_head(w, t) ? &w->unseen : &w->state.counts[KB_REPAIRS];
    }
    w->unseen = 0;
    kb_fill(w, state->prior_var);
    kb_work_load(w, state);
}

static int kb_work_open(kb_work *w, const kb_net *net, const kb_state *state, int64_t width)
{
    int64_t outputs = net->widths[net->layers];
    memset(w, 0, sizeof *w);
    w->net = net;
    w->width = width;
    w->layer = calloc((size_t)net->layers, sizeof *w->layer);
    w->block = calloc((size_t)net->blocks, sizeof *w->block);
    w->tiles = calloc((size_t)(net->blocks + outputs), sizeof *w->tiles);
    if (!w->layer || !w->block || !w->tiles) {
        kb_work_close(w);
        return -1;
    }
    kb_shape(w);
    w->size = (size_t)kb_plan(w, NULL) * sizeof(double);
    w->memory = aligned_alloc(64, (w->size + 127) / 64 * 64);
    if (!w->memory) {
        kb_work_close(w);
        return -1;
    }
    kb_work_take(w, state);
    return 0;
}

#endif
