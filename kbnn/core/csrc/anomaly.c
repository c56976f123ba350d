/* Anomaly detector, as kbnn/model/anomaly_reference.py, function by function. */
#include "anomaly.h"

#include <math.h>
#include <string.h>

enum { STATED, VALUE, UNLIKELY, SEASON, EVIDENCE, MOVEMENT };
enum { C_VALUE, C_UNLIKELY, C_SEASON, C_EVIDENCE, C_MOVEMENT, C_FLAT, C_MISSING };
enum { W_UNLIKELY, W_RESIDUAL, W_SEASON, W_MOVEMENT };
enum { NO_KIND, SPIKE, LEVEL_SHIFT, SUSTAINED, VARIANCE, FLAT_LINE, MISSING_DATA, DRIFT };
enum { NO_EVENT, OPENED, CLOSED };
enum { HELD, SEEN };
enum {
    THRESHOLD, SCALE, SHAPE, LOG_TOP, CLUSTER_THRESHOLD, EXTREMAL_INDEX, ROWS_SINCE, EXCEEDANCES,
    GAP_SUM, GAP_SQUARE_SUM, FAR_SCALE, FAR_SHAPE, FAR_LOG_TOP
};
enum {
    SEED, HAS_VALUE, ROW, LAST_VALUE, BETS, BETS_START, FLAT, FLAT_RUN, MISSING, MISSING_RUN,
    WINDOW_COUNTS, QUIET_ROWS = WINDOW_COUNTS + KB_WINDOWS, IS_OPEN, KIND, START, UNUSUAL_SUM,
    PEAK, UNUSUAL_VALUES, CHANGES
};
enum { SEASON_DAYS = 7, RING = SEASON_DAYS + 1 };

static const int SIDE_STATISTIC[KB_SIDES] = {0, 1, 1, 2, 3, 3, 4, 5, 5};
static const double SIDE_SIGN[KB_SIDES] = {1, 1, -1, 1, 1, -1, 1, 1, -1};
static const int FIRST_SIDE[KB_STATISTICS + 1] = {0, 1, 3, 4, 6, 7, 9};
static const int NEEDS_VALUE[KB_COMPONENTS] = {1, 0, 1, 0, 1, 1, 0};
static const int WINDOW_LENGTHS[KB_WINDOWS] = {50, 50, 20, 30};

typedef struct {
    double scores[KB_COMPONENTS];
    double row_nats, bet, unusual;
    int is_low;
} row_view;

typedef struct {
    double nats, score;
    int is_low;
} two_sided;

typedef struct {
    double kind, start;
} told_kind;

/* Randomness */

#define GOLDEN_RATIO UINT64_C(0x9E3779B97F4A7C15) /* its fraction times 2^64 */

