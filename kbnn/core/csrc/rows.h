/* The row loop: condition, predict, observe, learn. */
#ifndef KBNN_ROWS_H
#define KBNN_ROWS_H

#include "filter.h"
#include "inputs.h"
#include "layer.h"
#include "noise.h"
#include "observe.h"
#include "paper.h"
#include "tiles.h"
#include "work.h"

/* Everything that is predicted for a row, and what its update needs of the forward pass. */
KB_PART void KB(outputs)(kb_work *w)
{
    const int64_t *counts = w->state.counts;
    double distinct = counts[KB_DISTINCT] > 1 ? (double)counts[KB_DISTINCT] : 1.0;
    double passes = (double)counts[KB_ROWS] / distinct, power = w->net->repeats;
    double more = (double)counts[KB_REHEARSED] + w->net->k->moved_share * (double)counts[KB_MOVED];
    w->kappa = 1.0;
    if (passes > 1.0)
        w->kappa *= pow(passes, power);
    if (more > 0.0)
        w->kappa *= pow(1.0 + more / distinct, fmin(power, w->net->k->rehearsed_power));
    if (w->net->paper)
        KB(paper_outputs)(w);
    else
        KB(filter_outputs)(w);
    for (int64_t o = 0; o < w->outputs; o++) {
        double var = KB(larger)(w->q[o * w->outputs + o], 0.0);
        w->out_var[o] = var + w->input_var[o];
        w->stated_var[o] = w->kappa * var + w->input_var[o];
    }
    if (w->net->classes)
        KB(class_probabilities)(w);
    KB(noise_forecast)(w);
}

KB_INLINE void KB(record)(const kb_work *w, kb_records *records, int64_t row)
{
    size_t size = (size_t)w->outputs * sizeof(double);
    memcpy(records->mean + row * w->outputs, w->out_mean, size);
    memcpy(records->function_var + row * w->outputs, w->stated_var, size);
    memcpy(records->noise_var + row * w->outputs, w->noise_var, size);
    if (w->net->classes)
        memcpy(records->probability + row * w->net->classes, w->probability,
               (size_t)w->net->classes * sizeof(double));
    records->inlier[row] = 1.0;
    records->status[row] = 0.0;
}

KB_INLINE int KB(labelled)(const kb_work *w, const double *y)
{
    int any = 0;
    for (int64_t k = 0; k < w->net->labels; k++)
        any |= !isnan(y[k]);
    return any;
}

KB_PART int KB(learnable)(const kb_work *w, const double *x, const double *y, double weight)
{
    const kb_constants *c = w->net->k;
    for (int64_t i = 0; i < w->inputs; i++)
        if (isinf(x[i]))
            return 0;
    for (int64_t k = 0; k < w->net->labels; k++)
        if (fabs(y[k]) > c->label_limit && !KB(is_none)(w, y[k]))
            return 0;
    if (!(weight >= c->least_weight && weight <= c->most_weight))
        return 0;
    if (!KB(label_fits)(w, y))
        return 0;
    for (int64_t o = 0; o < w->outputs; o++)
        if (!isfinite(w->out_mean[o]) || !isfinite(w->input_var[o]))
            return 0;
    for (int64_t k = 0; k < w->outputs * w->outputs; k++)
        if (!isfinite(w->q[k]))
            return 0;
    return 1;
}

/* An alarm: every covariance part of the way back to its prior, and a short memory of the noise. */
static void KB(forget)(kb_work *w, double share)
{
    const kb_net *net = w->net;
    double memory = net->k->noise_memory;
    KB(settle)(w);
    for (const kb_layer *a = w->layer; a < w->layer + net->layers; a++)
        for (int64_t g = 0; a->triangle && g < a->groups; g++)
            KB(lanes_forget)(a->triangle + g * kb_triangle(a->inputs) * KB_WIDTH,
                             a->prior + g * a->inputs * KB_WIDTH, a->inputs, share);
    if (w->directions)
        KB(loose_forget)(&w->layer[0], share);
    for (kb_tiles *t = w->tiles; t < w->tiles + w->tiled; t++)
        if (!kb_is_head(w, t))
            KB(tiles_forget)(t, share);
    kb_work_means(w, w->state.prior_mean);
    for (int64_t o = 0; net->learns_noise && o < net->labels; o++) {
        double *noise = w->state.noise + 2 * o;
        if (noise[0] > memory) {
            noise[1] *= memory / noise[0];
            noise[0] = memory;
        }
    }
}

