/* Whole columns of numbers. */
#include "columns.h"

#include "target.h"

#include <math.h>

/* No fused operations: numpy rounds after every step. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

enum { TOGETHER = 8 }; /* sums at a time, none of which waits for another */

void kb_sum_in_order(double *sums, const double *const *columns, int64_t width, int64_t rows)
{
    for (; width >= TOGETHER; width -= TOGETHER, sums += TOGETHER, columns += TOGETHER) {
        double sum[TOGETHER];
        const double *v[TOGETHER];
        for (int j = 0; j < TOGETHER; j++)
            sum[j] = sums[j], v[j] = columns[j];
        for (int64_t i = 0; i < rows; i++)
            for (int j = 0; j < TOGETHER; j++)
                sum[j] += v[j][i];
        for (int j = 0; j < TOGETHER; j++)
            sums[j] = sum[j];
    }
    for (int64_t j = 0; j < width; j++)
        for (int64_t i = 0; i < rows; i++)
            sums[j] += columns[j][i];
}

static double cut(double value, double limit)
{
    return value < -limit ? -limit : (value > limit ? limit : value);
}

void kb_update_constant(kb_constant *constant, int first, const double *y, const double *weight,
                       int64_t rows, double limit)
{
    kb_constant c = *constant;
    if (first && rows)
        c.origin = cut(y[0], limit);
    for (int64_t i = 0; i < rows; i++) {
        double w = weight[i], d = cut(y[i] - c.origin, limit);
        double before = c.total > 0.0 ? c.shift / c.total : d;
        c.total += w;
        c.shift += w * d;
        double gain = w * (d - before) * (d - c.shift / c.total);
        c.spread += gain > 0.0 ? gain : 0.0;
    }
    *constant = c;
}

KB_WIDER int kb_exceeds_limits(const double *v, int64_t count, double smallest, double largest)
{
    int64_t large = 0, small = 0;
    for (int64_t i = 0; i < count; i++) {
        double size = fabs(v[i]);
        large |= size > largest;
        small |= (size < smallest) & (size > 0.0);
    }
    return (large ? KB_LARGE : 0) | (small ? KB_SMALL : 0);
}

void kb_stack_columns(const double *const *columns, int64_t width, int64_t rows, double *x)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            *x++ = columns[j][i];
}
