#include "tails.h"

#include <math.h>
#include <string.h>

static const double outside[KB_LEVELS] = {0.25, 0.10, 0.05, 0.025}; /* on each side */

static double clip(double value, double low, double high)
{
    return value < low ? low : (value > high ? high : value);
}

static double cdf(double u) { return 0.5 * erfc(-0.7071067811865476 * u); }

static double pdf(double u) { return 0.3989422804014327 * exp(-0.5 * u * u); }

/* The mixture (1 - share) N(0, 1) + share N(shift, ratio), in units of the ordinary spread. */
typedef struct {
    double share, ratio, shift, root;
} mixture;

static mixture mixture_of(const double *fields)
{
    mixture m = {fields[0], fields[1], fields[2], sqrt(fields[1])};
    return m;
}

static double below(const mixture *m, double t)
{
    return (1.0 - m->share) * cdf(t) + (m->share > 0.0 ? m->share * cdf((t - m->shift) / m->root) : 0.0);
}

/* The t with so much below it, p at most a half, between the two quantiles: Halley's steps, each of
 * which makes the third power of an error of it, guarded by halving. */
static double quantile(const mixture *m, double p, double z)
{
    double wide = m->shift + m->root * z;
    double low = z < wide ? z : wide, high = z < wide ? wide : z;
    if (m->share <= 0.0)
        return z;
    double t = z;
    for (int turn = 0; turn < 100 && high > low; turn++) {
        double gap = below(m, t) - p;
        if (gap > 0.0)
            high = t;
        else
            low = t;
        double far = (t - m->shift) / m->root;
        double own = (1.0 - m->share) * pdf(t), other = m->share * pdf(far) / m->root;
        double step = gap / (own + other), bend = (t * own + far / m->root * other) / (own + other);
        double next = t - step / (1.0 + 0.5 * step * bend);
        int halved = !(next > low && next < high);
        if (halved)
            next = 0.5 * (low + high);
        if (fabs(next - t) <= (halved ? 1e-15 : 1e-6) * (1.0 + fabs(t)))
            return next;
        t = next;
    }
    return t;
}

/* Median and edges of the central intervals, in units of the spread. */
typedef struct {
    double median, low[KB_LEVELS], high[KB_LEVELS];
} edges;

static void solve_edges(const mixture *m, edges *e, const kb_constants *k)
{
    const double z[KB_LEVELS] = {k->half_50, k->half_80, k->half_90, k->half_95};
    mixture turned = *m;
    turned.shift = -m->shift;
    e->median = quantile(m, 0.5, 0.0);
    for (int level = 0; level < KB_LEVELS; level++) {
        e->low[level] = quantile(m, outside[level], -z[level]);
        e->high[level] = -quantile(&turned, outside[level], -z[level]);
    }
}

#if defined(_MSC_VER)
#define KB_OF_THREAD __declspec(thread)
#else
#define KB_OF_THREAD _Thread_local
#endif
enum { REMEMBERED = 4096 };

/* The same, but those of the last shapes are remembered: rows of many models that are stated, judged
 * for their own record and judged once more for that of all have each its shape. */
static void find_edges(const mixture *m, edges *e, const kb_constants *k)
{
    static KB_OF_THREAD struct {
        double shape[3];
        edges found;
    } known[REMEMBERED];
    double shape[3] = {m->share, m->ratio, m->shift};
    uint64_t word[3], mixed = 0;
    memcpy(word, shape, sizeof word);
    for (int i = 0; i < 3; i++)
        mixed = (mixed ^ word[i]) * 0x9E3779B97F4A7C15u;
    mixed >>= 52; /* twelve bits */
    if (!(m->share > 0.0)) {
        solve_edges(m, e, k);
        return;
    }
    if (memcmp(known[mixed].shape, shape, sizeof shape)) {
        solve_edges(m, &known[mixed].found, k);
        memcpy(known[mixed].shape, shape, sizeof shape);
    }
    *e = known[mixed].found;
}

