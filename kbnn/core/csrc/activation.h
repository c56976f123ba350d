/* E f(a), the expected slope E f'(a) = Cov(a, f)/var and, for the paper's scheme, Var f(a).
 * Formulas as in kbnn/core/activations.py, whose table has these codes. */
#ifndef KBNN_ACTIVATION_H
#define KBNN_ACTIVATION_H

enum { KB_PIECEWISE, KB_PROBIT, KB_TANH, KB_STEP, KB_ACTIVATIONS };

#ifdef KB_TARGET
#include "normal.h"
#include "work.h"

KB_PART void KB(piecewise)(const kb_net *net, kb_layer *a, const double *restrict var,
                             double *restrict z, int with_var)
{
    const double *restrict mu = a->mu;
    double *restrict slope = a->slope, *restrict var_z = a->var_z;
    double alpha = net->alpha, rise = net->beta - net->alpha;
    for (int64_t u = 0; u < a->padded; u++) {
        double s = sqrt(var[u]);
        KB(normal_t) n = KB(normal)(mu[u] / s);
        z[u] = alpha * mu[u] + rise * s * n.excess;
        slope[u] = alpha + rise * n.cdf;
    }
    if (!with_var)
        return;
    for (int64_t u = 0; u < a->padded; u++) {
        double t = mu[u] / sqrt(var[u]);
        KB(normal_t) above = KB(normal)(t), below = KB(normal)(-t);
        double spread = above.cdf - above.excess * below.excess;
        double least = above.cdf * above.cdf;
        spread = fabs(t) < 37.5 ? spread : (t > 0.0 ? 1.0 : 0.0);
        spread = spread > least ? spread : least;
        var_z[u] = var[u] * (alpha * alpha + 2.0 * alpha * rise * above.cdf + rise * rise * spread);
    }
}

/* Var Phi(slope a): an integral without cancellation, see kbnn/core/activations.py. */
KB_INLINE double KB(probit_var)(const kb_constants *c, double h, double k)
{
    double root = sqrt(1.0 + 2.0 * k), lower = 1.0 / root;
    double width = 2.0 * k / (root * (1.0 + root)), h2 = h * h;
    double reach = c->tail_reach / (h2 > c->tiny ? h2 : c->tiny);
    double sliver = reach / (sqrt(lower * lower + reach) + lower);
    width = width < sliver ? width : sliver;
    double sum = 0.0;
    for (int i = 0; i < KB_NODES; i++) {
        double x = lower + 0.5 * width * (1.0 + c->nodes[i]), x2 = 1.0 + x * x;
        sum += c->node_weights[i] * exp(-0.5 * h2 * x2) / x2;
    }
    return 0.5 * width * 0.31830988618379067154 * sum;
}

/* Phi(lambda a), and tanh(a) = 2 Phi(2 lambda a) - 1. */
KB_PART void KB(probit)(const kb_net *net, kb_layer *a, const double *restrict var,
                          double *restrict z, int with_var)
{
    int is_tanh = net->activation == KB_TANH;
    double stretch = is_tanh ? 2.0 : 1.0, lambda = net->alpha * stretch;
    for (int64_t u = 0; u < a->padded; u++) {
        double t = sqrt(1.0 + lambda * lambda * var[u]), h = lambda * a->mu[u] / t;
        KB(normal_t) n = KB(normal)(h);
        z[u] = is_tanh ? 2.0 * n.cdf - 1.0 : n.cdf;
        a->slope[u] = stretch * net->alpha * n.pdf / t * (is_tanh ? 2.0 : 1.0);
    }
    if (!with_var)
        return;
    for (int64_t u = 0; u < a->units; u++) {
        double k = lambda * lambda * var[u], t = sqrt(1.0 + k), h = lambda * a->mu[u] / t;
        double spread = KB(probit_var)(net->k, h, k);
        if (net->printed) {
            double cov = a->slope[u] * var[u], least = cov * cov / var[u];
            spread = z[u] * (1.0 - z[u]) * (1.0 - 1.0 / t);
            spread = spread > least ? spread : least;
        }
        a->var_z[u] = is_tanh ? 4.0 * spread : spread;
    }
}

KB_PART void KB(step)(kb_layer *a, const double *restrict var, double *restrict z)
{
    for (int64_t u = 0; u < a->padded; u++) {
        double s = sqrt(var[u]), t = a->mu[u] / s;
        KB(normal_t) n = KB(normal)(t), other = KB(normal)(-t);
        z[u] = n.cdf;
        a->slope[u] = n.pdf / s;
        a->var_z[u] = n.cdf * other.cdf;
    }
}

KB_INLINE void KB(activate)(const kb_net *net, kb_layer *a, const double *var, double *z,
                            int with_var)
{
    switch (net->activation) {
    case KB_PIECEWISE:
        KB(piecewise)(net, a, var, z, with_var);
        break;
    case KB_PROBIT:
    case KB_TANH:
        KB(probit)(net, a, var, z, with_var);
        break;
    case KB_STEP:
        KB(step)(a, var, z);
        break;
    }
}

#endif
#endif
