/* Weights of the networks of an ensemble, as in kbnn/model/ensemble.py. */
#include "ensemble.h"

#include <math.h>

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

/* The gradient of log sum w_k p_k, less its mean: p_k / p - 1; benefits are added. */
static void follow_scores(int64_t count, const double *score, const double *weight,
                          double *benefit, double *slope, double *density, double advantage)
{
    double best = -INFINITY, total = 0.0;
    for (int64_t k = 0; k < count; k++)
        best = larger(best, score[k]);
    for (int64_t k = 0; k < count; k++) {
        density[k] = exp(larger(score[k] - best, -advantage));
        total += weight[k] * density[k];
    }
    for (int64_t k = 0; k < count; k++) {
        double left = larger(1.0 - weight[k], 1e-12);
        double rest = larger(total - weight[k] * density[k], 1e-300) / left;
        benefit[k] += log(total / rest);
        slope[k] = density[k] / total - 1.0;
    }
}

/* The gradient of the log density of the pooled normal distribution of one target. */
static void follow_moments(int64_t count, int64_t step, const double *mean, const double *var,
                           double y, const double *weight, double *scale, double *benefit,
                           double *slope, double rate, double square)
{
    double m = 0.0, v = 0.0;
    for (int64_t k = 0; k < count; k++)
        m += weight[k] * mean[k * step];
    for (int64_t k = 0; k < count; k++) {
        double d = mean[k * step] - m;
        v += weight[k] * (var[k * step] + d * d);
    }
    double miss = y - m, whole = *scale * v, far = miss * miss / whole;
    double soft = far > square ? square / far : 1.0, near = far * soft;
    for (int64_t k = 0; k < count; k++) {
        double d = mean[k * step] - m, own = var[k * step] + d * d;
        double w = weight[k], left = larger(1.0 - w, 1e-12), shift = -w * d / left;
        double rest = larger((v - w * own) / left - shift * shift, 1e-12 * v);
        double other = miss - shift;
        slope[k] += soft * miss * d / whole + 0.5 * (near - 1.0) * (own / v - 1.0);
        benefit[k] += 0.5 * (smaller(other * other / (*scale * rest), square) - near);
        benefit[k] += 0.5 * log(rest / v);
    }
    *scale = larger(*scale + (smaller(miss * miss / v, square) - *scale) * rate, 1e-3);
}

void kb_follow_weights(int64_t rows, int64_t count, int64_t targets, const double *scores,
                       const double *mean, const double *var, const double *y, double *weight,
                       double *scale, double *benefit, double *used, double seen,
                       const kb_pool_limits *limits, double *room)
{
    double *slope = room, *density = room + count;
    for (int64_t i = 0; i < rows; i++) {
        double rate = 1.0 / (smaller(seen + (double)i, limits->window) + 1.0), total = 0.0;
        int64_t known = 0;
        for (int64_t k = 0; k < count; k++) {
            used[i * count + k] = weight[k];
            slope[k] = 0.0;
        }
        if (!targets) {
            follow_scores(count, scores + i * count, weight, benefit, slope, density,
                          limits->advantage);
            known = 1;
        }
        for (int64_t t = 0; t < targets; t++) {
            int64_t at = i * count * targets + t;
            if (!isfinite(y[i * targets + t]))
                continue;
            follow_moments(count, targets, mean + at, var + at, y[i * targets + t], weight, scale,
                           benefit, slope, rate, limits->square);
            known++;
        }
        if (!known)
            continue;
        for (int64_t k = 0; k < count; k++) {
            double step = slope[k] / (double)known;
            step = step > limits->lowest ? smaller(step, limits->highest) : limits->lowest;
            weight[k] = larger(weight[k] * (1.0 + rate * step), limits->least);
            total += weight[k];
        }
        for (int64_t k = 0; k < count; k++)
            weight[k] /= total;
    }
}
