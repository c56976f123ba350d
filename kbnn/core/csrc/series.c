/* Exponential smoothing and an autoregression of one series. */
#include "series.h"

#include <math.h>
#include <string.h>

enum { SQUARE_DECAY, CHANGE_DECAY, EVIDENCE_POWER, EVIDENCE_LIMIT, MAX_ERROR_SD, MIN_WEIGHT,
       LARGEST, MAX_JUMP_SD, MIN_JUMP_CHANGES };

static double smoothed(const kb_series *s, int64_t k, double acc, int64_t row)
{
    const int seasonal = k < s->seasonal_rules && s->counts[KB_SERIES_SEASON_READY] > 0.0;
    return s->level[k] + acc + (seasonal ? s->seasonal[k * s->season + row % s->season] : 0.0);
}

static double limited(double value, double largest)
{
    return value > largest ? largest : value < -largest ? -largest : value;
}

/* The weights of the rules: powers of their squared errors. Returns 0 if there is none. */
static int weigh_rules(const kb_series *s, double *weight)
{
    const double *c = s->counts, *limits = s->constants;
    double least = INFINITY, total = 0.0;
    for (int64_t k = 0; k < s->rules; k++) {
        const int usable = !(s->rule[k].uses_log > 0.0 && c[KB_SERIES_NONPOSITIVE] > 0.0);
        weight[k] = usable;
        if (usable && s->square[k] < least)
            least = s->square[k];
    }
    const double power = limits[EVIDENCE_POWER] * fmin(c[KB_SERIES_SCORED], limits[EVIDENCE_LIMIT]);
    for (int64_t k = 0; k < s->rules; k++) {
        const double ratio = s->square[k] > 0.0 ? least / s->square[k] : 1.0;
        weight[k] = weight[k] > 0.0 ? pow(ratio, power) : 0.0;
        weight[k] = weight[k] < limits[MIN_WEIGHT] ? 0.0 : weight[k];
        total += weight[k];
    }
    for (int64_t k = 0; k < s->rules; k++)
        weight[k] /= total;
    return total > 0.0;
}

static void forecast_smoothing(const kb_series *s, int64_t steps, double *path, double *weight)
{
    const double largest = s->constants[LARGEST];
    if (s->counts[KB_SERIES_KNOWN] < 1.0 || !weigh_rules(s, weight)) {
        for (int64_t h = 0; h < steps; h++)
            path[h] = NAN;
        return;
    }
    memset(path, 0, steps * sizeof(double));
    const int64_t next = (int64_t)s->counts[KB_SERIES_ROWS];
    for (int64_t k = 0; k < s->rules; k++) {
        if (!(weight[k] > 0.0))
            continue;
        double share = 1.0, drift = 0.0;
        for (int64_t h = 0; h < steps; h++) {
            share *= s->rule[k].phi;
            drift += share * s->trend[k];
            const double m = smoothed(s, k, drift, next + h);
            path[h] += weight[k] * limited(s->rule[k].uses_log > 0.0 ? exp(m) : m, largest);
        }
    }
}

static double difference(const double *newest, int64_t from, int64_t to)
{
    const double d = newest[-from] - newest[-to];
    return d == d ? d : 0.0;
}

/* The regressors of the next change; `newest` and `error` are the last of consecutive ones. */
static void regress(const kb_series *s, const double *newest, const double *error, double scale,
                    double *x)
{
    const int64_t season = s->season;
    int64_t j = 0;
    for (int64_t i = 0; i < s->lags; i++)
        x[j++] = difference(newest, i, i + 1);
    x[j++] = error[0];
    if (season) {
        x[j++] = difference(newest, season - 1, season);
        x[j++] = difference(newest, season, season + 1);
        x[j++] = difference(newest, 2 * season - 1, 2 * season);
        x[j++] = difference(newest, 0, season);
        x[j++] = error[1 - season];
        x[j++] = error[-season];
    }
    x[j++] = newest[0] - s->counts[KB_SERIES_MEAN];
    for (int64_t i = 0; i < j; i++)
        x[i] /= scale;
    x[j] = 1.0;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += a[i] * b[i];
    return total;
}

static int is_regression_ready(const kb_series *s)
{
    const double *last = s->recent + s->recent_rows - 1;
    return last[-s->lags] == last[-s->lags] && s->counts[KB_SERIES_CHANGE_SQUARE] > 0.0;
}

static double change_sd(const kb_series *s)
{
    return sqrt(s->counts[KB_SERIES_CHANGE_SQUARE] / s->counts[KB_SERIES_CHANGES]);
}

