/* Missing and noisy inputs, as in kbnn/core/input_moments.py. */
#ifndef KBNN_INPUTS_H
#define KBNN_INPUTS_H

#include "target.h"
#include "work.h"

KB_INLINE double KB(input_entry)(const double *packed, int64_t dim, int64_t i, int64_t j)
{
    int64_t low = i < j ? i : j, high = i < j ? j : i;
    return packed[low * dim - low * (low - 1) / 2 + (high - low)];
}

/* Whether a value is a measurement: neither missing nor absurd. */
KB_INLINE int KB(measured)(const kb_work *w, double x)
{
    return fabs(x) <= KB(larger)(w->net->limit, w->net->k->input_believed);
}

/* Notes whether this row lacks the same inputs as the one before it. Then, if nothing is learned in
 * between and no input is noisy, the variances given the measured inputs are those of that row. */
KB_PART void KB(compare_missing)(kb_work *w, const double *x, int first)
{
    w->same_missing = !first;
    for (int64_t i = 0; i < w->inputs; i++) {
        double measured = KB(measured)(w, x[i]);
        w->same_missing &= w->x_measured[i] == measured;
        w->x_measured[i] = measured;
    }
}

/* Fills the first layer's z and vz and, if anything is uncertain, x_cov. */
KB_PART void KB(condition)(kb_work *w, const double *x, const double *x_var)
{
    int64_t d = w->inputs;
    double limit = w->net->limit, *m = w->layer[0].z + 1, *vz = w->layer[0].vz + 1;
    w->uncertain = 0;
    for (int64_t i = 0; i < d; i++) {
        double value = x[i];
        if (!KB(measured)(w, value) || (x_var && x_var[i] > 0.0))
            w->uncertain = 1;
        m[i] = value > limit ? limit : (value < -limit ? -limit : value);
    }
    if (!w->uncertain) {
        memset(vz, 0, (size_t)d * sizeof(double));
        return;
    }
    const double *sigma = w->state.input_cov;
    double *v = w->x_cov;
    for (int64_t i = 0; i < d; i++) {
        m[i] = w->state.input_mean[i];
        for (int64_t j = 0; !w->same_missing && j < d; j++)
            v[i * d + j] = KB(input_entry)(sigma, d, i, j);
    }
    for (int64_t j = 0; j < d; j++) {
        double *gain = w->x_gain + j * d;
        if (!w->same_missing) {
            double total = v[j * d + j] + (x_var ? x_var[j] : 0.0);
            w->x_used[j] = KB(measured)(w, x[j]) && isfinite(total)
                           && total > w->net->k->smallest_var;
            for (int64_t i = 0; w->x_used[j] && i < d; i++)
                gain[i] = v[i * d + j] / total;
            for (int64_t i = 0; w->x_used[j] && i < d; i++)
                for (int64_t k = 0; k < d; k++)
                    v[i * d + k] -= gain[i] * gain[k] * total;
        }
        if (!w->x_used[j])
            continue;
        double value = x[j] > limit ? limit : (x[j] < -limit ? -limit : x[j]);
        double miss = value - m[j];
        for (int64_t i = 0; i < d; i++)
            m[i] += gain[i] * miss;
    }
    for (int64_t j = 0; j < d; j++) {
        if (KB(measured)(w, x[j]) && !(x_var && x_var[j] > 0.0)) {
            m[j] = x[j] > limit ? limit : (x[j] < -limit ? -limit : x[j]);
            for (int64_t i = 0; i < d; i++)
                v[i * d + j] = v[j * d + i] = 0.0;
        }
        vz[j] = v[j * d + j] = v[j * d + j] > 0.0 ? v[j * d + j] : 0.0;
    }
}

/* Counts a learned row's inputs into the running Gaussian. */
KB_PART void KB(absorb)(kb_work *w)
{
    int64_t d = w->inputs;
    double k = (double)w->state.counts[KB_ROWS] + 2.0, share = 1.0 / k, shrink = (k - 1.0) / k;
    double *mu = w->state.input_mean, *sigma = w->state.input_cov, *delta = w->scratch;
    const double *m = w->layer[0].z + 1;
    for (int64_t i = 0; i < d; i++) {
        delta[i] = m[i] - mu[i];
        mu[i] += delta[i] * share;
    }
    for (int64_t i = 0; i < d; i++) {
        double left = delta[i] * shrink;
        for (int64_t j = i; j < d; j++) {
            double spread = left * delta[j] + (w->uncertain ? w->x_cov[i * d + j] : 0.0);
            sigma[j - i] += (spread - sigma[j - i]) * share;
        }
        sigma += d - i;
    }
}

#endif