static void refresh(double *tail, const kb_constants *k)
{
    tail[KB_TAIL_SHARE] = tail[KB_OUTLIERS] / tail[KB_AMONG];
    double any = tail[KB_SPREAD_VAR] > 0.0 ? tail[KB_VALUE_VAR] / tail[KB_SPREAD_VAR] : 0.0;
    double ratio = (tail[KB_EXTREME_SQUARES] + k->any_share * any) / tail[KB_EXTREMES];
    tail[KB_TAIL_RATIO] = clip(ratio, k->least_ratio, k->most_ratio);
    tail[KB_TAIL_SHIFT] = tail[KB_EXTREME_MEAN];
}

static int is_due(const double *tail, const kb_constants *k)
{
    double seen = tail[KB_TAIL_SEEN];
    return seen < k->tails_young || fmod(seen, k->tails_every) == 0.0;
}

/* How the share, size and place of outliers and the ordinary width follow a value. */
static void learn_tail(double *tail, const mixture *m, double t, const kb_constants *k)
{
    double far = t - m->shift;
    double odds = log((1.0 - m->share) / m->share) + 0.5 * log(m->ratio)
                  - 0.5 * (t * t - far * far / m->ratio);
    double w = 1.0 / (1.0 + exp(clip(odds, -700.0, 700.0)));
    tail[KB_OUTLIERS] += w;
    tail[KB_AMONG] += 1.0;
    if (tail[KB_AMONG] > k->tails_memory) {
        tail[KB_OUTLIERS] *= k->tails_memory / tail[KB_AMONG];
        tail[KB_AMONG] = k->tails_memory;
    }
    tail[KB_EXTREMES] += w;
    double gap = t - tail[KB_EXTREME_MEAN];
    tail[KB_EXTREME_MEAN] += w * gap / tail[KB_EXTREMES];
    tail[KB_EXTREME_SQUARES] += w * gap * (t - tail[KB_EXTREME_MEAN]);
    if (tail[KB_EXTREMES] > k->extremes_memory) {
        tail[KB_EXTREME_SQUARES] *= k->extremes_memory / tail[KB_EXTREMES];
        tail[KB_EXTREMES] = k->extremes_memory;
    }
    double square = t * t < k->width_cap ? t * t : k->width_cap;
    tail[KB_WIDTH_FACTOR] = clip(
        tail[KB_WIDTH_FACTOR] * exp(k->width_step * (1.0 - w) * (square - 1.0)), k->least_width,
        k->most_width);
}

/* Running variance of the values and mean of the stated ones. */
static void learn_sizes(double *tail, double y, double spread, const kb_constants *k)
{
    double seen = tail[KB_TAIL_SEEN] + 1.0;
    double rate = 1.0 / (seen < k->tails_memory ? seen : k->tails_memory);
    double reach = k->tails_reach * spread, gap = clip(y - tail[KB_VALUE_MEAN], -reach, reach);
    tail[KB_VALUE_MEAN] += rate * gap;
    tail[KB_VALUE_VAR] += rate * ((1.0 - rate) * gap * gap - tail[KB_VALUE_VAR]);
    tail[KB_SPREAD_VAR] += rate * (spread * spread - tail[KB_SPREAD_VAR]);
}

/* The edges move out by a little where a value lay beyond, and in by less where it did not. */
static void track(double *gains, const edges *e, double t, const double (*factors)[2],
                  const kb_constants *k)
{
    for (int level = 0; level < KB_LEVELS; level++) {
        double *gain = gains + 2 * level;
        int under = t < e->median - (e->median - e->low[level]) * gain[0];
        int over = t > e->median + (e->high[level] - e->median) * gain[1];
        gain[0] = clip(gain[0] * factors[level][under], k->least_gain, k->most_gain);
        gain[1] = clip(gain[1] * factors[level][over], k->least_gain, k->most_gain);
    }
}

/* What gains and width have been on average, 1 for some rows before the first: a model that learns no more
 * goes by that. */
