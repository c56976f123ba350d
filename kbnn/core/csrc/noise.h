/* The observation noise of real targets, as in kbnn/core/likelihoods.py. */
#ifndef KBNN_NOISE_H
#define KBNN_NOISE_H

#include "normal.h"
#include "tiles.h"
#include "work.h"

/* Noise variance predicted for each output at this row. */
KB_PART void KB(noise_forecast)(kb_work *w)
{
    const kb_net *net = w->net;
    const kb_constants *k = net->k;
    const double *features = w->layer[net->layers - 1].z;
    int64_t f = w->features;
    for (int64_t o = 0; o < w->outputs; o++) {
        w->noise_var[o] = net->noise;
        if (!net->learns_noise)
            continue;
        if (o >= net->labels) { /* presence outputs have no noise */
            w->noise_var[o] = 0.0;
            continue;
        }
        double level = w->state.noise[2 * o + 1] / w->state.noise[2 * o];
        w->noise_var[o] = level;
        if (!net->head)
            continue;
        double *gain = w->head_gain + o * kb_round_up(f, KB_ALIGN);
        KB(tiles_multiply)(&w->head[o], features, gain, 1);
        w->head_log_mean[o] =
            KB(clip)(KB(dot)(w->state.head_mean + o * f, features, f),
                     k->head_log_mean_low, k->head_log_mean_high);
        w->head_log_var[o] = KB(larger)(KB(dot)(gain, features, f), 0.0);
        w->noise_var[o] = level * exp(w->head_log_mean[o]
                                      + 0.5 * KB(clip)(w->head_log_var[o], 0.0,
                                                     k->head_log_var_cap));
    }
}

/* (a, b) after a residual; returns r. */
KB_INLINE double KB(learn_level)(const kb_constants *k, const double *noise, double *next,
                                 double e, double var, double stated, double trust,
                                 double share)
{
    double a = noise[0] + 0.5 * share, r = noise[1] / noise[0];
    for (int turn = 0; turn < (int)k->noise_rounds; turn++) {
        double gain = r / (var * trust + r), rest = stated * r / (stated * trust + r);
        r = (noise[1] + 0.5 * share * (e * e * gain * gain + rest)) / a;
        r = KB(larger)(r, k->smallest_var);
    }
    double keep = 1.0 / (1.0 + k->noise_loss * share);
    next[0] = keep * a;
    next[1] = keep * r * a;
    return r;
}

KB_PART void KB(learn_head)(kb_work *w, int64_t o)
{
    const kb_constants *k = w->net->k;
    double log_var = w->head_log_var[o], noise = w->noise_var[o];
    double e = w->residual[o], var = w->out_var[o], stated = w->stated_var[o], share = w->share[o];
    if (log_var <= k->smallest_var)
        return;
    int64_t f = w->features;
    double *gain = w->head_gain + o * kb_round_up(f, KB_ALIGN), *mean = w->state.head_mean + o * f;
    double v = KB(clip)(log_var, 0.0, k->head_log_var_cap), keep = noise / (var + noise);
    double e2 = (keep * e) * (keep * e), rest = stated * noise / (stated + noise);
    double m2 = e2 + rest, s2 = 2.0 * rest * rest + 4.0 * rest * e2, d = 3.0 * exp(v) - 1.0;
    double dm = KB(clip)(share * v * (m2 / noise - 1.0) / d, -k->head_step_cap,
                         k->head_step_cap);
    double dv = share * v * v * (s2 / ((noise * d) * (noise * d)) - 1.0 / d);
    dv = dv < 0.0 ? dv : 0.0;
    double *update = KB(tiles_update)(&w->head[o]);
    for (int64_t i = 0; i < f; i++) {
        mean[i] += gain[i] * (dm / log_var);
        update[i] = gain[i] * (sqrt(-dv) / log_var);
    }
}

#endif
