/* The compiled version of kbnn/model/scaler.py: running statistics and standardised values, row by row. */
#include "scale.h"

#include "target.h"

#include <float.h>
#include <math.h>

/* Rows as columns. */
static void transpose(const double *from, int64_t rows, int64_t width, double *to)
{
    for (int64_t j = 0; j < width; j++)
        for (int64_t i = 0; i < rows; i++)
            *to++ = from[i * width + j];
}

/* The statistics of columns, field by field. */
typedef struct {
    double *count, *mean, *squares, *recent, *recent_square, *center, *scale;
} fields;

static fields fields_of(double *room, int64_t width)
{
    fields f = {room, room + width, room + 2 * width, room + 3 * width, room + 4 * width,
                room + 5 * width, room + 6 * width};
    return f;
}

static double clip(double value, double low, double high)
{
    return value < low ? low : (value > high ? high : value);
}

/* Whether a value is so near the mean that it is not clipped for certain: most are, and are spared a
 * root and a division. */
static inline int is_near(const fields *f, int64_t j, double value, double reach)
{
    double gap = value - f->mean[j], square = gap * gap;
    return (square > DBL_MIN) & (square * f->count[j] < reach * f->squares[j]);
}

/* One value through its column's statistics; returns it standardised. */
static double scale_value(const fields *f, int64_t j, double value, double reach, int *restless,
                          const kb_constants *k)
{
    if (f->count[j] == 0.0) {
        f->count[j] = 1.0;
        f->center[j] = f->mean[j] = value;
        return 0.0;
    }
    if (f->scale[j] == 0.0 && value != f->center[j])
        f->scale[j] = fabs(value - f->center[j]);
    double seen = value;
    if (f->count[j] >= k->trusted && !is_near(f, j, value, reach)) {
        double sd = sqrt(f->squares[j] / f->count[j]);
        if (sd > 0.0)
            seen = clip(value, f->mean[j] - k->winsor * sd, f->mean[j] + k->winsor * sd);
    }
    f->count[j] += 1.0;
    double delta = seen - f->mean[j];
    f->mean[j] += delta / f->count[j];
    f->squares[j] += delta * (seen - f->mean[j]);
    if (f->scale[j] == 0.0)
        return 0.0;
    double z = (value - f->center[j]) / f->scale[j], bounded = clip(z, -k->winsor, k->winsor);
    double rate = 1.0 / k->recent_rows; /* a power of two: as good as dividing */
    f->recent[j] += (bounded - f->recent[j]) * rate;
    f->recent_square[j] += (bounded * bounded - f->recent_square[j]) * rate;
    *restless |= f->recent_square[j] > k->outgrown;
    return z;
}

/* The same for columns of which all have a scale and all values are near: side by side. */
static int scale_near(const fields *f, const double *restrict x, double *restrict z, int64_t width,
                      const kb_constants *k)
{
    double *restrict count = f->count, *restrict mean = f->mean, *restrict squares = f->squares;
    double *restrict recent = f->recent, *restrict square = f->recent_square;
    const double *restrict center = f->center, *restrict scale = f->scale;
    double rate = 1.0 / k->recent_rows, most = k->winsor, largest = 0.0;
    for (int64_t j = 0; j < width; j++) {
        double delta = x[j] - mean[j];
        count[j] += 1.0;
        mean[j] += delta / count[j];
        squares[j] += delta * (x[j] - mean[j]);
        z[j] = (x[j] - center[j]) / scale[j];
        double bounded = z[j] < -most ? -most : z[j];
        bounded = bounded > most ? most : bounded;
        recent[j] += (bounded - recent[j]) * rate;
        square[j] += (bounded * bounded - square[j]) * rate;
        largest = square[j] > largest ? square[j] : largest;
    }
    return largest > k->outgrown;
}

static int all_near(const fields *f, const double *x, int64_t width, double reach)
{
    int64_t far = 0;
    for (int64_t j = 0; j < width; j++)
        far |= !is_near(f, j, x[j], reach);
    return !far;
}

/* Whether all columns have a scale and are known well enough to tell what is near. */
static int all_known(const fields *f, int64_t width, const double *fixed, const kb_constants *k)
{
    for (int64_t j = 0; j < width; j++)
        if (fixed[j] != 0.0 || f->scale[j] == 0.0 || f->count[j] < k->trusted)
            return 0;
    return 1;
}

/* Whether a column that has been constant varies with one of these values, and gets a scale. */
static int varies(const fields *f, const double *values, int64_t width, const double *fixed)
{
    for (int64_t j = 0; j < width; j++)
        if (f->scale[j] == 0.0 && f->count[j] != 0.0 && fixed[j] == 0.0 && isfinite(values[j])
            && values[j] != f->center[j])
            return 1;
    return 0;
}

KB_WIDER static int64_t scale_rows(const fields *ofy, const fields *ofx, int64_t targets, int64_t inputs,
                          const double *y, const double *x, double *labels, double *z, int64_t rows,
                          const double *fixed, int *outgrown, const kb_constants *k)
{
    int constant = 0, known = all_known(ofx, inputs, fixed + targets, k);
    double reach = 0.9 * k->winsor * k->winsor;
    for (int64_t j = 0; j < targets; j++)
        constant |= ofy->scale[j] == 0.0;
    for (int64_t j = 0; j < inputs; j++)
        constant |= ofx->scale[j] == 0.0;
    for (int64_t row = 0; row < rows; row++, y += targets, labels += targets, x += inputs, z += inputs) {
        int restless = 0;
        if (constant && row
            && (varies(ofy, y, targets, fixed) || varies(ofx, x, inputs, fixed + targets)))
            return row;
        for (int64_t j = 0; j < targets; j++)
            labels[j] = fixed[j] != 0.0 || !isfinite(y[j])
                            ? y[j]
                            : scale_value(ofy, j, y[j], reach, &restless, k);
        if (known && all_near(ofx, x, inputs, reach)) {
            restless |= scale_near(ofx, x, z, inputs, k);
        } else {
            for (int64_t j = 0; j < inputs; j++) {
                if (fixed[targets + j] != 0.0)
                    z[j] = x[j];
                else if (!isfinite(x[j]))
                    z[j] = isnan(x[j]) && ofx->count[j] == 0.0 ? 0.0 : x[j];
                else
                    z[j] = scale_value(ofx, j, x[j], reach, &restless, k);
            }
            known = all_known(ofx, inputs, fixed + targets, k);
        }
        if (restless) {
            *outgrown = 1;
            return row + 1;
        }
    }
    return rows;
}

int64_t kb_scale_rows(double *columns, int64_t targets, int64_t inputs, const double *y,
                      const double *x, double *labels, double *z, int64_t rows,
                      const double *fixed, int *outgrown, double *room, const kb_constants *k)
{
    fields ofy = fields_of(room, targets);
    fields ofx = fields_of(room + KB_COLUMN_FIELDS * targets, inputs);
    *outgrown = 0;
    transpose(columns, targets, KB_COLUMN_FIELDS, ofy.count);
    transpose(columns + KB_COLUMN_FIELDS * targets, inputs, KB_COLUMN_FIELDS, ofx.count);
    int64_t done = scale_rows(&ofy, &ofx, targets, inputs, y, x, labels, z, rows, fixed, outgrown, k);
    transpose(ofy.count, KB_COLUMN_FIELDS, targets, columns);
    transpose(ofx.count, KB_COLUMN_FIELDS, inputs, columns + KB_COLUMN_FIELDS * targets);
    return done;
}
