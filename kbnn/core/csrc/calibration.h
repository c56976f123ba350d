/* What is stated of a real target: a mixture of ordinary values and outliers, and intervals that are
 * kept to their promise. As in kbnn/core/tails.py, whose fields these are. */
#ifndef KBNN_CALIBRATION_H
#define KBNN_CALIBRATION_H

#include "kernel.h"

#include <stdint.h>

enum { KB_LEVELS = 4 }; /* central intervals that are tracked */

/* What is known of one target's tails. */
enum { KB_OUTLIERS, KB_AMONG, KB_EXTREMES, KB_EXTREME_SQUARES, KB_EXTREME_MEAN, KB_WIDTH_FACTOR,
       KB_TAIL_SEEN, KB_MOST_SEEN, KB_VALUE_MEAN, KB_VALUE_VAR, KB_SPREAD_VAR, KB_TAIL_SHARE,
       KB_TAIL_RATIO, KB_TAIL_SHIFT, KB_GAINS, KB_MEAN_GAINS = KB_GAINS + 2 * KB_LEVELS,
       KB_MEAN_WIDTH = KB_MEAN_GAINS + 2 * KB_LEVELS, KB_TAIL_UNIT, KB_CALIBRATION_FIELDS };

/* What is stated of one row. */
enum { KB_PLACE, KB_SPREAD, KB_SHARE, KB_RATIO, KB_SHIFT, KB_EDGE_GAINS,
       KB_MOST = KB_EDGE_GAINS + 2 * KB_LEVELS, KB_KIND, KB_UNIT, KB_NONE,
       KB_PARAM_COUNT };

/* How a row turned out, see kb_score_rows. */
enum { KB_NLL, KB_CRPS, KB_BELOW, KB_SCORE, KB_LOWER, KB_UPPER, KB_INSIDE,
       KB_SCORE_FIELDS = KB_INSIDE + KB_LEVELS };

/* States (rows, targets, KB_PARAM_COUNT) from means and standard deviations; the tails
 * (targets, KB_CALIBRATION_FIELDS) learn from each y after it was stated: with `mix` the mixture, with
 * `track` the gains of the intervals. */
void kb_update_calibration(double *tails, int64_t targets, int64_t rows, const double *mean,
                     const double *sd, const double *y, int mix, int track, double *stated,
                     const kb_constants *k);

/* What the network says of rows (rows, targets), and center and scale of each target's units. */
typedef struct {
    const double *mean, *function_var, *noise_var, *center, *scale;
} kb_network_outputs;

/* What becomes of it: what is stated, its place and spread, and the spread's two parts. */
typedef struct {
    double *stated, *mean, *sd, *function_sd, *noise_sd;
} kb_calibrated;

/* In the units of the targets; without y the tails learn no more, and state by what they were on average. */
void kb_calibrate_outputs(double *tails, int64_t targets, int64_t rows, const kb_network_outputs *said, const double *y,
                 int mix, int track, kb_calibrated *told, const kb_constants *k);

/* Counts of one target, of which mu and 1/alpha are stated (rows, KB_PARAM_COUNT): the share of
 * outliers and the width of the dispersion go into that, and follow y (NaN: not seen). */
void kb_update_count_mixture(double *tail, int64_t rows, const double *y, double *stated,
                   const kb_constants *k);

/* And then the gains and the largest count, which follow y, its place u in what was stated and the
 * stated probability of no more than 0. */
void kb_update_count_intervals(double *tail, int64_t rows, const double *y, const double *u,
                      const double *none, int track, double *stated, const kb_constants *k);

/* Edges with so much beyond each, z being the normal's: as they are kept, or `plain` as stated. */
void kb_mixture_edges(const double *stated, int64_t rows, double beyond, double z, int plain, double *lower,
              double *upper, const kb_constants *k);

/* Values y (rows,) beside what was stated of them; (KB_SCORE_FIELDS, rows). */
void kb_score_rows(const double *y, const double *stated, int64_t rows, double *judged,
              const kb_constants *k);

#endif