/* `work` has room for order + 2 * (recent_rows + steps) numbers. */
static void forecast_regression(const kb_series *s, int64_t steps, double *path, double *work)
{
    const int64_t rows = s->recent_rows, level = s->order - 2;
    double *x = work, *values = work + s->order, *errors = values + rows + steps;
    const double largest = s->constants[LARGEST];
    if (!is_regression_ready(s)) {
        for (int64_t h = 0; h < steps; h++)
            path[h] = NAN;
        return;
    }
    memcpy(values, s->recent, rows * sizeof(double));
    memcpy(errors, s->errors, rows * sizeof(double));
    memset(errors + rows, 0, steps * sizeof(double));
    const double sd = change_sd(s), growth = fmax(s->weight[level], 0.0);
    for (int64_t h = 0; h < steps; h++) {
        double *newest = values + rows - 1 + h;
        regress(s, newest, errors + rows - 1 + h, sd, x);
        const double next = newest[0] + sd * (dot(s->weight, x, s->order) - growth * x[level]);
        path[h] = newest[1] = next == next ? limited(next, largest) : newest[0];
    }
}

void kb_forecast_series(const kb_series *s, int64_t steps, double *path, double *work)
{
    forecast_smoothing(s, steps, path, work);
    forecast_regression(s, steps, path + steps, work + s->rules);
}

/* Start levels, trends and seasonal terms from the first two seasons, and smooth the second. */
static void start_season(kb_series *s)
{
    const int64_t season = s->season;
    for (int64_t k = 0; k < s->seasonal_rules; k++) {
        const kb_smoothing_rule r = s->rule[k];
        double mean[2] = {0.0, 0.0}, number[2] = {0.0, 0.0}, *terms = s->seasonal + k * season;
        for (int64_t i = 0; i < 2 * season; i++) {
            const double v = r.uses_log > 0.0 ? log(s->start[i]) : s->start[i];
            if (isfinite(v)) {
                mean[i / season] += v;
                number[i / season]++;
            }
        }
        for (int half = 0; half < 2; half++)
            mean[half] = number[half] > 0.0 ? mean[half] / number[half] : s->level[k];
        const double slope = number[0] > 0.0 ? (mean[1] - mean[0]) / season : 0.0;
        for (int64_t i = 0; i < season; i++) {
            double total = 0.0, known = 0.0;
            for (int64_t j = i; j < 2 * season; j += season) {
                const double v = r.uses_log > 0.0 ? log(s->start[j]) : s->start[j];
                if (isfinite(v)) {
                    total += v - (mean[0] + slope * (j - 0.5 * (season - 1)));
                    known++;
                }
            }
            terms[i] = known > 0.0 ? total / known : 0.0;
        }
        double level = mean[1] - 0.5 * slope * (season + 1), trend = r.beta > 0.0 ? slope : 0.0;
        for (int64_t j = season; j < 2 * season; j++) {
            const double v = r.uses_log > 0.0 ? log(s->start[j]) : s->start[j];
            const double ahead = level + r.phi * trend;
            const double e = isfinite(v) ? v - ahead - terms[j - season] : 0.0;
            level = ahead + r.alpha * e;
            trend = r.phi * trend + r.beta * r.alpha * e;
        }
        s->level[k] = isfinite(level) ? level : 0.0;
        s->trend[k] = isfinite(trend) ? trend : 0.0;
    }
    memset(s->square, 0, s->rules * sizeof(double));
    s->counts[KB_SERIES_SCORED] = 0.0;
    s->counts[KB_SERIES_SEASON_READY] = 1.0;
}

static void learn_smoothing(kb_series *s, double y)
{
    double *c = s->counts;
    const int64_t row = (int64_t)c[KB_SERIES_ROWS];
    const int known = isfinite(y), first = known && !(c[KB_SERIES_KNOWN] > 0.0);
    const double largest = s->constants[LARGEST];
    if (known && y <= 0.0)
        c[KB_SERIES_NONPOSITIVE] = 1.0;
    for (int64_t k = 0; k < s->rules; k++) {
        const kb_smoothing_rule r = s->rule[k];
        const double v = r.uses_log > 0.0 ? (y > 0.0 ? log(y) : NAN) : y;
        if (first) {
            s->level[k] = isfinite(v) ? v : 0.0;
            continue;
        }
        if (!(c[KB_SERIES_KNOWN] > 0.0))
            continue;
        const double ahead = s->level[k] + r.phi * s->trend[k];
        const double m = smoothed(s, k, r.phi * s->trend[k], row);
        if (known) {
            const double gap = limited((r.uses_log > 0.0 ? exp(m) : m) - y, largest);
            s->square[k] = s->square[k] * s->constants[SQUARE_DECAY] + gap * gap;
        }
        const double e = isfinite(v) && isfinite(v - m) ? v - m : 0.0;
        const double gain = fmax(r.alpha, 1.0 / (c[KB_SERIES_KNOWN] + 1.0));
        s->level[k] = ahead + gain * e;
        s->trend[k] = r.phi * s->trend[k] + r.beta * gain * e;
        if (k < s->seasonal_rules && c[KB_SERIES_SEASON_READY] > 0.0)
            s->seasonal[k * s->season + row % s->season] += r.gamma * (1.0 - gain) * e;
    }
    if (known && !first)
        c[KB_SERIES_SCORED] = c[KB_SERIES_SCORED] * s->constants[SQUARE_DECAY] + 1.0;
    c[KB_SERIES_KNOWN] += known;
    if (row < 2 * s->season)
        s->start[row] = y;
    c[KB_SERIES_ROWS] = row + 1.0;
    if (s->season && row == 2 * s->season - 1 && c[KB_SERIES_KNOWN] > 0.0)
        start_season(s);
}

