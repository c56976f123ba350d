/* Intervals of predictive distributions, and scores of true values. */
#include "mixture.h"

#define KB_TARGET judge
#include "normal.h"

enum { SHOWN = 2 }; /* the level whose edges are reported, 90 % */

/* The gain of an edge that lies z from a normal's mean, between those of two levels. */
static double gain_at(const double *gains, double z, const kb_constants *k)
{
    const double known[KB_LEVELS] = {k->half_50, k->half_80, k->half_90, k->half_95};
    int after = 0;
    while (after < KB_LEVELS && known[after] < z)
        after++;
    if (after == 0)
        return gains[0];
    if (after == KB_LEVELS || known[after] == z)
        return gains[2 * (after < KB_LEVELS ? after : KB_LEVELS - 1)];
    double share = (z - known[after - 1]) / (known[after] - known[after - 1]);
    return exp((1.0 - share) * log(gains[2 * (after - 1)]) + share * log(gains[2 * after]));
}

static int is_of(const mixture *m, const double *stated)
{
    return stated[KB_SHARE] == m->share && stated[KB_RATIO] == m->ratio && stated[KB_SHIFT] == m->shift;
}

void kb_mixture_edges(const double *stated, int64_t rows, double beyond, double z, int plain, double *lower,
              double *upper, const kb_constants *k)
{
    mixture m = {-1.0, 0.0, 0.0, 0.0};
    double median = 0.0, low = 0.0, high = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        const double *s = stated + row * KB_PARAM_COUNT;
        if (!is_of(&m, s)) {
            m = mixture_of(s + KB_SHARE);
            mixture other = turned(m);
            median = quantile(&m, 0.5, 0.0);
            low = quantile(&m, beyond, -z);
            high = -quantile(&other, beyond, -z);
        }
        double under = plain ? 1.0 : gain_at(s + KB_EDGE_GAINS, z, k);
        double above = plain ? 1.0 : gain_at(s + KB_EDGE_GAINS + 1, z, k);
        lower[row] = s[KB_PLACE] + s[KB_SPREAD] * (median - (median - low) * under);
        upper[row] = s[KB_PLACE] + s[KB_SPREAD] * (median + (high - median) * above);
    }
}

/* E |N(u, 1)|. */
static double distance(const place *p, double u)
{
    return fabs(u) * (1.0 - 2.0 * p->beyond) + 2.0 * p->pdf;
}

/* E |X - X'| of two draws from a mixture. */
static double distance_of_two(const mixture *m)
{
    double share = m->share, near = 1.0 - share;
    double between = sqrt(1.0 + m->ratio), u = m->shift / between;
    place same = place_of(0.0), other = place_of(u);
    return 1.4142135623730951 * (near * near + share * share * m->root) * distance(&same, 0.0)
           + 2.0 * share * near * between * distance(&other, u);
}

/* Rows that are scored at a time, so that their normals vectorise. */
enum { SIDE_BY_SIDE = 64 };

/* Densities at u, and the shares beyond it on the side where that is small. */
typedef struct {
    double pdf[SIDE_BY_SIDE], beyond[SIDE_BY_SIDE];
} places;

static void places_of(const double *u, int64_t rows, places *p)
{
    for (int64_t i = 0; i < rows; i++) {
        normal_t_judge n = normal_judge(-fabs(u[i]));
        p->pdf[i] = n.pdf;
        p->beyond[i] = n.cdf;
    }
}

static place at(const places *p, int64_t i)
{
    place one = {p->pdf[i], p->beyond[i]};
    return one;
}

/* The normal quantiles z of shares p of at most a half: with r = (Phi(z) - p)/N(z), Halley's steps are
 * r/(1 + z r/2), and a step leaves the cube of the error. The search begins at -|t|, whose places are
 * known, where that is not far. */
static void normal_scores(const double *p, const double *t, places here, int64_t rows, double *z,
                          const kb_constants *k)
{
    int done[SIDE_BY_SIDE];
    for (int64_t i = 0; i < rows; i++) {
        done[i] = !(p[i] > k->tiny);
        z[i] = done[i] ? -k->farthest_score : -fabs(t[i]);
        if (done[i] || z[i] > -3.0)
            continue;
        z[i] = p[i] > 0.1 ? 2.5 * (p[i] - 0.5) : -sqrt(-2.0 * log(p[i]));
        place there = place_of(z[i]);
        here.pdf[i] = there.pdf;
        here.beyond[i] = there.beyond;
    }
    for (int turn = 0, left = 1; turn < 40 && left; turn++) {
        if (turn)
            places_of(z, rows, &here);
        left = 0;
        for (int64_t i = 0; i < rows; i++) {
            double r = (here.beyond[i] - p[i]) / here.pdf[i], step = r / (1.0 + 0.5 * z[i] * r);
            z[i] = done[i] ? z[i] : clip(z[i] - step, -37.2, 0.0);
            done[i] |= fabs(step) * (1.0 + fabs(z[i])) <= 1e-5;
            left |= !done[i];
        }
    }
}

