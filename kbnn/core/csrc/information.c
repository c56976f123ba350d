/* Removes information from covariances. */
#include "information.h"

#include "target.h"

/* No fused operations: numpy rounds after every step. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

/* Q = P/share learns every weight once more, measured at its prior mean with the variance
 * P0/(1 - share): a rank-1 update for each weight. */
static void keep_in_block(double *cov, const double *prior, int64_t dim, double share,
                          double *restrict column)
{
    for (int64_t k = 0; k < dim * (dim + 1) / 2; k++)
        cov[k] /= share;
    for (int64_t i = 0; i < dim; i++) {
        double *restrict row = cov;
        for (int64_t j = 0; j < i; row += dim - j++)
            column[j] = row[i - j];
        for (int64_t j = i; j < dim; j++)
            column[j] = row[j - i];
        double total = column[i] + prior[i] / (1.0 - share);
        row = cov;
        for (int64_t r = 0; r < dim; row += dim - r++) {
            const double factor = column[r] / total, *restrict rest = column + r;
            for (int64_t j = 0; j < dim - r; j++)
                row[j] -= factor * rest[j];
        }
    }
}

KB_WIDER void kb_keep_information(double *cov, const double *prior, const int64_t *dims,
                                  int64_t blocks, double share, double *column)
{
    for (int64_t b = 0; b < blocks; b++) {
        keep_in_block(cov, prior, dims[b], share, column);
        cov += dims[b] * (dims[b] + 1) / 2;
        prior += dims[b];
    }
}
