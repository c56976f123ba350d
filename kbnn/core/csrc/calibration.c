/* Online calibration of predictive distributions. */
#include "mixture.h"

#include <float.h>
#include <string.h>

static void refresh(double *tail, const kb_constants *k)
{
    tail[KB_TAIL_SHARE] = tail[KB_OUTLIERS] / tail[KB_AMONG];
    double any = tail[KB_SPREAD_VAR] > 0.0 ? tail[KB_VALUE_VAR] / tail[KB_SPREAD_VAR] : 0.0;
    double ratio = (tail[KB_EXTREME_SQUARES] + k->any_share * any) / tail[KB_EXTREMES];
    tail[KB_TAIL_RATIO] = clip(ratio, k->least_ratio, k->most_ratio);
    tail[KB_TAIL_SHIFT] = tail[KB_EXTREME_MEAN];
}

static int is_due(const double *tail, const kb_constants *k)
{
    double turns = tail[KB_TAIL_SEEN] / k->tails_every;
    return tail[KB_TAIL_SEEN] < k->tails_young || turns == floor(turns);
}

/* Prior log odds that a value is not an outlier. */
static double usual_odds(const mixture *m)
{
    return log((1.0 - m->share) / m->share) + 0.5 * log(m->ratio);
}

/* Add a value that is an outlier with probability w. */
static void count_among(double *tail, double w, const kb_constants *k)
{
    tail[KB_OUTLIERS] += w;
    tail[KB_AMONG] += 1.0;
    if (tail[KB_AMONG] > k->tails_memory) {
        tail[KB_OUTLIERS] *= k->tails_memory / tail[KB_AMONG];
        tail[KB_AMONG] = k->tails_memory;
    }
    double least = k->least_share * tail[KB_AMONG];
    if (tail[KB_OUTLIERS] < least)
        tail[KB_OUTLIERS] = least;
}

/* Update share, size and location of outliers, and the scale factor, with a value. */
static void learn_tail(double *tail, const mixture *m, double usual, double t, const kb_constants *k)
{
    double far = t - m->shift, odds = usual - 0.5 * (t * t - far * far / m->ratio);
    double w = 1.0 / (1.0 + exp(clip(odds, -k->log_odds_limit, k->log_odds_limit)));
    count_among(tail, w, k);
    tail[KB_EXTREMES] += w;
    double gap = t - tail[KB_EXTREME_MEAN];
    tail[KB_EXTREME_MEAN] += w * gap / tail[KB_EXTREMES];
    tail[KB_EXTREME_SQUARES] += w * gap * (t - tail[KB_EXTREME_MEAN]);
    if (tail[KB_EXTREMES] > k->extremes_memory) {
        tail[KB_EXTREME_SQUARES] *= k->extremes_memory / tail[KB_EXTREMES];
        tail[KB_EXTREMES] = k->extremes_memory;
    }
    double step = k->width_pace / (tail[KB_TAIL_SEEN] + k->width_first);
    step = step > k->width_step ? step : k->width_step;
    double square = t * t < k->width_cap ? t * t : k->width_cap;
    double least = k->width_few / (tail[KB_TAIL_SEEN] + k->width_few);
    tail[KB_WIDTH_FACTOR] = clip(tail[KB_WIDTH_FACTOR] * exp(step * (1.0 - w) * (square - 1.0)),
                                 least > k->least_width ? least : k->least_width, k->most_width);
}

/* Update the running variance of the values and the mean predicted variance. */
static void learn_sizes(double *tail, double y, double spread, const kb_constants *k)
{
    double seen = tail[KB_TAIL_SEEN] + 1.0;
    double rate = 1.0 / (seen < k->tails_memory ? seen : k->tails_memory);
    double reach = k->tails_reach * spread, gap = clip(y - tail[KB_VALUE_MEAN], -reach, reach);
    tail[KB_VALUE_MEAN] += rate * gap;
    tail[KB_VALUE_VAR] += rate * ((1.0 - rate) * gap * gap - tail[KB_VALUE_VAR]);
    tail[KB_SPREAD_VAR] += rate * (spread * spread - tail[KB_SPREAD_VAR]);
}

/* Move each edge out by a little if the value lay beyond it, and in by less if it did not. */
static void track(double *gains, const mixture *m, const margins *known, double t,
                  const double (*factors)[2], const kb_constants *k)
{
    for (int level = 0; level < KB_LEVELS; level++) {
        double *gain = gains + 2 * level;
        int missed = is_outside(m, known, t, gain, level);
        for (int side = 0; side < 2; side++)
            gain[side] = clip(gain[side] * factors[level][missed && side == (t > known->median)],
                              k->least_gain, k->most_gain);
    }
}

static double rate_of(double seen, const kb_constants *k)
{
    seen += 1.0 + k->tails_young;
    return 1.0 / (seen < k->tails_memory ? seen : k->tails_memory);
}

