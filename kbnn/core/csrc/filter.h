/* The block filter, as in kbnn/core/block_filter.py. */
#ifndef KBNN_FILTER_H
#define KBNN_FILTER_H

#include "activation.h"
#include "layer.h"
#include "normal.h"

#define KB_ALONG 4        /* columns of B that are worked on at a time */
#define KB_MANY_OUTPUTS 5 /* from which on loops run along outputs instead of units */

KB_PART void KB(filter_forward)(kb_work *w)
{
    int64_t last = w->net->layers - 1;
    double least = w->net->k->smallest_var, spread = w->net->spread;
    for (int64_t l = 0; l < last; l++) {
        kb_layer *a = &w->layer[l], *next = &w->layer[l + 1];
        KB(layer_moments)(w, a);
        memcpy(a->var, a->own, (size_t)a->padded * sizeof(double));
        if (l == 0 && w->uncertain) {
            if (!w->same_missing)
                KB(trace_spread)(w, a);
            for (int64_t u = 0; u < a->padded; u++)
                a->var[u] += a->trace[u];
        }
        if (l > 0 || w->uncertain)
            KB(weight_spread)(a, a->var);
        for (int64_t u = 0; u < a->padded; u++) {
            a->var[u] = KB(larger)(a->var[u], least);
            a->seen_var[u] = KB(larger)(spread * a->var[u], least);
        }
        KB(activate)(w->net->k, a, a->seen_var, next->z + 1, 0);
        for (int64_t u = 0; l + 1 < last && u < a->units; u++)
            next->vz[u + 1] = a->slope[u] * a->slope[u] * a->var[u];
        for (int64_t u = a->units; u < a->padded; u++)
            next->z[u + 1] = 0.0;
    }
    KB(layer_moments)(w, &w->layer[last]);
    memcpy(w->out_mean, w->layer[last].mu, (size_t)w->outputs * sizeof(double));
}

/* The weights of one unit, bias left out. */
KB_INLINE void KB(unit_weights)(const kb_layer *a, int64_t unit, double *out)
{
    const int64_t pitch = a->lanes ? KB_WIDTH : 1;
    const double *weights = a->lanes ? a->weights + unit / KB_WIDTH * a->inputs * KB_WIDTH
                                           + unit % KB_WIDTH
                                     : a->weights + unit * a->inputs;
    for (int64_t i = 1; i < a->inputs; i++)
        out[i - 1] = weights[i * pitch];
}

/* dE[y_o]/da of every unit, from the last layer down. */
KB_PART void KB(filter_coefficients)(kb_work *w)
{
    int64_t last = w->net->layers - 1;
    for (int64_t o = 0; o < w->outputs; o++) {
        kb_layer *top = &w->layer[last];
        memset(top->coefficient + o * top->padded, 0, (size_t)top->padded * sizeof(double));
        top->coefficient[o * top->padded + o] = 1.0;
        for (int64_t l = last; l > 0; l--) {
            kb_layer *a = &w->layer[l], *below = &w->layer[l - 1];
            double *c = below->coefficient + o * below->padded;
            if (l == last)
                KB(unit_weights)(a, o, c);
            else
                KB(back)(a, a->coefficient + o * a->padded, c, 0);
            for (int64_t u = 0; u < below->units; u++)
                c[u] *= below->slope[u];
        }
    }
}

