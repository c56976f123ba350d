/* The predictive mixture of a real target in units of its ordinary spread, as in
 * kbnn/distributions/normal_mixture.py. */
#ifndef KBNN_MIXTURE_H
#define KBNN_MIXTURE_H

#include "calibration.h"

#include <math.h>

/* Probability beyond an interval of this level on each side. */
static inline double outside_of(int level, const kb_constants *k)
{
    const double outside[KB_LEVELS] = {k->outside_50, k->outside_80, k->outside_90, k->outside_95};
    return outside[level];
}

static inline double clip(double value, double low, double high)
{
    return value < low ? low : (value > high ? high : value);
}

/* A normal at u: its density, and the share beyond u on the side where that is small. */
typedef struct {
    double pdf, beyond;
} place;

static inline place place_of(double u)
{
    place p = {0.3989422804014327 * exp(-0.5 * u * u), 0.5 * erfc(0.7071067811865476 * fabs(u))};
    return p;
}

/* P(X <= u), or with `over` P(X >= u). */
static inline double share_of(const place *p, double u, int over)
{
    return (u > 0.0) == over ? p->beyond : 1.0 - p->beyond;
}

/* (1 - share) N(0, 1) + share N(shift, ratio). */
typedef struct {
    double share, ratio, shift, root;
} mixture;

static inline mixture mixture_of(const double *fields)
{
    mixture m = {fields[0], fields[1], fields[2], sqrt(fields[1])};
    return m;
}

/* The t with so much below it, p at most a half, z being the normal's: Halley's steps, which triple the
 * digits, guarded by the quantiles of the two parts. */
static inline double quantile(const mixture *m, double p, double z)
{
    double near = 1.0 - m->share, wide = m->shift + m->root * z;
    double low = z < wide ? z : wide, high = z < wide ? wide : z, t = z;
    for (int turn = 0; turn < 100 && m->share > 0.0; turn++) {
        double far = (t - m->shift) / m->root;
        place here = place_of(t), there = place_of(far);
        double gap = near * share_of(&here, t, 0) + m->share * share_of(&there, far, 0) - p;
        double slope = near * here.pdf + m->share * there.pdf / m->root;
        double bend = -near * t * here.pdf - m->share * far * there.pdf / m->ratio;
        double step = gap / slope, next = t - step / (1.0 - 0.5 * step * bend / slope);
        if (gap > 0.0)
            high = t;
        else
            low = t;
        double small = 1e-6 * (1.0 + fabs(t));
        if (fabs(next - t) <= small || high - low <= 1e-9 * small)
            return clip(next, low, high);
        t = next > low && next < high ? next : 0.5 * (low + high);
    }
    return t;
}

static inline mixture turned(mixture m)
{
    m.shift = -m.shift;
    return m;
}

/* What tells most values from those beyond the edges of a mixture's intervals. Of the values u on one side,
 * the upper one turned: `beyond`, below which all lie beyond the edge of a level, `within`, from which on
 * none does. */
typedef struct {
    double median, beyond[2][KB_LEVELS], within[2][KB_LEVELS], outside[KB_LEVELS];
} margins;

/* The edge of a level has p below it and lies between the quantiles of the two parts, the normal's being z.
 * Below it is u, for certain, where Phi(u) < p - s/(1 - s) (1 - p), and above where Phi(u) >= p + s/(1 - s) p,
 * s the share of outliers. Below a half quantiles are concave in p: a chord between two levels lies below
 * them, and above them further up. */
static inline margins margins_of(const mixture *m, const kb_constants *k)
{
    const double half[KB_LEVELS] = {k->half_50, k->half_80, k->half_90, k->half_95};
    double odds = m->share / (1.0 - m->share);
    margins found = {.median = quantile(m, 0.5, 0.0)};
    for (int side = 0; side < 2; side++)
        for (int level = 0; level < KB_LEVELS; level++) {
            double z = -half[level], shift = side ? -m->shift : m->shift;
            double wide = m->share > 0.0 ? shift + m->root * z : z;
            double low = z < wide ? z : wide, high = z < wide ? wide : z;
            if (level + 1 < KB_LEVELS) {
                double p = outside_of(level, k), down = p - outside_of(level + 1, k), fall = odds * (1.0 - p);
                double slope = (z + half[level + 1]) / down, chord = z - slope * fall;
                double further = z + slope * odds * p;
                low = fall <= down && chord > low ? chord : low;
                high = further < high ? further : high;
            }
            found.outside[level] = outside_of(level, k);
            found.beyond[side][level] = low;
            found.within[side][level] = high;
        }
    return found;
}

/* Whether t lies beyond the edge of an interval on its side, whose distance from the median is held by the
 * gain of that side. The edge need not be computed: t lies beyond it if t, moved towards the median by the
 * gain, has less than the nominal share beyond it. */
static inline int is_outside(const mixture *m, const margins *known, double t, const double *gains, int level)
{
    int over = t > known->median;
    double drawn = known->median + (t - known->median) / gains[over], u = over ? -drawn : drawn;
    if (u >= known->within[over][level])
        return 0;
    if (u < known->beyond[over][level])
        return 1;
    double far = (u - (over ? -m->shift : m->shift)) / m->root;
    place here = place_of(u), there = place_of(far);
    return (1.0 - m->share) * share_of(&here, u, 0) + m->share * share_of(&there, far, 0)
           < known->outside[level];
}

#endif
