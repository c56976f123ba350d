/* The compiled twin of kbnn/model/scaling.py: running statistics and standardised values, row by row. */
#include "scale.h"

#include <float.h>
#include <math.h>

static double clip(double value, double low, double high)
{
    return value < low ? low : (value > high ? high : value);
}

/* Whether a value is so near the mean that it is not clipped for certain: most are, and are spared a
 * root and a division. */
static int is_near(const double *c, double value, const kb_constants *k)
{
    double gap = value - c[KB_MEAN], square = gap * gap;
    return square > DBL_MIN && square * c[KB_COUNT] < 0.9 * k->winsor * k->winsor * c[KB_SQUARES];
}

/* One value through its column's statistics; returns it standardised. */
static inline double kb_scale_value(double *c, double value, const kb_constants *k,
                                    int64_t *restless)
{
    if (c[KB_COUNT] == 0.0) {
        c[KB_COUNT] = 1.0;
        c[KB_CENTER] = c[KB_MEAN] = value;
        return 0.0;
    }
    if (c[KB_SCALE] == 0.0 && value != c[KB_CENTER])
        c[KB_SCALE] = fabs(value - c[KB_CENTER]);
    double seen = value;
    if (c[KB_COUNT] >= k->trusted && !is_near(c, value, k)) {
        double sd = sqrt(c[KB_SQUARES] / c[KB_COUNT]);
        if (sd > 0.0)
            seen = clip(value, c[KB_MEAN] - k->winsor * sd, c[KB_MEAN] + k->winsor * sd);
    }
    c[KB_COUNT] += 1.0;
    double delta = seen - c[KB_MEAN];
    c[KB_MEAN] += delta / c[KB_COUNT];
    c[KB_SQUARES] += delta * (seen - c[KB_MEAN]);
    if (c[KB_SCALE] == 0.0)
        return 0.0;
    double z = (value - c[KB_CENTER]) / c[KB_SCALE], bounded = clip(z, -k->winsor, k->winsor);
    double rate = 1.0 / k->recent_rows; /* a power of two: as good as dividing */
    c[KB_RECENT] += (bounded - c[KB_RECENT]) * rate;
    c[KB_RECENT_SQUARE] += (bounded * bounded - c[KB_RECENT_SQUARE]) * rate;
    if (c[KB_RECENT_SQUARE] > k->outgrown)
        *restless = 1;
    return z;
}

/* Whether a column that has been constant varies with one of these values, and gets a scale. */
static int varies(const double *columns, const double *values, int64_t width, const double *fixed)
{
    for (int64_t j = 0; j < width; j++) {
        const double *c = columns + j * KB_COLUMN_FIELDS;
        if (c[KB_SCALE] == 0.0 && c[KB_COUNT] != 0.0 && fixed[j] == 0.0 && isfinite(values[j])
            && values[j] != c[KB_CENTER])
            return 1;
    }
    return 0;
}

int64_t kb_scale_rows(double *columns, int64_t targets, int64_t inputs, const double *y,
                      const double *x, double *labels, double *z, int64_t rows,
                      const double *fixed, int *outgrown, const kb_constants *k)
{
    int constant = 0;
    for (int64_t j = 0; j < targets + inputs; j++)
        constant |= columns[j * KB_COLUMN_FIELDS + KB_SCALE] == 0.0;
    *outgrown = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t restless = 0;
        double *c = columns;
        if (constant && row
            && (varies(columns, y + row * targets, targets, fixed)
                || varies(columns + targets * KB_COLUMN_FIELDS, x + row * inputs, inputs,
                          fixed + targets)))
            return row;
        for (int64_t j = 0; j < targets; j++, c += KB_COLUMN_FIELDS) {
            double value = y[row * targets + j];
            labels[row * targets + j] = fixed[j] != 0.0 || !isfinite(value)
                                            ? value
                                            : kb_scale_value(c, value, k, &restless);
        }
        for (int64_t j = 0; j < inputs; j++, c += KB_COLUMN_FIELDS) {
            double value = x[row * inputs + j], *to = z + row * inputs + j;
            if (fixed[targets + j] != 0.0)
                *to = value;
            else if (!isfinite(value))
                *to = isnan(value) && c[KB_COUNT] == 0.0 ? 0.0 : value;
            else
                *to = kb_scale_value(c, value, k, &restless);
        }
        if (restless) {
            *outgrown = 1;
            return row + 1;
        }
    }
    return rows;
}