static void average(double *tail, const kb_constants *k)
{
    double seen = tail[KB_TAIL_SEEN] + 1.0 + k->tails_young;
    double rate = 1.0 / (seen < k->tails_memory ? seen : k->tails_memory);
    for (int at = 0; at < 2 * KB_LEVELS; at++)
        tail[KB_MEAN_GAINS + at] += rate * (tail[KB_GAINS + at] - tail[KB_MEAN_GAINS + at]);
    tail[KB_MEAN_WIDTH] += rate * (tail[KB_WIDTH_FACTOR] - tail[KB_MEAN_WIDTH]);
}

void kb_follow_tails(double *tails, int64_t targets, int64_t rows, const double *mean,
                     const double *sd, const double *y, int mix, int tracked, double *stated,
                     const kb_constants *k)
{
    double factors[KB_LEVELS][2];
    for (int level = 0; level < KB_LEVELS; level++)
        for (int missed = 0; missed < 2; missed++)
            factors[level][missed] = exp(k->track_step * (missed - outside[level]));
    for (int64_t j = 0; j < targets; j++) {
        double *tail = tails + j * KB_TAIL_FIELDS;
        mixture m = mixture_of(tail + KB_TAIL_SHARE);
        edges e;
        int known = 0;
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = row * targets + j;
            double *out = stated + at * KB_STATED_FIELDS;
            if (mix && isfinite(y[at]) && is_due(tail, k)) {
                refresh(tail, k);
                m = mixture_of(tail + KB_TAIL_SHARE);
                known = 0;
            }
            double spread = sqrt(tail[KB_WIDTH_FACTOR]) * sd[at];
            out[KB_PLACE] = mean[at];
            out[KB_SPREAD] = spread;
            memcpy(out + KB_SHARE, tail + KB_TAIL_SHARE, (3 + 2 * KB_LEVELS) * sizeof(double));
            out[KB_MOST] = tail[KB_MOST_SEEN];
            out[KB_KIND] = 0.0;
            if (!isfinite(y[at]))
                continue;
            double t = clip((y[at] - mean[at]) / spread, -k->tails_reach, k->tails_reach);
            if (!isfinite(t))
                continue;
            if (!known && tracked) {
                find_edges(&m, &e, k);
                known = 1;
            }
            if (mix) {
                learn_tail(tail, &m, t, k);
                learn_sizes(tail, y[at], spread, k);
            }
            if (tracked)
                track(tail + KB_GAINS, &e, t, factors, k);
            average(tail, k);
            tail[KB_TAIL_SEEN] += 1.0;
            if (y[at] > tail[KB_MOST_SEEN])
                tail[KB_MOST_SEEN] = y[at];
        }
    }
}

/* The gains of a count's intervals. Where the lower edge is 0 nothing lies below it, and the upper
 * one leaves out both shares. */
static void track_count(double *gains, double u, double none, const kb_constants *k)
{
    const double z[KB_LEVELS] = {k->half_50, k->half_80, k->half_90, k->half_95};
    const double one_sided[KB_LEVELS] = {0.0, k->half_60, k->half_80, k->half_90};
    for (int level = 0; level < KB_LEVELS; level++) {
        double *gain = gains + 2 * level, low = cdf(-z[level] * gain[0]);
        int from_zero = none >= low;
        double half = from_zero ? one_sided[level] : z[level];
        double beyond = from_zero ? 2.0 * outside[level] : outside[level];
        if (half > 0.0)
            gain[1] = clip(gain[1] * exp(k->track_step * ((u > cdf(half * gain[1])) - beyond)),
                           k->least_gain, k->most_gain);
        if (!from_zero)
            gain[0] = clip(gain[0] * exp(k->track_step * ((u < low) - outside[level])),
                           k->least_gain, k->most_gain);
    }
}

void kb_follow_counts(double *tail, int64_t rows, const double *y, const double *u,
                      const double *none, int tracked, double *stated, const kb_constants *k)
{
    for (int64_t row = 0; row < rows; row++) {
        double *out = stated + row * KB_STATED_FIELDS;
        memcpy(out + KB_EDGE_GAINS, tail + KB_GAINS, 2 * KB_LEVELS * sizeof(double));
        out[KB_MOST] = tail[KB_MOST_SEEN];
        if (isnan(y[row]))
            continue;
        if (tracked)
            track_count(tail + KB_GAINS, u[row], none[row], k);
        average(tail, k);
        tail[KB_TAIL_SEEN] += 1.0;
        if (y[row] > tail[KB_MOST_SEEN])
            tail[KB_MOST_SEEN] = y[row];
    }
}

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