/* Update the averages of the gains, which start at 1 and are used by frozen models. */
static void average(double *tail, const kb_constants *k)
{
    double rate = rate_of(tail[KB_TAIL_SEEN], k);
    for (int at = 0; at < 2 * KB_LEVELS; at++)
        tail[KB_MEAN_GAINS + at] += rate * (tail[KB_GAINS + at] - tail[KB_MEAN_GAINS + at]);
}

/* Update the average scale factor of a count, which starts at 1. */
static void average_width(double *tail, double seen, const kb_constants *k)
{
    seen += 1.0 + k->width_rest;
    double rows = seen < k->tails_memory ? seen : k->tails_memory;
    tail[KB_MEAN_WIDTH] += (tail[KB_WIDTH_FACTOR] - tail[KB_MEAN_WIDTH]) / rows;
}

void kb_update_calibration(double *tails, int64_t targets, int64_t rows, const double *mean,
                     const double *sd, const double *y, int mix, int tracked, double *stated,
                     const kb_constants *k)
{
    double factors[KB_LEVELS][2];
    for (int level = 0; level < KB_LEVELS; level++)
        for (int missed = 0; missed < 2; missed++)
            factors[level][missed] = exp(k->track_step * (missed - outside_of(level, k)));
    for (int64_t j = 0; j < targets; j++) {
        double *tail = tails + j * KB_CALIBRATION_FIELDS;
        mixture m = mixture_of(tail + KB_TAIL_SHARE);
        margins edges = {0};
        double usual = usual_odds(&m);
        int known = 0;
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = row * targets + j;
            double *out = stated + at * KB_PARAM_COUNT;
            if (mix && isfinite(y[at]) && is_due(tail, k)) {
                refresh(tail, k);
                m = mixture_of(tail + KB_TAIL_SHARE);
                usual = usual_odds(&m);
                known = 0;
            }
            double spread = sqrt(tail[KB_WIDTH_FACTOR]) * sd[at];
            out[KB_PLACE] = mean[at];
            out[KB_SPREAD] = spread;
            memcpy(out + KB_SHARE, tail + KB_TAIL_SHARE, (3 + 2 * KB_LEVELS) * sizeof(double));
            out[KB_MOST] = tail[KB_MOST_SEEN];
            out[KB_KIND] = 0.0;
            out[KB_UNIT] = tail[KB_TAIL_UNIT];
            out[KB_NONE] = 0.0;
            if (!isfinite(y[at]))
                continue;
            double t = clip((y[at] - mean[at]) / spread, -k->tails_reach, k->tails_reach);
            if (!isfinite(t))
                continue;
            if (!known && tracked) {
                edges = margins_of(&m, k);
                known = 1;
            }
            if (mix) {
                learn_tail(tail, &m, usual, t, k);
                learn_sizes(tail, y[at], spread, k);
            }
            if (tracked)
                track(tail + KB_GAINS, &m, &edges, t, factors, k);
            average(tail, k);
            tail[KB_TAIL_SEEN] += 1.0;
            if (y[at] > tail[KB_MOST_SEEN])
                tail[KB_MOST_SEEN] = y[at];
        }
        double trust = tail[KB_TAIL_SEEN] / (tail[KB_TAIL_SEEN] + k->width_rest);
        tail[KB_MEAN_WIDTH] = pow(tail[KB_WIDTH_FACTOR], trust);
    }
}

static void state_rows(const double *tails, int64_t targets, int64_t rows, const double *mean,
                       const double *sd, double *stated)
{
    for (int64_t j = 0; j < targets; j++) {
        const double *tail = tails + j * KB_CALIBRATION_FIELDS;
        double width = sqrt(tail[KB_MEAN_WIDTH]);
        for (int64_t at = j; at < rows * targets; at += targets) {
            double *out = stated + at * KB_PARAM_COUNT;
            out[KB_PLACE] = mean[at];
            out[KB_SPREAD] = width * sd[at];
            memcpy(out + KB_SHARE, tail + KB_TAIL_SHARE, 3 * sizeof(double));
            memcpy(out + KB_EDGE_GAINS, tail + KB_MEAN_GAINS, 2 * KB_LEVELS * sizeof(double));
            out[KB_MOST] = tail[KB_MOST_SEEN];
            out[KB_KIND] = 0.0;
            out[KB_UNIT] = tail[KB_TAIL_UNIT];
            out[KB_NONE] = 0.0;
        }
    }
}

