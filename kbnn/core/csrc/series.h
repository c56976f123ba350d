/* Exponential smoothing and an autoregression of one series, see kbnn/core/series_models.py. */
#ifndef KBNN_SERIES_H
#define KBNN_SERIES_H

#include <stdint.h>

/* Places in `counts`. */
enum { KB_SERIES_ROWS, KB_SERIES_KNOWN, KB_SERIES_SCORED, KB_SERIES_NONPOSITIVE,
       KB_SERIES_SEASON_READY, KB_SERIES_CHANGES, KB_SERIES_CHANGE_SQUARE, KB_SERIES_MEAN_NUMBER,
       KB_SERIES_MEAN, KB_SERIES_COUNTS };

/* A rule of exponential smoothing. */
typedef struct {
    double alpha, beta, phi, gamma, uses_log;
} kb_smoothing_rule;

typedef struct {
    int64_t season, rules, seasonal_rules, lags, order, recent_rows;
    const kb_smoothing_rule *rule;
    const double *constants; /* half-life decays of squares, changes; evidence power, limit; largest
                              * error in sds; least weight of a rule; largest value; largest jump
                              * in sds of changes, and changes before it is known */
    const double *prior_var; /* of the weights of the autoregression, (order,) */
    double *counts, *start, *level, *trend, *square, *seasonal, *weight, *cov, *recent, *errors;
} kb_series;

/* Learn n values; before each, forecast `steps` steps by both models: paths (n, 2, steps).
 * `work` has room for 2 * order + rules + 2 * (recent_rows + steps + 1) numbers. */
void kb_learn_series(kb_series *series, const double *y, int64_t n, int64_t steps, double *paths,
                     double *work);

/* Forecast some steps: path (2, steps). */
void kb_forecast_series(const kb_series *series, int64_t steps, double *path, double *work);

#endif