/* -log of a density at t too small to be a number, of either part. */
static double far_nll(const mixture *m, double t, double far)
{
    double a = log1p(-m->share) - 0.5 * t * t;
    double b = m->share > 0.0 ? log(m->share / m->root) - 0.5 * far * far : a;
    double most = a > b ? a : b, least = a > b ? b : a;
    return 0.9189385332046727 - most - (m->share > 0.0 ? log1p(exp(least - most)) : 0.0);
}

/* A mixture, and what all rows with this mixture share. */
typedef struct {
    mixture m;
    margins known;
    double apart, low, high;
} shape;

static shape shape_of(const double *stated, const kb_constants *k)
{
    shape s = {.m = mixture_of(stated + KB_SHARE)};
    mixture other = turned(s.m);
    s.known = margins_of(&s.m, k);
    s.low = quantile(&s.m, outside_of(SHOWN, k), -k->half_90);
    s.high = -quantile(&other, outside_of(SHOWN, k), -k->half_90);
    s.apart = distance_of_two(&s.m);
    return s;
}

/* Score a few rows of one shape; `pitch` is the distance from one field to the next. */
KB_WIDER static void judge_few(const shape *s, const double *y, const double *stated, int64_t rows, int64_t pitch,
                      double *judged, const kb_constants *k)
{
    const mixture *m = &s->m;
    double t[SIDE_BY_SIDE], far[SIDE_BY_SIDE], small[SIDE_BY_SIDE], score[SIDE_BY_SIDE];
    double near = 1.0 - m->share, median = s->known.median;
    places here, there;
    for (int64_t i = 0; i < rows; i++) {
        const double *said = stated + i * KB_PARAM_COUNT;
        t[i] = clip((y[i] - said[KB_PLACE]) / said[KB_SPREAD], -k->label_limit, k->label_limit);
        far[i] = (t[i] - m->shift) / m->root;
    }
    places_of(t, rows, &here);
    places_of(far, rows, &there);
    for (int64_t i = 0; i < rows; i++) {
        const double *said = stated + i * KB_PARAM_COUNT, *gains = said + KB_EDGE_GAINS;
        double *out = judged + i, spread = said[KB_SPREAD];
        place a = at(&here, i), b = at(&there, i);
        double height = near * a.pdf + m->share * b.pdf / m->root;
        out[KB_NLL * pitch] = height > 1e-290 ? -log(height / spread)
                                              : log(spread) + far_nll(m, t[i], far[i]);
        double crps = near * distance(&a, t[i]) + m->share * m->root * distance(&b, far[i]);
        out[KB_CRPS * pitch] = spread * (crps - 0.5 * s->apart);
        int over = t[i] >= median;
        double tail = near * share_of(&a, t[i], over) + m->share * share_of(&b, far[i], over);
        small[i] = tail < 0.5 ? tail : 0.5;
        out[KB_BELOW * pitch] = over ? 1.0 - tail : tail;
        for (int level = 0; level < KB_LEVELS; level++)
            out[(KB_INSIDE + level) * pitch] =
                !is_outside(m, &s->known, t[i], gains + 2 * level, level);
        gains += 2 * SHOWN;
        out[KB_LOWER * pitch] = said[KB_PLACE] + spread * (median - (median - s->low) * gains[0]);
        out[KB_UPPER * pitch] = said[KB_PLACE] + spread * (median + (s->high - median) * gains[1]);
    }
    normal_scores(small, t, here, rows, score, k);
    for (int64_t i = 0; i < rows; i++)
        judged[i + KB_SCORE * pitch] = t[i] >= median ? -score[i] : score[i];
}

void kb_score_rows(const double *y, const double *stated, int64_t rows, double *judged,
              const kb_constants *k)
{
    shape s = {.m = {-1.0, 0.0, 0.0, 0.0}};
    for (int64_t row = 0, few; row < rows; row += few) {
        const double *said = stated + row * KB_PARAM_COUNT;
        if (!is_of(&s.m, said))
            s = shape_of(said, k);
        for (few = 1; few < SIDE_BY_SIDE && row + few < rows; few++)
            if (!is_of(&s.m, said + few * KB_PARAM_COUNT))
                break;
        judge_few(&s, y + row, said, few, rows, judged + row, k);
    }
}
