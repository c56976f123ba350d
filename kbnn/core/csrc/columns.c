/* Whole columns of numbers. */
#include "columns.h"

#include "target.h"

#include <math.h>

double kb_total(double carry, const double *v, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        carry += v[i];
    return carry;
}

KB_WIDER int kb_beyond(const double *v, int64_t count, double smallest, double largest)
{
    int64_t large = 0, small = 0;
    for (int64_t i = 0; i < count; i++) {
        double size = fabs(v[i]);
        large |= size > largest;
        small |= (size < smallest) & (size > 0.0);
    }
    return (large ? KB_LARGE : 0) | (small ? KB_SMALL : 0);
}

void kb_side_by_side(const double *const *columns, int64_t width, int64_t rows, double *x)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            *x++ = columns[j][i];
}