/* One step of recursive least squares with forgetting down to the prior. Returns the error. */
static double learn_weights(kb_series *s, double target, double *x, double *gain)
{
    const int64_t n = s->order;
    const double decay = s->constants[CHANGE_DECAY];
    for (int64_t i = 0; i < n; i++)
        gain[i] = dot(s->cov + i * n, x, n);
    const double total = 1.0 + dot(gain, x, n), error = target - dot(s->weight, x, n);
    if (!(total >= 1.0) || !isfinite(total) || !isfinite(error)) { /* lost by rounding */
        memset(s->cov, 0, n * n * sizeof(double));
        for (int64_t i = 0; i < n; i++)
            s->cov[i * n + i] = s->prior_var[i];
        return 0.0;
    }
    for (int64_t i = 0; i < n; i++) {
        s->weight[i] += gain[i] / total * error;
        for (int64_t k = 0; k < n; k++)
            s->cov[i * n + k] = (s->cov[i * n + k] - gain[i] * gain[k] / total) / decay;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!(s->cov[i * n + i] > s->prior_var[i]))
            continue;
        const double factor = sqrt(s->prior_var[i] / s->cov[i * n + i]);
        for (int64_t k = 0; k < n; k++) {
            s->cov[i * n + k] *= factor;
            s->cov[k * n + i] *= factor;
        }
    }
    return error;
}

static void append(double *values, int64_t rows, double value)
{
    memmove(values, values + 1, (rows - 1) * sizeof(double));
    values[rows - 1] = value;
}

/* `work` has room for 2 * order + 2 * (recent_rows + 1) numbers. */
static void learn_regression(kb_series *s, double y, double *work)
{
    const int64_t rows = s->recent_rows;
    double *c = s->counts, *last = s->recent + rows - 1, *x = work, *gain = x + s->order;
    const double decay = s->constants[CHANGE_DECAY], limit = s->constants[MAX_ERROR_SD];
    const int known = isfinite(y), ready = is_regression_ready(s);
    double value = y, error = 0.0;
    if (!known && ready) {
        forecast_regression(s, 1, &value, work);
    } else if (!known) {
        value = last[0];
    } else {
        const double change = y - last[0];
        if (ready) {
            const double sd = change_sd(s);
            regress(s, last, s->errors + rows - 1, sd, x);
            error = sd * limited(learn_weights(s, limited(change / sd, limit), x, gain), limit);
        }
        if (isfinite(change)) {
            c[KB_SERIES_CHANGES] = c[KB_SERIES_CHANGES] * decay + 1.0;
            c[KB_SERIES_CHANGE_SQUARE] *= decay;
            c[KB_SERIES_CHANGE_SQUARE] += change * change;
        }
        c[KB_SERIES_MEAN_NUMBER] = c[KB_SERIES_MEAN_NUMBER] * decay + 1.0;
        c[KB_SERIES_MEAN] += (y - c[KB_SERIES_MEAN]) / c[KB_SERIES_MEAN_NUMBER];
    }
    append(s->recent, rows, value);
    append(s->errors, rows, error);
}

/* A value whose change is so large that it may be a glitch counts as a smaller one. */
static double limit_jump(const kb_series *s, double y)
{
    const double last = s->recent[s->recent_rows - 1];
    if (!(s->counts[KB_SERIES_CHANGES] >= s->constants[MIN_JUMP_CHANGES])
        || !(s->counts[KB_SERIES_CHANGE_SQUARE] > 0.0) || last != last)
        return y;
    return last + limited(y - last, s->constants[MAX_JUMP_SD] * change_sd(s));
}

void kb_learn_series(kb_series *s, const double *y, int64_t n, int64_t steps, double *paths,
                     double *work)
{
    const double largest = s->constants[LARGEST];
    for (int64_t row = 0; row < n; row++) {
        if (steps)
            kb_forecast_series(s, steps, paths + 2 * row * steps, work);
        const double value = isfinite(y[row]) ? limit_jump(s, limited(y[row], largest)) : NAN;
        learn_smoothing(s, value);
        learn_regression(s, value, work);
    }
}
