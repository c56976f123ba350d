/* Removes information from covariances, see kbnn/model/replay.py. */
#ifndef KBNN_INFORMATION_H
#define KBNN_INFORMATION_H

#include <stdint.h>

/* P^-1 <- P0^-1 + share (P^-1 - P0^-1) for each of the blocks, packed triangles one after another;
 * `prior` holds the diagonal of P0, `column` has room for the largest dimension. */
void kb_keep_information(double *cov, const double *prior, const int64_t *dims, int64_t blocks,
                         double share, double *column);

#endif