/* G = P H' and Q = H G over the joint blocks; H over a piece is a scalar times a layer's input. */
KB_PART void KB(joint_gains)(kb_work *w)
{
    int64_t outputs = w->outputs;
    for (int64_t b = 0; b < w->net->blocks; b++) {
        kb_block *block = &w->block[b];
        int64_t padded = block->tiles->padded;
        for (int64_t o = 0; o < outputs; o++) {
            const kb_piece *piece = block->piece, *end = piece + block->pieces;
            double *h = block->h + o * padded;
            for (; piece < end; h += piece++->length) {
                const kb_layer *a = &w->layer[piece->layer];
                double c = a->coefficient[o * a->padded + piece->unit];
                KB(scale)(a->z + piece->first, c, piece->length, h);
            }
            memset(h, 0, (size_t)(padded - block->tiles->dim) * sizeof(double));
        }
        KB(tiles_multiply)(block->tiles, block->h, block->g, outputs);
        for (int64_t o = 0; o < outputs; o++)
            for (int64_t p = 0; p <= o; p++)
                w->q[o * outputs + p] += KB(dot)(block->h + o * padded, block->g + p * padded,
                                                 padded);
    }
    const kb_layer *first = &w->layer[0];
    for (int64_t o = 0; w->directions && o < outputs; o++)
        for (int64_t p = 0; p <= o; p++)
            for (int64_t u = 0; u < first->units; u++)
                w->q[o * outputs + p] += first->coefficient[o * first->padded + u]
                                         * first->coefficient[p * first->padded + u]
                                         * first->loose_own[u];
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t p = 0; p < o; p++)
            w->q[p * outputs + o] = w->q[o * outputs + p];
}

/* c[o] = dE[y_o]/da of a unit, and its own variance; zeros beyond the last unit. */
KB_INLINE double KB(unit_column)(const kb_layer *a, int64_t unit, double *c, int64_t outputs)
{
    for (int64_t o = 0; o < outputs; o++)
        c[o] = unit < a->units ? a->coefficient[o * a->padded + unit] : 0.0;
    return unit < a->units ? a->own[unit] : 0.0;
}

/* Q += sum_u c_u c_u' own_u over a layer's units, for few outputs: the products run along the units. */
KB_PART void KB(add_few_output_cov)(kb_work *w, const kb_layer *a)
{
    const int64_t outputs = w->outputs;
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t p = 0; p < outputs; p++) {
            const double *c = a->coefficient + o * a->padded;
            const double *d = a->coefficient + p * a->padded;
            double sum = 0.0;
            for (int64_t u = 0; u < a->units; u++)
                sum += c[u] * d[u] * a->own[u];
            w->q[o * outputs + p] += sum;
        }
}

/* The same for many outputs: along these, over half of Q, and four units in one pass over it. Of the
 * last layer c_u is one output alone. */
KB_PART void KB(add_output_cov)(kb_work *w, const kb_layer *a)
{
    const int64_t outputs = w->outputs;
    double *restrict q = w->q, *restrict sum = w->now_cov;
    double *restrict c0 = w->cov_d, *restrict c1 = w->gain_d, *restrict c2 = w->direction;
    double *restrict c3 = w->now_mean;
    if (a == &w->layer[w->net->layers - 1]) {
        for (int64_t o = 0; o < outputs; o++)
            q[o * outputs + o] += a->own[o];
        return;
    }
    memset(sum, 0, (size_t)(outputs * outputs) * sizeof(double));
    for (int64_t u = 0; u < a->units; u += 4) {
        const double own0 = KB(unit_column)(a, u, c0, outputs);
        const double own1 = KB(unit_column)(a, u + 1, c1, outputs);
        const double own2 = KB(unit_column)(a, u + 2, c2, outputs);
        const double own3 = KB(unit_column)(a, u + 3, c3, outputs);
        for (int64_t o = 0; o < outputs; o++) {
            double *restrict row = sum + o * outputs;
            const double d0 = c0[o], d1 = c1[o], d2 = c2[o], d3 = c3[o];
            for (int64_t p = 0; p <= o; p++) {
                double s = row[p];
                s += d0 * c0[p] * own0;
                s += d1 * c1[p] * own1;
                s += d2 * c2[p] * own2;
                s += d3 * c3[p] * own3;
                row[p] = s;
            }
        }
    }
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t p = 0; p <= o; p++)
            q[o * outputs + p] += sum[o * outputs + p];
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t p = 0; p < o; p++)
            q[p * outputs + o] = q[o * outputs + p];
}