void kb_calibrate_outputs(double *tails, int64_t targets, int64_t rows, const kb_network_outputs *said, const double *y,
                 int mix, int tracked, kb_calibrated *told, const kb_constants *k)
{
    int64_t n = rows * targets;
    for (int64_t at = 0; at < n; at++) {
        int64_t j = at % targets;
        told->mean[at] = said->center[j] + said->scale[j] * said->mean[at];
        told->sd[at] = said->scale[j] * sqrt(said->function_var[at] + said->noise_var[at]);
    }
    if (y)
        kb_update_calibration(tails, targets, rows, told->mean, told->sd, y, mix, tracked, told->stated, k);
    else
        state_rows(tails, targets, rows, told->mean, told->sd, told->stated);
    for (int64_t at = 0; at < n; at++) {
        double function = said->function_var[at], noise = said->noise_var[at];
        double root = sqrt(function + noise), spread = told->stated[at * KB_PARAM_COUNT + KB_SPREAD];
        double wider = spread / (root > DBL_MIN ? root : DBL_MIN);
        told->sd[at] = spread;
        told->function_sd[at] = sqrt(function) * wider;
        told->noise_sd[at] = sqrt(noise) * wider;
    }
}

static double digamma(double x)
{
    double below = 0.0;
    for (; x < 8.0; x += 1.0)
        below += 1.0 / x;
    double z = 1.0 / (x * x);
    double series = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240
                    - z * (1.0 / 132 - z * 691.0 / 32760)))));
    return log(x) - 0.5 / x - series - below;
}

void kb_update_count_mixture(double *tail, int64_t rows, const double *y, double *stated,
                   const kb_constants *k)
{
    double seen = tail[KB_TAIL_SEEN];
    for (int64_t row = 0; row < rows; row++) {
        double *out = stated + row * KB_PARAM_COUNT, share = tail[KB_TAIL_SHARE];
        out[KB_SPREAD] *= tail[KB_WIDTH_FACTOR];
        out[KB_SHARE] = share;
        if (isnan(y[row]))
            continue;
        double mu = out[KB_PLACE], inverse = out[KB_SPREAD], alpha = 1.0 / inverse, s = mu + 1.0;
        double value = y[row], spread = log1p(mu * inverse);
        double mass = lgamma(value + alpha) - lgamma(alpha) - lgamma(value + 1.0) - alpha * spread
                      - value * log1p(alpha / mu);
        double far = log(s) - log(s + value) - log(s + value + 1.0);
        double odds = log((1.0 - share) / share) + mass - far;
        double p = 1.0 / (1.0 + exp(clip(-odds, -k->log_odds_limit, k->log_odds_limit)));
        double slope = digamma(value + alpha) - digamma(alpha) - spread;
        double move = clip(-alpha * (slope + (mu - value) / (mu + alpha)), -k->dispersion_move,
                           k->dispersion_move);
        tail[KB_WIDTH_FACTOR] = clip(tail[KB_WIDTH_FACTOR] * exp(k->dispersion_step * p * move),
                                     k->least_width, k->most_width);
        count_among(tail, 1.0 - p, k);
        tail[KB_TAIL_SHARE] = tail[KB_OUTLIERS] / tail[KB_AMONG];
        average_width(tail, seen, k);
        seen += 1.0;
    }
}

static double below(double u) { return 0.5 * erfc(-0.7071067811865476 * u); }

/* The gains of a count's intervals. Where the lower edge is 0 nothing lies below it, and the upper
 * one leaves out both shares. */
static void track_count(double *gains, double u, double none, const kb_constants *k)
{
    const double z[KB_LEVELS] = {k->half_50, k->half_80, k->half_90, k->half_95};
    const double one_sided[KB_LEVELS] = {0.0, k->half_60, k->half_80, k->half_90};
    for (int level = 0; level < KB_LEVELS; level++) {
        double *gain = gains + 2 * level, low = below(-z[level] * gain[0]);
        int from_zero = none >= low;
        double half = from_zero ? one_sided[level] : z[level];
        double outside = outside_of(level, k), beyond = from_zero ? 2.0 * outside : outside;
        if (half > 0.0)
            gain[1] = clip(gain[1] * exp(k->track_step * ((u > below(half * gain[1])) - beyond)),
                           k->least_gain, k->most_gain);
        if (!from_zero)
            gain[0] = clip(gain[0] * exp(k->track_step * ((u < low) - outside)),
                           k->least_gain, k->most_gain);
    }
}

void kb_update_count_intervals(double *tail, int64_t rows, const double *y, const double *u,
                      const double *none, int tracked, double *stated, const kb_constants *k)
{
    for (int64_t row = 0; row < rows; row++) {
        double *out = stated + row * KB_PARAM_COUNT;
        memcpy(out + KB_EDGE_GAINS, tail + KB_GAINS, 2 * KB_LEVELS * sizeof(double));
        out[KB_MOST] = tail[KB_MOST_SEEN];
        if (isnan(y[row]))
            continue;
        if (tracked)
            track_count(tail + KB_GAINS, u[row], none[row], k);
        average(tail, k);
        tail[KB_TAIL_SEEN] += 1.0;
        if (y[row] > tail[KB_MOST_SEEN])
            tail[KB_MOST_SEEN] = y[row];
    }
}

