/* Many inputs, as in kbnn/core/input_moments.py: leading directions joint, the rest diagonal. The loose
 * variances of the first layer's weights lie in lanes beside its weights; every write of them is
 * here. */
#ifndef KBNN_WIDE_H
#define KBNN_WIDE_H

#include "inputs.h"
#include "vector.h"
#include "work.h"

#include <math.h>

/* The lower root of a positive definite matrix (n, n), in place; the upper part is left alone. */
KB_PART void KB(cholesky)(double *a, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t k = 0; k < j; k++)
            a[j * n + j] -= a[j * n + k] * a[j * n + k];
        a[j * n + j] = sqrt(a[j * n + j]);
        for (int64_t i = j + 1; i < n; i++) {
            for (int64_t k = 0; k < j; k++)
                a[i * n + j] -= a[i * n + k] * a[j * n + k];
            a[i * n + j] /= a[j * n + j];
        }
    }
}

/* S, the covariance of the directions given A = V' W V, which is used up. */
KB_PART void KB(directions_given)(const kb_work *w, double *a, double *s)
{
    const int64_t n = w->directions;
    const double *low = w->state.input_cov;
    double *c = w->low, *half = w->low + n * n, least = w->net->k->smallest_spread;
    memset(c, 0, (size_t)(n * n) * sizeof(double));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++)
            c[j * n + i] = *low++ + (i == j ? least : 0.0);
    KB(cholesky)(c, n);
    for (int64_t i = 0; i < n; i++) /* half = A C */
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t k = j; k < n; k++)
                sum += (k < i ? a[k * n + i] : a[i * n + k]) * c[k * n + j];
            half[i * n + j] = sum;
        }
    for (int64_t i = 0; i < n; i++) /* s = I + C' A C */
        for (int64_t j = 0; j <= i; j++) {
            double sum = i == j;
            for (int64_t k = i; k < n; k++)
                sum += c[k * n + i] * half[k * n + j];
            s[i * n + j] = sum;
        }
    KB(cholesky)(s, n);
    for (int64_t j = 0; j < n; j++) /* half = root^-1 C' */
        for (int64_t i = 0; i < n; i++) {
            double sum = c[j * n + i];
            for (int64_t k = 0; k < i; k++)
                sum -= s[i * n + k] * half[k * n + j];
            half[i * n + j] = sum / s[i * n + i];
        }
    memset(s, 0, (size_t)(n * n) * sizeof(double));
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                s[i * n + j] += half[k * n + i] * half[k * n + j];
}

/* Mean and variance of every input given those that were measured; x holds them in our units, NaN
 * where missing, `noise` their measurement variance. S and the variances are those of the row before
 * if the same inputs are missing. */
KB_PART void KB(complete)(kb_work *w, const double *noise)
{
    const int64_t d = w->inputs, n = w->directions, pitch = n + 2;
    const double *spread = w->state.input_cov + kb_triangle(n), *mu = w->state.input_mean;
    const double least = w->net->k->smallest_spread;
    double *a = w->low + 2 * n * n, *s = w->low + 3 * n * n, *b = w->low + 4 * n * n, *t = b + n;
    double *x = w->x_mean, *var = w->x_var;
    memset(b, 0, (size_t)n * sizeof(double));
    if (!w->same_missing)
        memset(a, 0, (size_t)(n * n) * sizeof(double));
    for (int64_t i = 0; i < d; i++) {
        const double *v = w->state.view + i * pitch + 2;
        if (!isfinite(x[i]) || !isfinite(noise[i]))
            continue;
        double left = 1.0 / (KB(larger)(spread[i], least) + noise[i]), miss = left * (x[i] - mu[i]);
        for (int64_t j = 0; j < n; j++) {
            double down = left * v[j];
            b[j] += miss * v[j];
            for (int64_t k = j / KB_WIDTH * KB_WIDTH; !w->same_missing && k < n; k++)
                a[j * n + k] += down * v[k];
        }
    }
    if (!w->same_missing)
        KB(directions_given)(w, a, s);
    for (int64_t j = 0; j < n; j++)
        t[j] = KB(dot)(s + j * n, b, n);
    for (int64_t i = 0; i < d; i++) {
        const double *v = w->state.view + i * pitch + 2;
        int known = isfinite(x[i]) && isfinite(noise[i]);
        if (!w->same_missing)
            var[i] = 0.0;
        if (known && noise[i] <= 0.0)
            continue;
        double own = KB(larger)(spread[i], least), said = mu[i] + KB(dot)(v, t, n), doubt = 0.0;
        double share = known ? own / (own + noise[i]) : 0.0;
        x[i] = known ? said + share * (x[i] - said) : said;
        if (w->same_missing)
            continue;
        for (int64_t j = 0; j < n; j++)
            doubt += v[j] * KB(dot)(s + j * n, v, n);
        var[i] = (1.0 - share) * own + (1.0 - share) * (1.0 - share) * doubt;
    }
}