KB_INLINE void KB(filter_outputs)(kb_work *w)
{
    int64_t outputs = w->outputs;
    KB(filter_forward)(w);
    KB(filter_coefficients)(w);
    memset(w->q, 0, (size_t)(outputs * outputs) * sizeof(double));
    memset(w->input_var, 0, (size_t)outputs * sizeof(double));
    if (!w->net->separate)
        KB(joint_gains)(w);
    for (int64_t l = 0; w->net->separate && l < w->net->layers; l++) {
        if (outputs < KB_MANY_OUTPUTS)
            KB(add_few_output_cov)(w, &w->layer[l]);
        else
            KB(add_output_cov)(w, &w->layer[l]);
    }
    if (!w->uncertain)
        return;
    kb_layer *first = &w->layer[0];
    if (w->net->layers == 1 && !w->same_missing) /* else the forward pass did */
        KB(trace_spread)(w, first);
    for (int64_t o = 0; o < outputs; o++) {
        const double *c = first->coefficient + o * first->padded;
        KB(back)(first, c, w->scratch, 0);
        for (int64_t i = 1; i < first->inputs; i++)
            w->input_var[o] += first->vz[i] * w->scratch[i - 1] * w->scratch[i - 1];
        for (int64_t u = 0; u < first->units; u++)
            w->input_var[o] += c[u] * c[u] * first->trace[u];
    }
}

/* out = G c for n weights, `pitch` from one output's gains to the next. */
KB_INLINE void KB(combine)(const double *restrict gain, int64_t pitch, int64_t n, const double *c,
                           int64_t outputs, double *restrict out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = gain[i] * c[0];
    for (int64_t o = 1; o < outputs; o++)
        for (int64_t i = 0; i < n; i++)
            out[i] += gain[o * pitch + i] * c[o];
}

/* w += G b of a layer with lanes, the gains from the blocks into lane order. */
KB_PART void KB(lanes_move)(const kb_work *w, kb_layer *a)
{
    for (int64_t lane = 0; lane < w->outputs * a->padded; lane += KB_WIDTH) {
        const double *from[KB_WIDTH];
        int64_t o = lane / a->padded, unit = lane % a->padded;
        KB(vec) *weights = (KB(vec) *)(a->weights + unit * a->inputs);
        for (int k = 0; k < KB_WIDTH; k++, unit++) {
            const kb_block *block = &w->block[a->home[2 * unit]];
            from[k] = unit < a->units
                      ? block->g + o * block->tiles->padded + a->home[2 * unit + 1] : w->zeros;
        }
        for (int64_t i = 0; i < a->joint; i += KB_WIDTH) {
            KB(vec) square[KB_WIDTH];
            for (int k = 0; k < KB_WIDTH; k++)
                square[k] = *(const KB(vec) *)(from[k] + i);
            KB(transpose)(square);
            for (int k = 0; k < KB_WIDTH && i + k < a->joint; k++)
                weights[i + k] += square[k] * w->pull[o];
        }
    }
}

/* w += G b. */
KB_PART void KB(joint_move)(kb_work *w)
{
    for (kb_layer *a = w->layer; a < w->layer + w->net->layers; a++)
        if (a->lanes)
            KB(lanes_move)(w, a);
    for (const kb_block *block = w->block; block < w->block + w->net->blocks; block++) {
        const kb_piece *piece = block->piece, *end = piece + block->pieces;
        for (const double *gain = block->g; piece < end; gain += piece++->length) {
            const kb_layer *a = &w->layer[piece->layer];
            double *weights = a->weights + piece->unit * a->inputs + piece->first;
            for (int64_t o = 0; !a->lanes && o < w->outputs; o++)
                for (int64_t i = 0; i < piece->length; i++)
                    weights[i] += gain[o * block->tiles->padded + i] * w->pull[o];
        }
    }
}

/* P -= (G c)(G c)' is pending in the blocks. */
KB_PART void KB(joint_defer)(kb_work *w, const double *c)
{
    for (const kb_block *block = w->block; block < w->block + w->net->blocks; block++) {
        int64_t padded = block->tiles->padded;
        KB(combine)(block->g, padded, padded, c, w->outputs, KB(tiles_update)(block->tiles));
    }
}

