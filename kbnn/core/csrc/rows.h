/* The row loop: condition, predict, observe, learn. Included once per instruction set. */

#include "normal.h"
#include "vector.h"
#include "tiles.h"
#include "lanes.h"
#include "activation.h"
#include "inputs.h"
#include "observe.h"
#include "classes.h"
#include "layer.h"
#include "filter.h"
#include "paper.h"

/* Everything that is predicted for a row, and what its update needs of the forward pass. */
KB_INLINE void KB(outputs)(kb_work *w)
{
    const int64_t *counts = w->state.counts;
    double distinct = counts[KB_DISTINCT] > 1 ? (double)counts[KB_DISTINCT] : 1.0;
    double visits = (double)counts[KB_ROWS] / distinct;
    w->kappa = sqrt(visits > 1.0 ? visits : 1.0);
    if (w->net->paper)
        KB(paper_outputs)(w);
    else
        KB(filter_outputs)(w);
    for (int64_t o = 0; o < w->outputs; o++) {
        double var = KB(larger)(w->q[o * w->outputs + o], 0.0);
        w->out_var[o] = var + w->input_var[o];
        w->stated_var[o] = w->kappa * var + w->input_var[o];
    }
    if (w->classes)
        KB(class_probabilities)(w);
    KB(noise_forecast)(w);
}

KB_INLINE void KB(record)(const kb_work *w, kb_records *records, int64_t row)
{
    size_t size = (size_t)w->outputs * sizeof(double);
    memcpy(records->mean + row * w->outputs, w->out_mean, size);
    memcpy(records->function_var + row * w->outputs, w->stated_var, size);
    memcpy(records->noise_var + row * w->outputs, w->noise_var, size);
    if (w->classes)
        memcpy(records->probability + row * w->classes, w->probability,
               (size_t)w->classes * sizeof(double));
    records->inlier[row] = 1.0;
    records->status[row] = 0.0;
}

KB_INLINE int KB(labelled)(const double *y, int64_t labels)
{
    int any = 0;
    for (int64_t k = 0; k < labels; k++)
        any |= !isnan(y[k]);
    return any;
}

KB_INLINE int KB(learnable)(const kb_work *w, const double *x, const double *y, int64_t labels,
                            double weight)
{
    for (int64_t i = 0; i < w->inputs; i++)
        if (isinf(x[i]))
            return 0;
    for (int64_t k = 0; k < labels; k++)
        if (fabs(y[k]) > 1e100)
            return 0;
    if (!(weight >= 1e-300 && weight <= 1e100))
        return 0;
    if (w->classes && !(y[0] >= 0.0 && y[0] < (double)w->classes))
        return 0;
    for (int64_t o = 0; o < w->outputs; o++)
        if (!isfinite(w->out_mean[o]) || !isfinite(w->input_var[o]))
            return 0;
    for (int64_t k = 0; k < w->outputs * w->outputs; k++)
        if (!isfinite(w->q[k]))
            return 0;
    return 1;
}

/* Works the label into evidence; returns how surprising it was. */
KB_INLINE double KB(observe)(kb_work *w, const double *y, double weight, double *inlier)
{
    double surprise = w->classes ? KB(class_surprise)(w, y[0]) : 0.0;
    *inlier = 1.0;
    KB(begin_evidence)(w);
    if (w->net->observation == KB_BERNOULLI) {
        w->direction[0] = y[0] > 0.5 ? 1.0 : -1.0;
        KB(measure_probit)(w, weight);
    } else if (w->net->observation == KB_CATEGORICAL)
        KB(observe_categorical)(w, (int64_t)y[0], weight);
    else if (w->net->observation == KB_SIGMOID)
        KB(observe_sigmoid)(w, y[0], weight);
    else
        KB(observe_gaussian)(w, y, weight, inlier, &surprise);
    return surprise;
}

/* An alarm: every covariance part of the way back to its prior, and a short memory of the noise. */
static void KB(forget)(kb_work *w, double share)
{
    const kb_net *net = w->net;
    KB(settle)(w);
    for (const kb_layer *a = w->layer; a < w->layer + net->layers; a++)
        for (int64_t g = 0; a->lanes && g < a->groups; g++)
            KB(lanes_forget)(a->triangle + g * kb_triangle(a->inputs) * KB_WIDTH,
                             a->prior + g * a->inputs * KB_WIDTH, a->inputs, share);
    for (kb_tiles *t = w->tiles; t < w->tiles + w->tiled; t++)
        if (!kb_is_head(w, t))
            KB(tiles_forget)(t, share);
    kb_work_means(w, w->state.prior_mean);
    for (int64_t o = 0; net->learns_noise && o < w->outputs; o++) {
        double *noise = w->state.noise + 2 * o;
        if (noise[0] > 10.0) {
            noise[1] *= 10.0 / noise[0];
            noise[0] = 10.0;
        }
    }
}

KB_INLINE int KB(drifted)(kb_work *w, double surprise)
{
    double *evidence = w->state.surprise;
    double cap = w->classes ? 5.0 : 2.0, slack = w->classes ? 0.25 : 0.5;
    evidence[0] += (surprise < cap ? surprise : cap) - slack;
    evidence[0] = evidence[0] > 0.0 ? evidence[0] : 0.0;
    if (evidence[0] <= (w->classes ? 15.0 : 10.0))
        return 0;
    evidence[0] = 0.0;
    return 1;
}

KB_INLINE void KB(learn_row)(kb_work *w, const double *x, const double *y, int64_t labels,
                             double weight, kb_records *records, int64_t row)
{
    int64_t *counts = w->state.counts;
    double inlier;
    if (!KB(labelled)(y, labels)) {
        records->status[row] = KB_UNLABELLED;
        return;
    }
    records->status[row] = KB_REJECTED;
    if (!KB(learnable)(w, x, y, labels, weight)) {
        counts[KB_REJECTIONS]++;
        return;
    }
    double surprise = KB(observe)(w, y, weight, &inlier);
    int alarm = w->net->drift && !w->again && KB(drifted)(w, surprise);
    if (alarm) {
        KB(forget)(w, w->classes ? 0.3 : 0.5);
        KB(outputs)(w);
        KB(observe)(w, y, weight, &inlier);
        counts[KB_ALARMS]++;
    }
    if (!(w->net->paper ? KB(paper_update)(w) : KB(filter_update)(w))) {
        counts[KB_REJECTIONS]++;
        return;
    }
    if (w->net->learns_noise)
        memcpy(w->state.noise, w->new_noise, (size_t)w->outputs * 2 * sizeof(double));
    for (int64_t o = 0; w->net->head && o < w->outputs; o++)
        if (!isnan(y[o]))
            KB(learn_head)(w, o);
    KB(absorb)(w);
    counts[KB_ROWS]++;
    counts[KB_DISTINCT] += !w->again;
    for (int64_t i = 0; i < w->inputs; i++)
        counts[KB_CLIPPED] += fabs(x[i]) > w->net->limit;
    records->inlier[row] = inlier;
    records->status[row] = KB_LEARNED | (alarm ? KB_ALARM : 0);
}

static void KB(run)(kb_work *w, const kb_data *data, kb_records *records, int learn)
{
    w->again = data->again != 0;
    for (int64_t row = 0; row < data->rows; row++) {
        const double *x = data->x + row * w->inputs;
        KB(condition)(w, x, data->x_var ? data->x_var + row * w->inputs : NULL);
        KB(outputs)(w);
        KB(record)(w, records, row);
        if (learn)
            KB(learn_row)(w, x, data->y + row * data->labels, data->labels,
                          data->weight ? data->weight[row] : 1.0, records, row);
    }
}
