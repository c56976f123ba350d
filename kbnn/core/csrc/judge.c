/* Intervals of what was stated, and values that came true beside it. */
#include "mixture.h"

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

void kb_edges(const double *stated, int64_t rows, double beyond, double z, int plain, double *lower,
              double *upper, const kb_constants *k)
{
    mixture m = {-1.0, 0.0, 0.0, 0.0};
    double median = 0.0, low = 0.0, high = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        const double *s = stated + row * KB_STATED_FIELDS;
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

/* The normal quantile z of a share p of at most a half: with r = (Phi(z) - p)/N(z), Halley's steps are
 * r/(1 + z r/2), and a step leaves the cube of the error. The search begins at -|t|, whose place is known,
 * where that is not far. */
static double normal_score(double p, double t, place here)
{
    if (!(p > 1e-300))
        return -37.0;
    double z = -fabs(t);
    if (z <= -3.0) {
        z = p > 0.1 ? 2.5 * (p - 0.5) : -sqrt(-2.0 * log(p));
        here = place_of(z);
    }
    for (int turn = 0; turn < 40; turn++) {
        double r = (here.beyond - p) / here.pdf, step = r / (1.0 + 0.5 * z * r);
        z = clip(z - step, -37.2, 0.0);
        if (fabs(step) * (1.0 + fabs(z)) <= 1e-5)
            break;
        here = place_of(z);
    }
    return z;
}

/* -log of a density at t too small to be a number, of either part. */
static double far_nll(const mixture *m, double t, double far)
{
    double a = log1p(-m->share) - 0.5 * t * t;
    double b = m->share > 0.0 ? log(m->share / m->root) - 0.5 * far * far : a;
    double most = a > b ? a : b, least = a > b ? b : a;
    return 0.9189385332046727 - most - (m->share > 0.0 ? log1p(exp(least - most)) : 0.0);
}

void kb_judge(const double *y, const double *stated, int64_t rows, double *judged,
              const kb_constants *k)
{
    mixture m = {-1.0, 0.0, 0.0, 0.0};
    edges e = {0};
    double apart = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        const double *s = stated + row * KB_STATED_FIELDS;
        double *out = judged + row, spread = s[KB_SPREAD];
        if (!is_of(&m, s)) {
            m = mixture_of(s + KB_SHARE);
            e = edges_of(&m, k);
            apart = distance_of_two(&m);
        }
        double t = clip((y[row] - s[KB_PLACE]) / spread, -k->label_limit, k->label_limit);
        double far = (t - m.shift) / m.root, near = 1.0 - m.share;
        place here = place_of(t), there = place_of(far);
        double height = near * here.pdf + m.share * there.pdf / m.root;
        out[KB_NLL * rows] = height > 1e-290 ? -log(height / spread) : log(spread) + far_nll(&m, t, far);
        double crps = near * distance(&here, t) + m.share * m.root * distance(&there, far);
        out[KB_CRPS * rows] = spread * (crps - 0.5 * apart);
        int over = t >= e.median;
        double tail = near * share_of(&here, t, over) + m.share * share_of(&there, far, over);
        double score = normal_score(tail < 0.5 ? tail : 0.5, t, here);
        out[KB_BELOW * rows] = over ? 1.0 - tail : tail;
        out[KB_SCORE * rows] = over ? -score : score;
        for (int level = 0; level < KB_LEVELS; level++) {
            double low = e.median - (e.median - e.low[level]) * s[KB_EDGE_GAINS + 2 * level];
            double high = e.median + (e.high[level] - e.median) * s[KB_EDGE_GAINS + 2 * level + 1];
            out[(KB_INSIDE + level) * rows] = t >= low && t <= high;
            if (level == 2) {
                out[KB_LOWER * rows] = s[KB_PLACE] + spread * low;
                out[KB_UPPER * rows] = s[KB_PLACE] + spread * high;
            }
        }
    }
}