/* w += G b, P -= (G B)(G B)' over the joint blocks. */
KB_PART int KB(joint_update)(kb_work *w)
{
    double check = 0.0;
    for (int64_t o = 0; o < w->outputs; o++) {
        double square = 0.0; /* of the gain alone: the step may overflow */
        for (const kb_block *block = w->block; block < w->block + w->net->blocks; block++) {
            const double *gain = block->g + o * block->tiles->padded;
            square += KB(dot)(gain, gain, block->tiles->padded);
        }
        double size = sqrt(square);
        check += fabs(w->pull[o]) * size;
        for (int64_t c = 0; c < w->columns; c++) {
            double fall = w->spread[c * w->outputs + o] * size;
            check += fall * fall;
        }
        const kb_layer *first = &w->layer[0];
        for (int64_t u = 0; w->directions && u < first->units; u++)
            check += fabs(first->coefficient[o * first->padded + u] * w->pull[o])
                     * (1.0 + first->loose_own[u]);
    }
    if (!(check <= w->net->k->step_limit))
        return 0;
    if (w->directions)
        KB(loose_update)(w);
    KB(joint_move)(w);
    for (int64_t c = 0; c < w->columns; c++) {
        if (c)
            KB(settle)(w);
        KB(joint_defer)(w, w->spread + c * w->outputs);
    }
    return 1;
}

/* push += (C s)^2 for the units of a vector and `n` columns s of B, one after another. */
KB_INLINE KB(vec) KB(push_along)(const double *coefficient, int64_t pitch, const double *spread,
                                 int64_t outputs, KB(vec) push, const int n)
{
    KB(vec) along[KB_ALONG] = {{0}};
    for (int64_t o = 0; o < outputs; o++) {
        KB(vec) c = *(const KB(vec) *)(coefficient + o * pitch);
        for (int k = 0; k < n; k++)
            along[k] += c * spread[k * outputs + o];
    }
    for (int k = 0; k < n; k++)
        push += along[k] * along[k];
    return push;
}

/* pull = c'b and push = |c'B|^2 of each unit of a layer; of the last, c is one output alone. */
KB_PART void KB(separate_steps)(const kb_work *w, kb_layer *a, int last)
{
    const int64_t outputs = w->outputs;
    if (last) {
        memset(a->push, 0, (size_t)a->padded * sizeof(double));
        memset(a->pull, 0, (size_t)a->padded * sizeof(double));
        memcpy(a->pull, w->pull, (size_t)outputs * sizeof(double));
        for (int64_t c = 0; c < w->columns; c++)
            for (int64_t o = 0; o < outputs; o++)
                a->push[o] += w->spread[c * outputs + o] * w->spread[c * outputs + o];
        return;
    }
    for (int64_t u = 0; u < a->padded; u += KB_WIDTH) {
        const double *coefficient = a->coefficient + u, *spread = w->spread;
        KB(vec) pull = {0}, push = {0};
        for (int64_t o = 0; o < outputs; o++)
            pull += *(const KB(vec) *)(coefficient + o * a->padded) * w->pull[o];
        int64_t c = 0;
        for (; c + KB_ALONG <= w->columns; c += KB_ALONG, spread += KB_ALONG * outputs)
            push = KB(push_along)(coefficient, a->padded, spread, outputs, push, KB_ALONG);
        for (; c < w->columns; c++, spread += outputs)
            push = KB(push_along)(coefficient, a->padded, spread, outputs, push, 1);
        *(KB(vec) *)(a->pull + u) = pull;
        *(KB(vec) *)(a->push + u) = push;
    }
}

KB_INLINE int KB(filter_update)(kb_work *w)
{
    if (!w->net->separate)
        return KB(joint_update)(w);
    double check = 0.0;
    for (int64_t l = 0; l < w->net->layers; l++) {
        kb_layer *a = &w->layer[l];
        KB(separate_steps)(w, a, l == w->net->layers - 1);
        for (int64_t u = 0; u < a->padded; u++)
            check += (fabs(a->pull[u]) + a->push[u]) * (1.0 + a->own[u]);
    }
    if (!(check <= w->net->k->step_limit))
        return 0;
    for (int64_t l = 0; l < w->net->layers; l++)
        KB(separate_update)(&w->layer[l]);
    return 1;
}

#endif