void kb_edges(const double *stated, int64_t rows, double beyond, double z, int plain, double *lower,
              double *upper, const kb_constants *k)
{
    mixture m = {-1.0, 0.0, 0.0, 0.0};
    double median = 0.0, low = 0.0, high = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        const double *s = stated + row * KB_STATED_FIELDS;
        if (s[KB_SHARE] != m.share || s[KB_RATIO] != m.ratio || s[KB_SHIFT] != m.shift) {
            m = mixture_of(s + KB_SHARE);
            mixture turned = m;
            turned.shift = -m.shift;
            median = quantile(&m, 0.5, 0.0);
            low = quantile(&m, beyond, -z);
            high = -quantile(&turned, beyond, -z);
        }
        double below = plain ? 1.0 : gain_at(s + KB_EDGE_GAINS, z, k);
        double above = plain ? 1.0 : gain_at(s + KB_EDGE_GAINS + 1, z, k);
        lower[row] = s[KB_PLACE] + s[KB_SPREAD] * (median - (median - low) * below);
        upper[row] = s[KB_PLACE] + s[KB_SPREAD] * (median + (high - median) * above);
    }
}

/* E |N(x, s^2)|. */
static double distance(double x, double s)
{
    return x * (2.0 * cdf(x / s) - 1.0) + 2.0 * s * pdf(x / s);
}

/* The normal quantile of a share p of at most a half: Newton on its logarithm. */
static double normal_score(double p, double guess)
{
    if (!(p > 1e-300))
        return -37.0;
    double z = guess < 0.0 && guess > -3.0 ? guess : (p > 0.1 ? 2.5 * (p - 0.5) : -sqrt(-2.0 * log(p)));
    for (int turn = 0; turn < 12; turn++) {
        double here = cdf(z), step = here / pdf(z) * log(here / p);
        z -= step;
        if (fabs(step) <= 1e-13 * (1.0 + fabs(z)))
            break;
    }
    return z;
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
        if (s[KB_SHARE] != m.share || s[KB_RATIO] != m.ratio || s[KB_SHIFT] != m.shift) {
            m = mixture_of(s + KB_SHARE);
            find_edges(&m, &e, k);
            apart = (1.0 - m.share) * (1.0 - m.share) * distance(0.0, sqrt(2.0));
            if (m.share > 0.0)
                apart += m.share * m.share * distance(0.0, sqrt(2.0 * m.ratio))
                         + 2.0 * m.share * (1.0 - m.share) * distance(m.shift, sqrt(1.0 + m.ratio));
        }
        double t = clip((y[row] - s[KB_PLACE]) / spread, -k->label_limit, k->label_limit);
        double far = (t - m.shift) / m.root;
        double near_log = log1p(-m.share) - 0.5 * t * t, most = near_log, sum = 1.0;
        if (m.share > 0.0) {
            double far_log = log(m.share) - log(m.root) - 0.5 * far * far;
            most = near_log > far_log ? near_log : far_log;
            sum = exp(near_log - most) + exp(far_log - most);
        }
        out[KB_NLL * rows] = log(spread) + 0.9189385332046727 - most - log(sum);
        double crps = (1.0 - m.share) * distance(t, 1.0)
                      + (m.share > 0.0 ? m.share * distance(t - m.shift, m.root) : 0.0);
        out[KB_CRPS * rows] = spread * (crps - 0.5 * apart);
        mixture turned = m;
        turned.shift = -m.shift;
        double tail = t < e.median ? below(&m, t) : below(&turned, -t);
        double score = normal_score(tail < 0.5 ? tail : 0.5, -fabs(t));
        out[KB_BELOW * rows] = t < e.median ? tail : 1.0 - tail;
        out[KB_SCORE * rows] = t < e.median ? score : -score;
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
