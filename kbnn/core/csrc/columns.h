/* Whole columns of numbers: their sums, how far they reach, and rows of several. */
#ifndef KBNN_COLUMNS_H
#define KBNN_COLUMNS_H

#include <stdint.h>

/* carry + v_1 + v_2 + ..., added in this order. */
double kb_total(double carry, const double *v, int64_t count);

enum { KB_LARGE = 1, KB_SMALL = 2 };

/* Whether a value is larger than the largest that is wanted, or closer to 0 than the smallest and not
 * 0; a missing one is neither. */
int kb_beyond(const double *v, int64_t count, double smallest, double largest);

/* Columns as those of x (rows, width). */
void kb_side_by_side(const double *const *columns, int64_t width, int64_t rows, double *x);

#endif
