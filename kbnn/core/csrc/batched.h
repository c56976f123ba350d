/* Batched models, each a row of numbers with the layout of kbnn/fleet/packing.py: rows of many models
 * are learned in one call. */
#ifndef KBNN_BATCHED_H
#define KBNN_BATCHED_H

#include "kernel.h"

#include <stdint.h>

/* Counts of a model, see kbnn/fleet/packing.py. */
enum { KB_OF_SEEN, KB_OF_CHANGES, KB_OF_MET, KB_OF_SKIPPED, KB_OF_LET_GO, KB_OF_KEPT, KB_OF_SCORED,
       KB_OF_UNSCORED, KB_OF_INVALID, KB_OF_CURVE };

/* Fields of a row in the replay buffer, followed by its inputs. */
enum { KB_KEPT_Y, KB_KEPT_WEIGHT, KB_KEPT_NUMBER, KB_KEPT_TRUST, KB_KEPT_X };

/* Offsets of the parts of a model, after its state, and some lengths. */
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

/* In the order of the rows; outputs of rows that are left alone are not written. */
typedef struct {
    double *mean, *sd, *function_sd, *noise_sd, *outlier, *stated, *judged;
    int64_t *status;
    unsigned char *done;
} kb_batched_outputs;

/* Scale, predict, learn, calibrate, buffer and score each row exactly as a single model would. A row
 * that needs anything else is left alone, with all later rows of its model. */
int kb_batched_learn(kb_session **session, const kb_net *net, const kb_packed_layout *form, const kb_learn_options *manner,
                  double *models, const kb_batched_rows *rows, const kb_batched_outputs *said);

/* Add scored rows to the records of their models: terms (rows, summed) of the sums, of which `drawn`
 * are also summed since the last point of the learning curve, and the best constant. */
void kb_batched_count(const kb_packed_layout *form, double *models, int64_t rows, const int64_t *at,
                   const double *terms, const int64_t *drawn, const int64_t *bin, const double *y,
                   const kb_constants *k);

#endif