/* Fills the first layer's z and vz: directions, and what is left of the inputs. */
KB_PART void KB(condition_wide)(kb_work *w, const double *x, const double *x_var)
{
    const int64_t d = w->inputs, n = w->directions, pitch = n + 2;
    const double limit = w->net->limit, *view = w->state.view;
    double *m = w->x_mean, *var = w->x_var, *noise = w->scratch;
    double *s = w->layer[0].z + 1, *r = s + n, *vs = w->layer[0].vz + 1, *vr = vs + n;
    w->uncertain = 0;
    for (int64_t i = 0; i < d; i++) {
        double value = x[i] > limit ? limit : (x[i] < -limit ? -limit : x[i]);
        double gain = view[i * pitch];
        noise[i] = x_var ? gain * gain * x_var[i] : 0.0;
        m[i] = KB(measured)(w, x[i]) ? gain * value - view[i * pitch + 1] : NAN;
        w->uncertain |= !(isfinite(m[i]) && noise[i] <= 0.0);
    }
    const int fresh = !w->uncertain || !w->same_missing;
    memset(s, 0, (size_t)n * sizeof(double));
    if (fresh)
        memset(vs, 0, (size_t)(n + d) * sizeof(double));
    if (w->uncertain)
        KB(complete)(w, noise);
    for (int64_t i = 0; i < d; i++) {
        const double *v = view + i * pitch + 2;
        for (int64_t k = 0; k < n; k++)
            s[k] += v[k] * m[i];
        if (fresh && w->uncertain && var[i] > 0.0)
            for (int64_t k = 0; k < n; k++)
                vs[k] += v[k] * v[k] * var[i];
    }
    for (int64_t i = 0; i < d; i++)
        r[i] = m[i] - KB(dot)(view + i * pitch + 2, s, n);
    if (fresh && w->uncertain)
        memcpy(vr, var, (size_t)d * sizeof(double));
    memcpy(w->z_joint, w->layer[0].z, (size_t)(1 + n) * sizeof(double));
}

/* Counts a learned row's inputs into mu, L and D. */
KB_PART void KB(absorb_wide)(kb_work *w)
{
    const int64_t d = w->inputs, n = w->directions, pitch = n + 2;
    double k = (double)w->state.counts[KB_ROWS] + 2.0, share = 1.0 / k, shrink = (k - 1.0) / k;
    double *mu = w->state.input_mean, *low = w->state.input_cov, *spread = low + kb_triangle(n);
    double *delta = w->scratch, *e = w->low;
    const double *vs = w->layer[0].vz + 1, *view = w->state.view + 2;
    memset(e, 0, (size_t)n * sizeof(double));
    for (int64_t i = 0; i < d; i++) {
        delta[i] = w->x_mean[i] - mu[i];
        mu[i] += delta[i] * share;
        for (int64_t j = 0; j < n; j++)
            e[j] += view[i * pitch + j] * delta[i];
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++, low++) {
            double more = e[i] * e[j] * shrink + (i == j && w->uncertain ? vs[i] : 0.0);
            *low += (more - *low) * share;
        }
    for (int64_t i = 0; i < d; i++) {
        double rest = delta[i] - KB(dot)(view + i * pitch, e, n);
        double more = rest * rest * shrink + (w->uncertain ? w->x_var[i] : 0.0);
        spread[i] += (more - spread[i]) * share;
    }
}

