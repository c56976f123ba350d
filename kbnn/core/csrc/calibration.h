/* Calibrated predictive distributions: a mixture of ordinary values and outliers, and intervals that
 * are calibrated online. The fields are those of kbnn/distributions/calibration.py. */
#ifndef KBNN_CALIBRATION_H
#define KBNN_CALIBRATION_H

#include "kernel.h"

#include <stdint.h>

enum { KB_LEVELS = 4 }; /* calibrated central intervals */

/* Calibration state of one target. */
enum { KB_OUTLIERS, KB_AMONG, KB_EXTREMES, KB_EXTREME_SQUARES, KB_EXTREME_MEAN, KB_WIDTH_FACTOR,
       KB_TAIL_SEEN, KB_MOST_SEEN, KB_VALUE_MEAN, KB_VALUE_VAR, KB_SPREAD_VAR, KB_TAIL_SHARE,
       KB_TAIL_RATIO, KB_TAIL_SHIFT, KB_GAINS, KB_MEAN_GAINS = KB_GAINS + 2 * KB_LEVELS,
       KB_MEAN_WIDTH = KB_MEAN_GAINS + 2 * KB_LEVELS, KB_TAIL_UNIT, KB_CALIBRATION_FIELDS };

/* Parameters of one row's predictive distribution. */
enum { KB_PLACE, KB_SPREAD, KB_SHARE, KB_RATIO, KB_SHIFT, KB_EDGE_GAINS,
       KB_MOST = KB_EDGE_GAINS + 2 * KB_LEVELS, KB_KIND, KB_UNIT, KB_NONE,
       KB_PARAM_COUNT };

/* Scores of a row, see kb_score_rows. */
enum { KB_NLL, KB_CRPS, KB_BELOW, KB_SCORE, KB_LOWER, KB_UPPER, KB_INSIDE,
       KB_SCORE_FIELDS = KB_INSIDE + KB_LEVELS };

/* Write distributions (rows, targets, KB_PARAM_COUNT) from means and standard deviations, and update
 * the calibration state `tails` (targets, KB_CALIBRATION_FIELDS) with each y after its prediction: with
 * `mix` the mixture, with `track` the gains of the intervals. */
void kb_update_calibration(double *tails, int64_t targets, int64_t rows, const double *mean,
                     const double *sd, const double *y, int mix, int track, double *stated,
                     const kb_constants *k);

/* Network outputs (rows, targets), and center and scale of each target. */
typedef struct {
    const double *mean, *function_var, *noise_var, *center, *scale;
} kb_network_outputs;

/* Calibrated predictions: distribution, location and spread, and the two parts of the spread. */
typedef struct {
    double *stated, *mean, *sd, *function_sd, *noise_sd;
} kb_calibrated;

/* In the units of the targets; without y the state is frozen, and its averages are used. */
void kb_calibrate_outputs(double *tails, int64_t targets, int64_t rows, const kb_network_outputs *said, const double *y,
                 int mix, int track, kb_calibrated *told, const kb_constants *k);

/* Counts of one target with mu and 1/alpha in the distributions (rows, KB_PARAM_COUNT): write outlier
 * share and dispersion into them, and update both with y (NaN: not observed). */
void kb_update_count_mixture(double *tail, int64_t rows, const double *y, double *stated,
                   const kb_constants *k);

/* Then write gains and largest count, and update them with y, its randomised PIT u and the predicted
 * probability of 0. */
void kb_update_count_intervals(double *tail, int64_t rows, const double *y, const double *u,
                      const double *none, int track, double *stated, const kb_constants *k);

/* Edges with probability `beyond` outside each, z the normal's: calibrated, or `plain` quantiles. */
void kb_mixture_edges(const double *stated, int64_t rows, double beyond, double z, int plain, double *lower,
              double *upper, const kb_constants *k);

/* Score values y (rows,) against their distributions; (KB_SCORE_FIELDS, rows). */
void kb_score_rows(const double *y, const double *stated, int64_t rows, double *judged,
              const kb_constants *k);

#endif
