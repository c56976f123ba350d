/* Whole columns of numbers: their sums, their best constant, how far they reach, rows of several. */
#ifndef KBNN_COLUMNS_H
#define KBNN_COLUMNS_H

#include <stdint.h>

/* To each of the sums its column, v_1, then v_2, ... in this order. */
void kb_sum_in_order(double *sums, const double *const *columns, int64_t width, int64_t rows);

/* The best constant of numbers, see kbnn/metrics/scorecard.py: the origin, the sum of
 * weights, that of weighted differences and that of their squares about the mean. */
typedef struct {
    double origin, total, shift, spread;
} kb_constant;

/* Counts more numbers, cut to +-limit; `first`: there were none. */
void kb_update_constant(kb_constant *constant, int first, const double *y, const double *weight,
                       int64_t rows, double limit);

enum { KB_LARGE = 1, KB_SMALL = 2 };

/* Whether a value is larger than the largest that is wanted, or closer to 0 than the smallest and not
 * 0; a missing one is neither. */
int kb_exceeds_limits(const double *v, int64_t count, double smallest, double largest);

/* Columns as those of x (rows, width). */
void kb_stack_columns(const double *const *columns, int64_t width, int64_t rows, double *x);

#endif