/* own += z' C z over the loose weights, which is kept in loose_own too. */
KB_PART void KB(loose_moments)(kb_layer *a)
{
    const int64_t n = a->inputs - a->joint;
    const double *z = a->z + a->joint;
    for (int64_t g = 0; g < a->groups; g++) {
        const KB(vec) *var = (const KB(vec) *)(a->loose + g * n * KB_WIDTH);
        KB(vec) sum = {0}, other = {0};
        int64_t i = 0;
        for (; i + 2 <= n; i += 2) {
            sum += var[i] * (z[i] * z[i]);
            other += var[i + 1] * (z[i + 1] * z[i + 1]);
        }
        if (i < n)
            sum += var[i] * (z[i] * z[i]);
        sum += other;
        *(KB(vec) *)(a->loose_own + g * KB_WIDTH) = sum;
        *(KB(vec) *)(a->own + g * KB_WIDTH) += sum;
    }
}

/* trace += sum_i vz_i C_ii over the loose weights. */
KB_PART void KB(loose_trace)(kb_layer *a)
{
    const int64_t n = a->inputs - a->joint;
    for (int64_t g = 0; g < a->groups; g++) {
        const KB(vec) *var = (const KB(vec) *)(a->loose + g * n * KB_WIDTH);
        KB(vec) sum = {0};
        for (int64_t i = 0; i < n; i++)
            if (a->vz[a->joint + i] > 0.0)
                sum += var[i] * a->vz[a->joint + i];
        *(KB(vec) *)(a->trace + g * KB_WIDTH) += sum;
    }
}

/* w += G b, C -= (G B)(G B)' over the loose weights, one column of B after another. */
KB_PART void KB(loose_update)(kb_work *w)
{
    kb_layer *a = &w->layer[0];
    const int64_t n = a->inputs - a->joint;
    KB(mask) raised = {0};
    for (int64_t g = 0; g < a->groups; g++) {
        KB(vec) *var = (KB(vec) *)(a->loose + g * n * KB_WIDTH);
        const KB(vec) *least = (const KB(vec) *)(a->loose_least + g * n * KB_WIDTH);
        KB(vec) *weights = (KB(vec) *)(a->weights + (g * a->inputs + a->joint) * KB_WIDTH);
        const double *z = a->z + a->joint;
        KB(vec) pull = {0};
        for (int64_t o = 0; o < w->outputs; o++)
            pull += *(const KB(vec) *)(a->coefficient + o * a->padded + g * KB_WIDTH) * w->pull[o];
        for (int64_t i = 0; i < n; i++)
            weights[i] += pull * (var[i] * z[i]);
        for (int64_t i = 0; w->columns > 1 && i < n; i++) /* the gain that all columns share */
            ((KB(vec) *)w->loose_gain)[i] = var[i] * z[i];
        for (int64_t c = 0; c < w->columns; c++) {
            KB(vec) along = {0};
            for (int64_t o = 0; o < w->outputs; o++)
                along += *(const KB(vec) *)(a->coefficient + o * a->padded + g * KB_WIDTH)
                         * w->spread[c * w->outputs + o];
            for (int64_t i = 0; i < n; i++) {
                KB(vec) u = var[i] * z[i];
                if (w->columns > 1)
                    u = ((KB(vec) *)w->loose_gain)[i];
                u *= along;
                var[i] = KB(at_least)(var[i] - u * u, least[i], &raised);
            }
        }
    }
    for (int k = 0; k < KB_WIDTH; k++)
        w->state.counts[KB_REPAIRS] -= raised[k];
}

/* C = (1 - share) C + share times the prior. */
KB_PART void KB(loose_forget)(kb_layer *a, double share)
{
    for (int64_t k = 0; k < a->padded * (a->inputs - a->joint); k++)
        a->loose[k] = (1.0 - share) * a->loose[k] + share * a->loose_prior[k];
}

#endif
