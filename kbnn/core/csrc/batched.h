/* Packed models side by side, each a row of numbers as kbnn/fleet/packed.py lays it out: rows of many
 * of them are learned in one call. */
#ifndef KBNN_BATCHED_H
#define KBNN_BATCHED_H

#include "kernel.h"

#include <stdint.h>

/* What a model counts, see kbnn/fleet/packed.py. */
enum { KB_OF_SEEN, KB_OF_CHANGES, KB_OF_MET, KB_OF_SKIPPED, KB_OF_LET_GO, KB_OF_KEPT, KB_OF_SCORED,
       KB_OF_UNSCORED, KB_OF_INVALID, KB_OF_CURVE };

/* What is kept of a row, its inputs after it. */
enum { KB_KEPT_Y, KB_KEPT_WEIGHT, KB_KEPT_NUMBER, KB_KEPT_TRUST, KB_KEPT_X };

/* Where parts of a model begin, the belief being first, and how long some are. */
typedef struct {
    int64_t size, columns, tails, sums, recent, constant, pit, counts, kept;
    int64_t keep, summed, drawn, bins;
} kb_packed_layout;

/* How all learn. */
typedef struct {
    int64_t robust, tracked;
    int64_t first_refit, first_point; /* rows at whose doublings a model is left alone */
    int64_t known, of_age;            /* and the counts of rows met at which it is, too */
} kb_learn_options;

/* A row for each of some models, whose places are `at`; `order` has the rows of a model one after
 * another. Rows marked `alone` are not taken. */
typedef struct {
    int64_t rows;
    const int64_t *order, *at;
    const double *x, *y, *weight; /* weight may be NULL */
    const unsigned char *alone;
    const double *fixed;          /* columns that pass as they are, the target before the inputs */
} kb_batched_rows;

enum { KB_LEFT, KB_DONE, KB_JUDGED }; /* what became of a row */

/* In the order of the rows; what is said of one that is left alone is not touched. */
typedef struct {
    double *mean, *sd, *function_sd, *noise_sd, *outlier, *stated, *judged;
    int64_t *status;
    unsigned char *done;
} kb_batched_outputs;

/* Each row is scaled, predicted, learned, stated, kept and judged as a model alone would have it. One
 * at which anything else is due is left alone, and with it all later ones of its model. */
int kb_batched_learn(kb_session **session, const kb_net *net, const kb_packed_layout *form, const kb_learn_options *manner,
                  double *models, const kb_batched_rows *rows, const kb_batched_outputs *said);

/* Counts judged rows into the records of their models: terms (rows, summed) of the sums, of which
 * `drawn` are summed since the last point of the curve too, and the best constant. */
void kb_batched_count(const kb_packed_layout *form, double *models, int64_t rows, const int64_t *at,
                   const double *terms, const int64_t *drawn, const int64_t *bin, const double *y,
                   const kb_constants *k);

#endif
