/* Running statistics of one column, and the function that moves them. */
#ifndef KBNN_SCALE_H
#define KBNN_SCALE_H

#include "kernel.h"

#include <stdint.h>

enum { KB_COUNT, KB_MEAN, KB_SQUARES, KB_RECENT, KB_RECENT_SQUARE, KB_CENTER, KB_SCALE,
       KB_COLUMN_FIELDS };

/* Standardises targets y and inputs x of rows in order and counts them into the statistics (targets
 * first), up to and including the first row after which a column has outgrown its scale, or to the row,
 * after the first, at which a constant column varies; returns how many rows were done. What no row has had yet is 0 in z, and stays missing among the labels.
 * `room` is for as many numbers as `columns`. */
int64_t kb_scale_rows(double *columns, int64_t targets, int64_t inputs, const double *y,
                      const double *x, double *labels, double *z, int64_t rows,
                      const double *fixed, int *outgrown, double *room, const kb_constants *k);

#endif