static uint64_t mix_bits(uint64_t x)
{
    x += GOLDEN_RATIO;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static double hash_uniform(const kb_detector *d, int64_t row, int stream)
{
    uint64_t bits = mix_bits(mix_bits((uint64_t)d->scalars[SEED]) ^ (uint64_t)row);
    return (double)(mix_bits(bits ^ (uint64_t)stream) >> 11) * 0x1p-53;
}

/* Calibration against a history */

/* Number of sorted values below x, or up to x. */
static int64_t count_below(const double *held, int64_t m, double x, int through)
{
    int64_t low = 0, high = m;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (held[middle] < x || (through && held[middle] == x))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int is_calibrated(const kb_detector *d, int statistic)
{
    return d->counts[2 * statistic + HELD] >= d->k->calibrated_rows;
}

static double pareto_tail(double excess, double scale, double shape, double log_top)
{
    return log_top + log1p(shape * excess / scale) / shape;
}

static double calibrated_tail(const kb_detector *d, int side, double x, double u)
{
    int statistic = SIDE_STATISTIC[side];
    double sign = SIDE_SIGN[side], y = sign * x;
    const double *tail = d->tails + KB_SIDE_FIELDS * side;
    int64_t m = (int64_t)d->counts[2 * statistic + HELD];
    if (y > tail[THRESHOLD]) {
        if (tail[SCALE] <= 0.0)
            return log((double)m + 1.0);
        double near = pareto_tail(y - tail[THRESHOLD], tail[SCALE], tail[SHAPE], tail[LOG_TOP]);
        if (tail[FAR_SCALE] <= 0.0 || y <= tail[CLUSTER_THRESHOLD])
            return near;
        double far = pareto_tail(y - tail[CLUSTER_THRESHOLD], tail[FAR_SCALE], tail[FAR_SHAPE],
                                 tail[FAR_LOG_TOP]);
        return near < far ? near : far;
    }
    const double *held = d->history + statistic * d->capacity;
    int64_t below = count_below(held, m, x, 0), through = count_below(held, m, x, 1);
    double least = (double)(sign > 0.0 ? m - through : below);
    double most = (double)(sign > 0.0 ? m - below : through);
    double beyond = u < 0.0 ? most + 1.0 : least + u * (most - least + 1.0);
    return -log(beyond / ((double)m + 1.0));
}

static double score_upper(const kb_detector *d, int statistic, double x)
{
    if (!is_calibrated(d, statistic))
        return 0.0;
    int side = FIRST_SIDE[statistic];
    double theta = d->tails[KB_SIDE_FIELDS * side + EXTREMAL_INDEX];
    return calibrated_tail(d, side, x, -1.0) - log(theta);
}

static two_sided score_two_sided(const kb_detector *d, int statistic, double x)
{
    int side = FIRST_SIDE[statistic];
    double high = calibrated_tail(d, side, x, -1.0), low = calibrated_tail(d, side + 1, x, -1.0);
    double high_score = high - log(d->tails[KB_SIDE_FIELDS * side + EXTREMAL_INDEX]);
    double low_score = low - log(d->tails[KB_SIDE_FIELDS * (side + 1) + EXTREMAL_INDEX]);
    double nats = (high > low ? high : low) - log(2.0);
    double score = (high_score > low_score ? high_score : low_score) - log(2.0);
    return (two_sided){nats > 0.0 ? nats : 0.0, score, low_score > high_score};
}

static void count_exceedance(const kb_detector *d, int side, double x, int64_t held)
{
    const kb_detector_constants *k = d->k;
    double *tail = d->tails + KB_SIDE_FIELDS * side;
    tail[ROWS_SINCE] += 1.0;
    if (held < k->calibrated_rows || SIDE_SIGN[side] * x <= tail[CLUSTER_THRESHOLD])
        return;
    double gap = tail[ROWS_SINCE];
    tail[ROWS_SINCE] = 0.0;
    double n = tail[EXCEEDANCES] + 1.0, s1 = tail[GAP_SUM] + (gap - 1.0);
    double s2 = tail[GAP_SQUARE_SUM] + (gap - 1.0) * (gap - 2.0);
    if (n > k->cluster_memory) {
        double kept = k->cluster_memory / n;
        n *= kept, s1 *= kept, s2 *= kept;
    }
    double theta = s2 > 0.0 && n >= 3.0 ? 2.0 * s1 * s1 / (n * s2) : 1.0;
    tail[EXCEEDANCES] = n, tail[GAP_SUM] = s1, tail[GAP_SQUARE_SUM] = s2;
    theta = theta > k->least_extremal_index ? theta : k->least_extremal_index;
    tail[EXTREMAL_INDEX] = theta < 1.0 ? theta : 1.0;
}

/* Fit the tail beyond the k largest values; writes scale, shape and log((m+1)/(k+1)). */
static double fit_pareto(const kb_detector *d, int side, int64_t k, double *scale, double *shape,
                         double *log_top)
{
    const kb_detector_constants *c = d->k;
    int statistic = SIDE_STATISTIC[side], up = SIDE_SIGN[side] > 0.0;
    const double *held = d->history + statistic * d->capacity;
    int64_t m = (int64_t)d->counts[2 * statistic + HELD];
    double seen = d->counts[2 * statistic + SEEN], b0 = 0.0, b1 = 0.0;
    double u = up ? held[m - k - 1] : -held[k];
    for (int64_t i = 0; i < k; i++) {
        double excess = (up ? held[m - k + i] : -held[k - 1 - i]) - u;
        b0 += excess;
        b1 += excess * (double)(k - 1 - i) / (double)(k > 1 ? k - 1 : 1);
    }
    b0 /= (double)k, b1 /= (double)k;
    double spread = b0 - 2.0 * b1;
    double xi = spread > 0.0 ? c->shape_factor * (2.0 - b0 / spread) : c->most_shape;
    xi = xi < 0.0 ? 0.0 : xi < c->most_shape ? xi : c->most_shape;
    double span = seen < c->memory_rows ? seen : c->memory_rows;
    double theta = d->tails[KB_SIDE_FIELDS * side + EXTREMAL_INDEX];
    double independent = theta * span / (double)m;
    double n = (double)k * (independent < 1.0 ? independent : 1.0);
    *scale = b0 * (1.0 - xi);
    xi += 1.0 / (n > 1.0 ? n : 1.0);
    *shape = xi < c->most_shape ? xi : c->most_shape;
    *log_top = log(((double)m + 1.0) / ((double)k + 1.0));
    return u;
}

static void fit_tail(const kb_detector *d, int side)
{
    double m = d->counts[2 * SIDE_STATISTIC[side] + HELD], unused;
    double *tail = d->tails + KB_SIDE_FIELDS * side;
    int64_t k = (int64_t)(d->k->top_share * m), far = (int64_t)(d->k->cluster_share * m);
    tail[THRESHOLD] = fit_pareto(d, side, k > 2 ? k : 2, tail + SCALE, tail + SHAPE, tail + LOG_TOP);
    if (far >= d->k->far_values)
        tail[CLUSTER_THRESHOLD]
            = fit_pareto(d, side, far, tail + FAR_SCALE, tail + FAR_SHAPE, tail + FAR_LOG_TOP);
    else
        tail[CLUSTER_THRESHOLD]
            = fit_pareto(d, side, far > 1 ? far : 1, &unused, &unused, &unused);
}

/* Average how often values leave the middle of a full history; return whether that has changed. */
static int has_changed(const kb_detector *d, int statistic, double x)
{
    const double *held = d->history + statistic * d->capacity;
    double count = 0.0, theta = 1.0, outside = 0.0, *excess = d->scalars + CHANGES + statistic;
    for (int side = FIRST_SIDE[statistic]; side < FIRST_SIDE[statistic + 1]; side++) {
        const double *tail = d->tails + KB_SIDE_FIELDS * side;
        int up = SIDE_SIGN[side] > 0.0;
        int64_t below = count_below(held, d->capacity, SIDE_SIGN[side] * tail[THRESHOLD], up);
        count += (double)(up ? d->capacity - below : below);
        theta = tail[EXTREMAL_INDEX] < theta ? tail[EXTREMAL_INDEX] : theta;
        if (SIDE_SIGN[side] * x > tail[THRESHOLD])
            outside = 1.0;
    }
    double p = (count + 1.0) / ((double)d->capacity + 2.0);
    *excess += (outside - p - *excess) / d->k->change_rows;
    return fabs(*excess)
           > d->k->change_sd * sqrt(p * (1.0 - p) / (2.0 * d->k->change_rows * theta));
}

/* Thin out a history, so that the values after a lasting change replace those before it. */
static int64_t restart_history(const kb_detector *d, int statistic, int64_t m)
{
    double *held = d->history + statistic * d->capacity;
    int64_t kept = (int64_t)(d->k->change_share * (double)m);
    for (int64_t i = 0; i < kept; i++)
        held[i] = held[i * m / kept];
    memset(held + kept, 0, (size_t)(m - kept) * sizeof *held);
    d->scalars[CHANGES + statistic] = 0.0;
    return kept;
}

static void add_to_history(const kb_detector *d, int statistic, double x)
{
    double *held = d->history + statistic * d->capacity;
    int64_t m = (int64_t)d->counts[2 * statistic + HELD];
    int64_t seen = (int64_t)d->counts[2 * statistic + SEEN];
    for (int side = FIRST_SIDE[statistic]; side < FIRST_SIDE[statistic + 1]; side++)
        count_exceedance(d, side, x, m);
    if (m == d->capacity && has_changed(d, statistic, x))
        m = seen = restart_history(d, statistic, m);
    if (m < d->capacity) {
        int64_t at = count_below(held, m, x, 1);
        memmove(held + at + 1, held + at, (size_t)(m - at) * sizeof *held);
        held[at] = x;
        m++;
    } else {
        double life = (double)seen + 1.0;
        life = life < d->k->memory_rows ? life : d->k->memory_rows;
        uint64_t turns = (uint64_t)seen * GOLDEN_RATIO + mix_bits((uint64_t)d->scalars[SEED] + (uint64_t)statistic);
        double place = (double)(turns >> 11) * 0x1p-53 * life;
        if (place < (double)m) {
            int64_t at = count_below(held, m, x, 1);
            int64_t out = (int64_t)place;
            if (at > out) {
                memmove(held + out, held + out + 1, (size_t)(at - 1 - out) * sizeof *held);
                held[at - 1] = x;
            } else {
                memmove(held + at + 1, held + at, (size_t)(out - at) * sizeof *held);
                held[at] = x;
            }
        }
    }
    seen++;
    d->counts[2 * statistic + HELD] = (double)m;
    d->counts[2 * statistic + SEEN] = (double)seen;
    if (seen >= 20 && seen % (seen < 256 ? 4 : 16) == 0)
        for (int side = FIRST_SIDE[statistic]; side < FIRST_SIDE[statistic + 1]; side++)
            fit_tail(d, side);
}

/* Components */

/* Add a value to a window; the mean of a full window, otherwise NaN. */
static double push(const kb_detector *d, int window, double x)
{
    int64_t rows = WINDOW_LENGTHS[window], count = (int64_t)d->scalars[WINDOW_COUNTS + window];
    double *values = d->windows + KB_WINDOW_ROWS * window, sum = 0.0;
    values[count % rows] = x;
    d->scalars[WINDOW_COUNTS + window] = (double)(count + 1);
    if (count + 1 < rows)
        return NAN;
    for (int64_t j = 0; j < rows; j++)
        sum += values[j];
    return sum / (double)rows;
}

static double bet_against(double c)
{
    if (c < 1e-3)
        return 0.5 + c / 6.0;
    c = c < 500.0 ? c : 500.0;
    return (expm1(c) - c) / (c * c);
}

static double add_evidence(const kb_detector *d, double row, double bet)
{
    double *s = d->scalars;
    if (s[BETS] < 1.0)
        s[BETS_START] = row;
    double bets = (1.0 + s[BETS]) * bet;
    s[BETS] = bets < d->k->evidence_cap ? bets : d->k->evidence_cap;
    double x = log(s[BETS]), score = score_upper(d, EVIDENCE, x);
    add_to_history(d, EVIDENCE, x);
    return score;
}

static void count_run(const kb_detector_constants *k, double *counts, int64_t run, int last)
{
    for (int bucket = 0; bucket <= last; bucket++) {
        int64_t first = (INT64_C(1) << bucket) >> 1;
        int64_t beyond = bucket == last ? run : INT64_C(1) << bucket;
        double *of = counts + 2 * bucket;
        of[0] += (double)(beyond - first);
        of[1] += (double)(beyond - first) + (bucket == last ? 1.0 : 0.0);
        if (of[1] > k->run_memory) {
            double kept = k->run_memory / 2.0 / of[1];
            of[0] *= kept;
            of[1] *= kept;
        }
    }
}

static double bet_on_run(const kb_detector *d, int which, int at, int run_at, int continues)
{
    const kb_detector_constants *k = d->k;
    double *s = d->scalars, *counts = d->runs + which * KB_RUN_BUCKETS * 2;
    int64_t run = (int64_t)s[run_at];
    int bucket = 0;
    while (bucket < KB_RUN_BUCKETS - 1 && run >> bucket)
        bucket++;
    double q = k->repeat_floor;
    for (int i = 0; i <= bucket; i++)
        q = (counts[2 * i] + 2.0 * q) / (counts[2 * i + 1] + 2.0);
    q = q > k->repeat_floor ? q : k->repeat_floor;
    double bet = continues ? (1.0 - (1.0 - q) * k->repeat_bet) / q : k->repeat_bet;
    if (!continues)
        count_run(k, counts, run, bucket);
    s[run_at] = continues ? (double)(run + 1) : 0.0;
    double bets = (1.0 + s[at]) * bet;
    s[at] = bets < k->evidence_cap ? bets : k->evidence_cap;
    return log(s[at]);
}

static double score_movement(const kb_detector *d, double value, int *is_low)
{
    double change = fabs(value - d->scalars[LAST_VALUE]);
    if (isnan(change))
        return 0.0;
    double mean = push(d, W_MOVEMENT, change), score = 0.0;
    if (isnan(mean))
        return 0.0;
    if (is_calibrated(d, MOVEMENT)) {
        two_sided found = score_two_sided(d, MOVEMENT, mean);
        score = found.score;
        *is_low = found.is_low;
    }
    add_to_history(d, MOVEMENT, mean);
    return score;
}

static double follow_season(const kb_detector *d, double value, double seconds)
{
    double day = floor(seconds / 86400.0);
    double part = (seconds - 86400.0 * day) / (86400.0 / (double)d->season_slots);
    int64_t place = (int64_t)part;
    double *slot = d->season + KB_SEASON_FIELDS
                   * (place < d->season_slots - 1 ? place : d->season_slots - 1);
    int64_t days = (int64_t)slot[RING];
    int today = days > 0 && slot[RING + 1] == day, count = 0;
    double past[SEASON_DAYS];
    for (int64_t j = today; j < days && j < today + SEASON_DAYS; j++) {
        double x = slot[(days - 1 - j) % RING];
        int at = count++;
        for (; at > 0 && past[at - 1] > x; at--)
            past[at] = past[at - 1];
        past[at] = x;
    }
    if (today) {
        slot[(days - 1) % RING] = value;
    } else {
        slot[days % RING] = value;
        slot[RING] = (double)(days + 1);
        slot[RING + 1] = day;
    }
    if (count == 0)
        return NAN;
    return count % 2 ? past[count / 2] : 0.5 * (past[count / 2] + past[count / 2 - 1]);
}

static double score_season(const kb_detector *d, double value, double seconds)
{
    double usual = 0.0;
    if (d->season_slots > 0 && !isnan(seconds)) {
        usual = follow_season(d, value, seconds);
        if (isnan(usual))
            return 0.0;
    }
    double mean = push(d, W_SEASON, value - usual);
    if (isnan(mean))
        return 0.0;
    double score = is_calibrated(d, SEASON) ? score_two_sided(d, SEASON, mean).score : 0.0;
    add_to_history(d, SEASON, mean);
    return score;
}

static double combine(const kb_detector *d, const double *scores)
{
    int has_value = d->scalars[HAS_VALUE] > 0.0;
    double most = -INFINITY, total = 0.0, weights = 0.0;
    for (int i = 0; i < KB_COMPONENTS; i++)
        if ((has_value || !NEEDS_VALUE[i]) && scores[i] > most)
            most = scores[i];
    for (int i = 0; i < KB_COMPONENTS; i++)
        if (has_value || !NEEDS_VALUE[i]) {
            total += d->k->weights[i] * exp(scores[i] - most);
            weights += d->k->weights[i];
        }
    return most + log(total / weights);
}

/* Episodes */

static void summarize_residuals(const kb_detector *d, int64_t rows, double *mean, double *square)
{
    int64_t count = (int64_t)d->scalars[WINDOW_COUNTS + W_RESIDUAL];
    const double *values = d->windows + KB_WINDOW_ROWS * W_RESIDUAL;
    rows = rows < count ? rows : count;
    rows = rows < KB_WINDOW_ROWS ? rows : KB_WINDOW_ROWS;
    *mean = *square = 0.0;
    for (int64_t j = 0; j < rows; j++) {
        double z = values[(count - 1 - j) % KB_WINDOW_ROWS];
        *mean += z;
        *square += z * z;
    }
    if (rows > 0) {
        *mean /= (double)rows;
        *square /= (double)rows;
    }
}

static told_kind tell_kind(const kb_detector *d, double row, double threshold, const row_view *view)
{
    const double *s = d->scalars;
    int lead = C_UNLIKELY;
    double best = -INFINITY, mean, square;
    for (int i = 0; i < KB_COMPONENTS; i++) {
        double share = log(d->k->weights[i]) + view->scores[i];
        if ((s[HAS_VALUE] > 0.0 || !NEEDS_VALUE[i]) && share > best) {
            lead = i;
            best = share;
        }
    }
    if (lead == C_MISSING)
        return (told_kind){MISSING_DATA, row - s[MISSING_RUN] + 1.0};
    if (lead == C_FLAT || view->scores[C_FLAT] > 0.5 * threshold)
        return (told_kind){FLAT_LINE, row - s[FLAT_RUN]};
    if (lead == C_MOVEMENT && view->is_low) {
        double first = row - WINDOW_LENGTHS[W_MOVEMENT] + 1.0;
        return (told_kind){FLAT_LINE, first > 0.0 ? first : 0.0};
    }
    const int decides = lead == C_VALUE || 2.0 * view->bet > s[BETS];
    if (view->row_nats > threshold || (decides && view->row_nats > 0.5 * threshold))
        return (told_kind){SPIKE, row};
    int64_t rows = 20;
    if (lead == C_UNLIKELY) {
        rows = KB_WINDOW_ROWS;
    } else if (lead == C_EVIDENCE) {
        double since = row - s[BETS_START] + 1.0;
        rows = since < KB_WINDOW_ROWS ? (int64_t)since : KB_WINDOW_ROWS;
    }
    double start = row - (double)rows + 1.0;
    start = start > 0.0 ? start : 0.0;
    summarize_residuals(d, rows, &mean, &square);
    if (fabs(mean) * sqrt((double)rows) > d->k->shift_sd
        && fabs(mean) > d->k->shift_share * sqrt(square))
        return (told_kind){LEVEL_SHIFT, start};
    if (lead == C_MOVEMENT || sqrt(square) > d->k->wide_rms)
        return (told_kind){VARIANCE, start};
    return (told_kind){lead == C_VALUE || lead == C_SEASON ? DRIFT : SUSTAINED, start};
}

/* Open, continue or close the episode; writes event, kind, start and length. */
static void follow_episode(const kb_detector *d, double row, double score, double threshold,
                           const row_view *view, double *out)
{
    double *s = d->scalars;
    out[0] = out[1] = out[2] = out[3] = 0.0;
    if (score > threshold) {
        told_kind told = tell_kind(d, row, threshold, view);
        int opens = s[IS_OPEN] == 0.0
                    || (s[QUIET_ROWS] >= d->k->shift_rows && score > s[PEAK] + threshold);
        s[QUIET_ROWS] = 0.0;
        if (opens) {
            s[IS_OPEN] = 1.0;
            s[KIND] = told.kind;
            s[START] = told.start;
            s[PEAK] = score;
            s[UNUSUAL_VALUES] = fabs(view->unusual);
            s[UNUSUAL_SUM] = view->unusual;
            out[0] = OPENED, out[1] = told.kind, out[2] = told.start;
            out[3] = row - told.start + 1.0;
            return;
        }
        if (score > s[PEAK]) {
            s[PEAK] = score;
            s[KIND] = told.kind;
        }
    } else {
        s[QUIET_ROWS] += 1.0;
    }
    if (s[IS_OPEN] == 0.0)
        return;
    s[UNUSUAL_VALUES] += fabs(view->unusual);
    s[UNUSUAL_SUM] += view->unusual;
    if (s[KIND] == SPIKE && s[UNUSUAL_VALUES] >= d->k->shift_rows)
        s[KIND] = fabs(s[UNUSUAL_SUM]) > d->k->shift_share * s[UNUSUAL_VALUES] ? LEVEL_SHIFT
                                                                               : VARIANCE;
    if (s[QUIET_ROWS] < d->k->quiet_rows)
        return;
    s[IS_OPEN] = 0.0;
    out[0] = CLOSED, out[1] = s[KIND], out[2] = s[START];
    out[3] = row - s[QUIET_ROWS] - s[START] + 1.0;
}

static void process_row(const kb_detector *d, const double *in, double threshold, double *out)
{
    double value = in[0], stated = in[1], residual = in[2], seconds = in[3];
    double *s = d->scalars, row = s[ROW], c = 0.0, surprise = NAN, h = 0.0;
    int is_missing = in[4] > 0.0, both = 1;
    row_view view = {{0.0}, 0.0, 0.0, 0.0, 0};
    view.scores[C_MISSING] = bet_on_run(d, 1, MISSING, MISSING_RUN, is_missing);
    if (!is_missing) {
        if (isnan(stated)) {
            both = 0;
        } else {
            c = stated;
            if (is_calibrated(d, STATED)) {
                c = calibrated_tail(d, 0, stated, hash_uniform(d, (int64_t)row, 1));
                c = c > 0.0 ? c : 0.0;
                view.bet = bet_against(c);
                view.scores[C_EVIDENCE] = add_evidence(d, row, view.bet);
            } else {
                both = 0;
            }
            surprise = c / log(10.0);
            add_to_history(d, STATED, stated);
        }
        if (s[HAS_VALUE] > 0.0 && !isnan(value)) {
            view.scores[C_FLAT] = bet_on_run(d, 0, FLAT, FLAT_RUN, value == s[LAST_VALUE]);
            view.scores[C_MOVEMENT] = score_movement(d, value, &view.is_low);
            s[LAST_VALUE] = value;
            if (is_calibrated(d, VALUE)) {
                two_sided found = score_two_sided(d, VALUE, value);
                h = found.nats;
                view.scores[C_VALUE] = found.score;
                view.unusual = h > d->k->unusual_nats ? (found.is_low ? -1.0 : 1.0) : 0.0;
            } else {
                both = 0;
            }
            view.scores[C_SEASON] = score_season(d, value, seconds);
            add_to_history(d, VALUE, value);
        }
        push(d, W_RESIDUAL, residual);
        if (both) {
            double mean = push(d, W_UNLIKELY, c + h);
            if (!isnan(mean)) {
                view.scores[C_UNLIKELY] = score_upper(d, UNLIKELY, mean);
                add_to_history(d, UNLIKELY, mean);
            }
        }
    }
    view.row_nats = c;
    out[0] = surprise;
    out[1] = combine(d, view.scores);
    follow_episode(d, row, out[1], threshold, &view, out + 2);
    s[ROW] = row + 1.0;
}

void kb_detect_anomalies(const kb_detector *d, const double *rows, int64_t n, double threshold,
                         double *out)
{
    for (int64_t i = 0; i < n; i++)
        process_row(d, rows + KB_DETECTOR_INPUTS * i, threshold, out + KB_DETECTOR_OUTPUTS * i);
}
