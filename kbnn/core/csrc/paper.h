/* The paper's filter and smoother, as in kbnn/core/paper_smoother.py. */
#ifndef KBNN_PAPER_H
#define KBNN_PAPER_H

#include "activation.h"
#include "layer.h"
#include "normal.h"

KB_PART void KB(paper_outputs)(kb_work *w)
{
    const kb_net *net = w->net;
    int64_t last = net->layers - 1, outputs = w->outputs;
    double least = net->k->smallest_var;
    w->raised = 0;
    for (int64_t l = 0; l <= last; l++) {
        kb_layer *a = &w->layer[l];
        KB(layer_moments)(w, a);
        memcpy(a->var, a->own, (size_t)a->padded * sizeof(double));
        if (l > 0 || w->uncertain) {
            if (l > 0 || !w->same_missing)
                KB(trace_spread)(w, a);
            for (int64_t u = 0; u < a->padded; u++)
                a->var[u] += a->trace[u];
            KB(weight_spread)(a, a->var);
        }
        for (int64_t u = 0; u < a->padded; u++)
            a->var[u] = a->var[u] > least ? a->var[u] : least;
        if (l == last)
            break;
        w->raised += KB(activate)(net->k, a, a->var, w->layer[l + 1].z + 1, 1);
        for (int64_t u = 0; u < a->units; u++) {
            a->var_z[u] += net->hidden_noise;
            w->layer[l + 1].vz[u + 1] = a->var_z[u];
        }
        for (int64_t u = a->units; u < a->padded; u++)
            w->layer[l + 1].z[u + 1] = 0.0;
    }
    memset(w->q, 0, (size_t)(outputs * outputs) * sizeof(double));
    for (int64_t o = 0; o < outputs; o++) {
        w->out_mean[o] = w->layer[last].mu[o];
        w->q[o * outputs + o] = w->layer[last].var[o];
        w->input_var[o] = 0.0;
    }
}

KB_PART int KB(paper_update)(kb_work *w)
{
    const kb_net *net = w->net;
    int64_t last = net->layers - 1, outputs = w->outputs;
    kb_layer *top = &w->layer[last];
    double check = 0.0;
    int64_t bounded = 0;
    for (int64_t o = 0; o < outputs; o++) {
        top->pull[o] = w->pull[o];
        top->push[o] = 0.0;
        for (int64_t c = 0; c < w->columns; c++)
            top->push[o] += w->spread[c * outputs + o] * w->spread[c * outputs + o];
    }
    for (int64_t l = last; l >= 0; l--) {
        kb_layer *a = &w->layer[l];
        for (int64_t u = 0; u < a->units; u++)
            check += (fabs(a->pull[u]) + a->push[u]) * (1.0 + a->own[u]);
        if (l == 0)
            break;
        kb_layer *below = &w->layer[l - 1];
        KB(back)(a, a->pull, below->pull, 0);
        KB(back)(a, a->push, below->push, 1);
        for (int64_t u = 0; u < below->units; u++) {
            double most = 1.0 / KB(larger)(below->var_z[u], net->k->tiny);
            double push = below->push[u] < most ? below->push[u] : most;
            bounded += below->push[u] > most;
            below->pull[u] *= below->slope[u];
            below->push[u] = below->slope[u] * below->slope[u] * push;
        }
    }
    if (!(check <= net->k->step_limit))
        return 0;
    for (int64_t l = 0; l <= last; l++)
        KB(separate_update)(&w->layer[l]);
    w->state.counts[KB_BOUNDED] += bounded;
    w->state.counts[KB_RAISED] += w->raised;
    return 1;
}

#endif
