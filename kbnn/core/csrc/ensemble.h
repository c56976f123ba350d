/* Weights of the networks of an ensemble, as in kbnn/model/ensemble.py. */
#ifndef KBNN_ENSEMBLE_H
#define KBNN_ENSEMBLE_H

#include <stdint.h>

/* Memory in rows, least weight, largest advantage in nats of a row, largest squared error, and the
 * limits of a gradient. */
typedef struct {
    double window, least, advantage, square, lowest, highest;
} kb_pool_limits;

/* Follow the weights of `count` networks over rows. With targets, means and variances are (rows,
 * count, targets) and scores are not read; without, scores are (rows, count). `used` receives the
 * weights before each row; room has 2 x count numbers. */
void kb_follow_weights(int64_t rows, int64_t count, int64_t targets, const double *scores,
                       const double *mean, const double *var, const double *y, double *weight,
                       double *scale, double *benefit, double *used, double seen,
                       const kb_pool_limits *limits, double *room);

#endif
