/* One layer of units: means and variances forward, sums backward, the update of separate neurons.
 * Separate neurons share their input vector: a unit's gain C z serves its variance and its update
 * alike. An update's covariance part stays pending until the next row's product passes over the
 * same memory. */
#ifndef KBNN_LAYER_H
#define KBNN_LAYER_H

#include "lanes.h"
#include "tiles.h"
#include "wide.h"
#include "work.h"

/* own = z' C z of the units of a layer with lanes in joint blocks; those of a block lie in it one
 * after another. */
KB_PART void KB(joint_own)(const kb_work *w, kb_layer *a)
{
    const int64_t n = a->joint, *home = a->home;
    const double *z = n < a->inputs ? w->z_joint : a->z;
    KB(vec) *out = (KB(vec) *)a->gain;
    for (int64_t u = 0, end; u < a->units; u = end) {
        kb_tiles *t = w->block[home[2 * u]].tiles;
        for (end = u + 1; end < a->units && home[2 * end] == home[2 * u]; end++)
            ;
        KB(tiles_square)(t);
        if (!t->pending)
            KB(tiles_own)(t, home[2 * u + 1], n, z, out + u, out + end, 0);
        else if (t->pending == 1)
            KB(tiles_own)(t, home[2 * u + 1], n, z, out + u, out + end, 1);
        else
            KB(tiles_own)(t, home[2 * u + 1], n, z, out + u, out + end, KB_PENDING);
    }
    for (int64_t u = 0; u < a->units; u += KB_TILE) {
        for (int r = 0; r < KB_TILE; r++)
            a->own[u + r] = 0.0;
        KB(add_totals)(out + u, a->own + u);
    }
    if (n < a->inputs)
        KB(loose_moments)(a);
}

/* gain = C z and own = z' C z of the separate neurons of a layer with lanes. */
KB_PART void KB(separate_own)(const kb_work *w, kb_layer *a)
{
    int64_t n = a->inputs;
    double *old = a->gain;
    a->gain = a->old_gain;
    a->old_gain = old;
    for (int64_t g = 0; g < a->groups; g++) {
        int64_t at = g * n * KB_WIDTH;
        double *triangle = a->triangle + g * kb_triangle(n) * KB_WIDTH;
        const double *push = a->push + g * KB_WIDTH;
        const KB(vec) *gains = (const KB(vec) *)(a->gain + at);
        w->state.counts[KB_REPAIRS] += a->pending
            ? KB(lanes_gain)(triangle, a->z, a->gain + at, old + at, push, a->least + at, n, 1)
            : KB(lanes_gain)(triangle, a->z, a->gain + at, old + at, push, a->least + at, n, 0);
        KB(vec) own = {0};
        for (int64_t i = 0; i < n; i++)
            own += gains[i] * a->z[i];
        *(KB(vec) *)(a->own + g * KB_WIDTH) = own;
    }
    a->pending = 0;
}

/* mu and, but for the output layer of joint blocks, own = z' C z of every unit; for separate
 * neurons gain = C z too. Leaves nothing pending in the lanes. */
KB_PART void KB(layer_moments)(const kb_work *w, kb_layer *a)
{
    int64_t n = a->inputs;
    if (a->lanes && w->net->separate)
        KB(separate_own)(w, a);
    else if (a->lanes)
        KB(joint_own)(w, a);
    for (int64_t g = 0; a->lanes && g < a->groups; g++) {
        const KB(vec) *weights = (const KB(vec) *)(a->weights + g * n * KB_WIDTH);
        KB(vec) mu = {0};
        for (int64_t i = 0; i < n; i++)
            mu += weights[i] * a->z[i];
        *(KB(vec) *)(a->mu + g * KB_WIDTH) = mu;
    }
    if (a->lanes)
        return;
    for (int64_t u = 0; u < a->units; u++) {
        a->mu[u] = KB(dot)(a->weights + u * n, a->z, n);
        if (!w->net->separate)
            continue;
        double *gain = a->gain + u * a->stride;
        KB(tiles_multiply)(&a->tiles[u], a->z, gain, 1);
        a->own[u] = KB(dot)(gain, a->z, n);
    }
}

