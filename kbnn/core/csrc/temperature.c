/* Online temperature of class probabilities. */
#include "temperature.h"

#include <math.h>
#include <string.h>

/* q of every class for one power, but for its sum, into `q`; log q of the class in question. */
static double bend(const double *log_p, const double *log_share, int64_t classes, double power,
                   int64_t asked, double *q, double *sum)
{
    double most = -INFINITY;
    for (int64_t k = 0; k < classes; k++) {
        q[k] = power >= 1.0 ? power * log_p[k] : log_share[k] + power * (log_p[k] - log_share[k]);
        most = q[k] > most ? q[k] : most;
    }
    double log_q = q[asked] - most;
    *sum = 0.0;
    for (int64_t k = 0; k < classes; k++) {
        q[k] = exp(q[k] - most);
        *sum += q[k];
    }
    return log_q - log(*sum);
}

/* The weight of every power, into `weight`. */
static void weigh(const kb_temperature *s, const double *evidence, double *weight)
{
    double most = -INFINITY, total = 0.0;
    for (int64_t g = 0; g < s->powers; g++) {
        weight[g] = s->log_prior[g] + evidence[g];
        most = weight[g] > most ? weight[g] : most;
    }
    for (int64_t g = 0; g < s->powers; g++) {
        weight[g] = exp(weight[g] - most);
        total += weight[g];
    }
    for (int64_t g = 0; g < s->powers; g++)
        weight[g] /= total;
}

/* Halve evidence and counts. */
static void age(const kb_temperature *s, double *evidence, double *counts)
{
    double most = -INFINITY;
    for (int64_t g = 0; g < s->powers; g++)
        most = evidence[g] > most ? evidence[g] : most;
    for (int64_t g = 0; g < s->powers; g++)
        evidence[g] = (evidence[g] - most) / 2.0;
    for (int64_t k = 0; k < s->classes; k++)
        counts[k] /= 2.0;
}

static int is_known(const double *p, int64_t classes)
{
    for (int64_t k = 0; k < classes; k++)
        if (!isfinite(p[k]))
            return 0;
    return 1;
}

static void take_logarithms(const kb_temperature *s, const double *p, const double *counts,
                            double *log_p, double *log_share, const kb_constants *k)
{
    double total = 0.0;
    for (int64_t c = 0; c < s->classes; c++)
        total += counts[c] + k->share_start;
    for (int64_t c = 0; c < s->classes; c++) {
        log_p[c] = log(p[c] > k->least_probability ? p[c] : k->least_probability);
        log_share[c] = log((counts[c] + k->share_start) / total);
    }
}

void kb_apply_temperature(const kb_temperature *s, int64_t rows, const double *p, const double *label,
                         const double *weight, double *stated, const kb_constants *k)
{
    int64_t classes = s->classes;
    double *seen = s->known, *evidence = seen + 1, *counts = evidence + s->powers;
    double *log_p = s->work, *log_share = log_p + classes, *q = log_share + classes;
    double *share = q + classes, gained[KB_MOST_POWERS];
    memcpy(stated, p, (size_t)(rows * classes) * sizeof(double));
    for (int64_t row = 0; row < rows; row++) {
        double *out = stated + row * classes;
        double y = label ? label[row] : -1.0;
        int told = y >= 0.0 && y < (double)classes, spoken = seen[0] > 0.0;
        if (!(told || spoken) || !is_known(out, classes))
            continue;
        int64_t asked = told ? (int64_t)y : 0;
        take_logarithms(s, out, counts, log_p, log_share, k);
        if (spoken) {
            weigh(s, evidence, share);
            memset(out, 0, (size_t)classes * sizeof(double));
        }
        for (int64_t g = 0; g < s->powers; g++) {
            double sum;
            gained[g] = bend(log_p, log_share, classes, s->power[g], asked, q, &sum);
            for (int64_t c = 0; spoken && c < classes; c++)
                out[c] += share[g] / sum * q[c];
        }
        if (!told)
            continue;
        double times = weight ? weight[row] : 1.0;
        times = times < k->sharpness_every ? times : k->sharpness_every;
        int first = counts[asked] == 0.0;
        counts[asked] += times;
        if (first)
            continue;
        for (int64_t g = 0; g < s->powers; g++)
            evidence[g] += times * gained[g];
        seen[0] += 1.0;
        double turns = seen[0] / k->sharpness_every;
        if (turns == floor(turns))
            age(s, evidence, counts);
    }
}