KB_INLINE int KB(drifted)(kb_work *w, double surprise)
{
    const kb_net *net = w->net;
    double *evidence = w->state.surprise;
    evidence[0] += (surprise < net->cap ? surprise : net->cap) - net->slack;
    evidence[0] = evidence[0] > 0.0 ? evidence[0] : 0.0;
    if (evidence[0] <= net->threshold)
        return 0;
    evidence[0] = 0.0;
    return 1;
}

KB_INLINE int KB(noise_within_limit)(const kb_work *w)
{
    for (int64_t o = 0; w->net->learns_noise && o < w->net->labels; o++)
        if (!(fabs(w->new_noise[2 * o + 1]) <= w->net->k->step_limit))
            return 0;
    return 1;
}

KB_INLINE void KB(learn_row)(kb_work *w, const double *x, const double *y, double weight,
                             kb_records *records, int64_t row)
{
    int64_t *counts = w->state.counts;
    double inlier;
    if (!KB(labelled)(w, y)) {
        records->status[row] = KB_UNLABELLED;
        return;
    }
    records->status[row] = KB_REJECTED;
    if (!KB(learnable)(w, x, y, weight)) {
        counts[KB_REJECTIONS] += w->role < KB_ROLE_REPLAY;
        return;
    }
    double surprise = KB(observe)(w, y, weight, &inlier);
    int alarm = w->net->drift && w->role == KB_FIRST && KB(drifted)(w, surprise);
    if (alarm) {
        KB(forget)(w, w->net->forget);
        KB(outputs)(w);
        KB(observe)(w, y, weight, &inlier);
        counts[KB_ALARMS]++;
    }
    if (!KB(noise_within_limit)(w)
        || !(w->net->paper ? KB(paper_update)(w) : KB(filter_update)(w))) {
        counts[KB_REJECTIONS] += w->role < KB_ROLE_REPLAY;
        return;
    }
    if (w->net->learns_noise)
        memcpy(w->state.noise, w->new_noise, (size_t)w->net->labels * 2 * sizeof(double));
    for (int64_t o = 0; w->net->head && o < w->net->labels; o++)
        if (isfinite(y[o]))
            KB(learn_head)(w, o);
    records->inlier[row] = inlier;
    records->status[row] = KB_LEARNED | (alarm ? KB_ALARM : 0);
    if (w->role >= KB_ROLE_REPLAY) {
        counts[w->role == KB_ROLE_REPLAY_MEANS ? KB_MOVED : KB_REHEARSED]++;
        return;
    }
    if (w->directions)
        KB(absorb_wide)(w);
    else
        KB(absorb)(w);
    counts[KB_ROWS]++;
    counts[KB_DISTINCT] += w->role == KB_FIRST;
    for (int64_t i = 0; i < w->inputs; i++)
        counts[KB_CLIPPED] += fabs(x[i]) > w->net->limit;
}

static void KB(run)(kb_work *w, const kb_data *data, kb_records *records, int learn)
{
    w->role = data->role;
    w->same_missing = 0;
    for (int64_t row = 0; row < data->rows; row++) {
        const double *x = data->x + row * w->inputs;
        const double *x_var = data->x_var ? data->x_var + row * w->inputs : NULL;
        if (!learn && !x_var)
            KB(compare_missing)(w, x, row == 0);
        if (w->directions)
            KB(condition_wide)(w, x, x_var);
        else
            KB(condition)(w, x, x_var);
        KB(outputs)(w);
        KB(record)(w, records, row);
        if (learn)
            KB(learn_row)(w, x, data->y + row * w->net->labels,
                          data->weight ? data->weight[row] : 1.0, records, row);
    }
}

const kb_variant KB_NAME(kb, KB_TARGET) = {
    KB_QUOTE(KB_TARGET), KB_WIDTH, KB(run), KB(settle), KB(settle_diagonals),
};

#endif