/* sum_i vz_i C_ii of every unit of a layer. */
static void KB(trace_spread)(const kb_work *w, kb_layer *a)
{
    int64_t entries = kb_triangle(a->inputs);
    memset(a->trace, 0, (size_t)a->padded * sizeof(double));
    for (int64_t u = 0; u < a->units; u++) {
        const kb_tiles *t = w->net->separate ? &a->tiles[u] : w->block[a->home[2 * u]].tiles;
        int64_t first = w->net->separate ? 0 : a->home[2 * u + 1];
        for (int64_t i = 0, at = 0; i < a->joint; at += a->inputs - i, i++)
            a->trace[u] += a->vz[i] * (a->triangle
                ? a->triangle[(u / KB_WIDTH * entries + at) * KB_WIDTH + u % KB_WIDTH]
                : *kb_entry(t, w->width, first + i, first + i));
    }
    if (a->joint < a->inputs)
        KB(loose_trace)(a);
}

/* out_u += sum_i vz_i w_ui^2. */
static void KB(weight_spread)(const kb_layer *a, double *out)
{
    for (int64_t g = 0; a->lanes && g < a->groups; g++) {
        const KB(vec) *weights = (const KB(vec) *)(a->weights + g * a->inputs * KB_WIDTH);
        KB(vec) sum = {0};
        for (int64_t i = 0; i < a->inputs; i++)
            sum += weights[i] * weights[i] * a->vz[i];
        *(KB(vec) *)(out + g * KB_WIDTH) += sum;
    }
    for (int64_t u = 0; !a->lanes && u < a->units; u++) {
        const double *weights = a->weights + u * a->inputs;
        double sum = 0.0;
        for (int64_t i = 0; i < a->inputs; i++)
            sum += weights[i] * weights[i] * a->vz[i];
        out[u] += sum;
    }
}

/* below_i = sum_u scale_u w_ui (or w_ui^2) over the units of a layer, bias left out. */
KB_PART void KB(back)(const kb_layer *a, const double *scale, double *below, int squared)
{
    for (int64_t i = 1; a->lanes && i < a->inputs; i++) {
        KB(vec) sum = {0};
        for (int64_t g = 0; g < a->groups; g++) {
            KB(vec) v = *(const KB(vec) *)(a->weights + (g * a->inputs + i) * KB_WIDTH);
            if (squared)
                v *= v;
            sum += v * *(const KB(vec) *)(scale + g * KB_WIDTH);
        }
        below[i - 1] = KB(total)(sum);
    }
    if (a->lanes)
        return;
    for (int64_t i = 1; i < a->inputs; i++)
        below[i - 1] = 0.0;
    for (int64_t u = 0; u < a->units; u++) {
        const double *weights = a->weights + u * a->inputs;
        if (scale[u] == 0.0)
            continue;
        for (int64_t i = 1; i < a->inputs; i++)
            below[i - 1] += scale[u] * (squared ? weights[i] * weights[i] : weights[i]);
    }
}

/* mean_u += pull_u gain_u at once, C_u -= push_u gain_u gain_u' pending, for separate neurons. */
KB_PART void KB(separate_update)(kb_layer *a)
{
    for (int64_t g = 0; a->lanes && g < a->groups; g++) {
        const KB(vec) *gain = (const KB(vec) *)(a->gain + g * a->inputs * KB_WIDTH);
        KB(vec) *weights = (KB(vec) *)(a->weights + g * a->inputs * KB_WIDTH);
        KB(vec) pull = *(const KB(vec) *)(a->pull + g * KB_WIDTH);
        for (int64_t i = 0; i < a->inputs; i++)
            weights[i] += pull * gain[i];
    }
    a->pending = a->lanes;
    for (int64_t u = 0; !a->lanes && u < a->units; u++) {
        const double *gain = a->gain + u * a->stride;
        double root = sqrt(a->push[u]), *update = KB(tiles_update)(&a->tiles[u]);
        for (int64_t i = 0; i < a->inputs; i++) {
            a->weights[u * a->inputs + i] += a->pull[u] * gain[i];
            update[i] = root * gain[i];
        }
    }
}

/* Bring every covariance up to date; for the lanes by computing moments that are not used. */
static void KB(settle)(kb_work *w)
{
    for (int64_t l = 0; l < w->net->layers; l++)
        if (w->layer[l].pending)
            KB(layer_moments)(w, &w->layer[l]);
    for (int64_t k = 0; k < w->tiled; k++)
        KB(tiles_settle)(&w->tiles[k]);
}

/* Brings every diagonal up to date, and with them the count of repairs. */
static void KB(settle_diagonals)(kb_work *w)
{
    for (int64_t l = 0; l < w->net->layers; l++)
        if (w->layer[l].pending)
            KB(layer_moments)(w, &w->layer[l]);
    for (int64_t k = 0; k < w->tiled; k++)
        KB(tiles_square)(&w->tiles[k]);
}

#endif
