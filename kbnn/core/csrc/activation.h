/* E f(a), the expected slope E f'(a) = Cov(a, f)/var and, for the paper's scheme, Var f(a).
 * Formulas as in kbnn/core/activations.py, whose table has these codes. */
#ifndef KBNN_ACTIVATION_H
#define KBNN_ACTIVATION_H

enum { KB_PIECEWISE, KB_PROBIT, KB_TANH, KB_STEP, KB_ACTIVATIONS };

#ifdef KB_TARGET
#include "normal.h"
#include "work.h"

KB_PART void KB(piecewise)(kb_layer *a, const double *restrict var, double *restrict z,
                             int with_var)
{
    const double *restrict mu = a->mu;
    double *restrict slope = a->slope, *restrict var_z = a->var_z;
    double alpha = a->f->alpha, rise = a->f->beta - a->f->alpha;
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
        spread = fabs(t) < KB_FARTHEST ? spread : (t > 0.0 ? 1.0 : 0.0);
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

/* The paper's variance of Phi(lambda a), raised to cov^2 / var_a where it cannot be one; counts. */
KB_INLINE double KB(printed_var)(double p, double t, double least, int64_t *raised)
{
    double spread = p * (1.0 - p) * (1.0 - 1.0 / t);
    *raised += spread < least;
    return spread < least ? least : spread;
}

/* Phi(lambda a), and tanh(a) = 2 Phi(2 lambda a) - 1; how many variances were raised. */
KB_PART int64_t KB(probit)(const kb_constants *c, kb_layer *a, const double *restrict var,
                             double *restrict z, int with_var)
{
    int is_tanh = a->f->code == KB_TANH;
    int64_t raised = 0;
    double stretch = is_tanh ? 2.0 : 1.0, lambda = a->f->alpha * stretch;
    for (int64_t u = 0; u < a->padded; u++) {
        double t = sqrt(1.0 + lambda * lambda * var[u]), h = lambda * a->mu[u] / t;
        KB(normal_t) n = KB(normal)(h);
        z[u] = is_tanh ? 2.0 * n.cdf - 1.0 : n.cdf;
        a->slope[u] = stretch * a->f->alpha * n.pdf / t * (is_tanh ? 2.0 : 1.0);
    }
    if (!with_var)
        return 0;
    for (int64_t u = 0; u < a->units; u++) {
        double k = lambda * lambda * var[u], t = sqrt(1.0 + k), h = lambda * a->mu[u] / t;
        double slope = a->slope[u] / stretch, p = is_tanh ? 0.5 + 0.5 * z[u] : z[u];
        double spread = a->f->printed != 0.0
                            ? KB(printed_var)(p, t, slope * slope * var[u], &raised)
                            : KB(probit_var)(c, h, k);
        a->var_z[u] = is_tanh ? 4.0 * spread : spread;
    }
    return raised;
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

/* Returns how many variances had to be raised. */
KB_INLINE int64_t KB(activate)(const kb_constants *c, kb_layer *a, const double *var, double *z,
                               int with_var)
{
    switch ((int)a->f->code) {
    case KB_PIECEWISE:
        KB(piecewise)(a, var, z, with_var);
        break;
    case KB_PROBIT:
    case KB_TANH:
        return KB(probit)(c, a, var, z, with_var);
    case KB_STEP:
        KB(step)(a, var, z);
        break;
    }
    return 0;
}

#endif
#endif
