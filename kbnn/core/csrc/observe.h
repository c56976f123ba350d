/* What a label is and says: the kinds of kbnn/core/observation.py, whose table has these codes, and
 * their evidence in output space, as in kbnn/core/evidence.py. */
#ifndef KBNN_OBSERVE_H
#define KBNN_OBSERVE_H

enum { KB_GAUSSIAN, KB_BERNOULLI, KB_CATEGORICAL, KB_SIGMOID, KB_COUNTED,
       KB_AMOUNT, KB_OBSERVATIONS };

#ifdef KB_TARGET
#include "activation.h"
#include "noise.h"
#include "normal.h"
#include "work.h"

KB_INLINE void KB(begin_evidence)(kb_work *w)
{
    int64_t o = w->outputs;
    memcpy(w->now_mean, w->out_mean, (size_t)o * sizeof(double));
    memcpy(w->now_cov, w->q, (size_t)(o * o) * sizeof(double));
    memset(w->now_gain, 0, (size_t)(o * o) * sizeof(double));
    memset(w->pull, 0, (size_t)o * sizeof(double));
    for (int64_t i = 0; i < o; i++)
        w->now_gain[i * o + i] = 1.0;
    w->columns = 0;
}

/* cov_d = Q d, gain_d = A d; mean and variance of d'a. */
KB_PART void KB(aim)(kb_work *w, double *mean, double *var)
{
    int64_t o = w->outputs;
    double m = 0.0, v = 0.0, extra = 0.0;
    for (int64_t i = 0; i < o; i++) {
        double cov = 0.0, gain = 0.0;
        for (int64_t j = 0; j < o; j++) {
            cov += w->now_cov[i * o + j] * w->direction[j];
            gain += w->now_gain[i * o + j] * w->direction[j];
        }
        w->cov_d[i] = cov;
        w->gain_d[i] = gain;
        m += w->direction[i] * w->now_mean[i];
        v += w->direction[i] * cov;
        extra += w->direction[i] * w->direction[i] * w->input_var[i];
    }
    *mean = m;
    *var = KB(larger)(v, 0.0) + extra;
}

/* One measurement of the direction aimed at. */
KB_PART void KB(measure)(kb_work *w, double pull, double information)
{
    int64_t o = w->outputs;
    double root = sqrt(information);
    for (int64_t i = 0; i < o; i++) {
        w->now_mean[i] += w->cov_d[i] * pull;
        w->pull[i] += w->gain_d[i] * pull;
        w->spread[w->columns * o + i] = w->gain_d[i] * root;
        for (int64_t j = 0; j < o; j++) {
            w->now_cov[i * o + j] -= information * (w->cov_d[i] * w->cov_d[j]);
            w->now_gain[i * o + j] -= information * (w->gain_d[i] * w->cov_d[j]);
        }
    }
    w->columns++;
}

/* Pull and information of a measurement. */
typedef struct {
    double pull, information;
} KB(measured_t);

/* A measurement that counts `weight` times, see kbnn/core/evidence.py. */
KB_INLINE KB(measured_t) KB(weighted)(double var, double pull, double information, double weight)
{
    double known = information * var;
    double rest = 1.0 + (weight - 1.0) * (known < 1.0 ? known : 1.0);
    double factor = weight / KB(larger)(rest, weight < 1.0 ? weight : 1.0);
    return (KB(measured_t)){pull * factor, information * factor};
}

KB_INLINE void KB(measure_weighted)(kb_work *w, double var, double pull, double information,
                                    double weight)
{
    KB(measured_t) seen = KB(weighted)(var, pull, information, weight);
    KB(measure)(w, seen.pull, seen.information);
}

/* d'a > 0 seen through Phi(lambda .), mean and variance of d'a given. */
KB_INLINE KB(measured_t) KB(measured_probit)(const kb_constants *k, double mean, double var, double weight)
{
    double t = sqrt(k->probit_var + var), u = mean / t, rho = KB(hazard)(u);
    double information = KB(clip)(rho * (rho + u), 0.0, 1.0) / (t * t);
    return KB(weighted)(var, rho / t, information, weight);
}

/* d'a > 0 seen through Phi(lambda .). */
KB_PART void KB(measure_probit)(kb_work *w, double weight)
{
    double mean, var;
    KB(aim)(w, &mean, &var);
    KB(measured_t) seen = KB(measured_probit)(w->net->k, mean, var, weight);
    KB(measure)(w, seen.pull, seen.information);
}

/* out -= factor a b, in the rounding of `measure`. */
KB_INLINE void KB(take_off)(double *restrict out, const double *restrict a, double b, double factor,
                            int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] -= factor * (a[i] * b);
}

/* The same for four vectors a, `pitch` apart, one after another in one pass over `out`. */
KB_INLINE void KB(take_off_four)(double *restrict out, const double *restrict a, int64_t pitch,
                                 const double *b, const double *factor, int64_t n)
{
    const double b0 = b[0], b1 = b[pitch], b2 = b[2 * pitch], b3 = b[3 * pitch];
    const double f0 = factor[0], f1 = factor[1], f2 = factor[2], f3 = factor[3];
    for (int64_t i = 0; i < n; i++) {
        double rest = out[i];
        rest -= f0 * (a[i] * b0);
        rest -= f1 * (a[pitch + i] * b1);
        rest -= f2 * (a[2 * pitch + i] * b2);
        rest -= f3 * (a[3 * pitch + i] * b3);
        out[i] = rest;
    }
}

/* Column k of Q and of A after the updates of the rivals from `first` to `end`. */
KB_INLINE void KB(catch_up)(const double *information, double *cov, double *gain, int64_t k,
                            int64_t first, int64_t end, int64_t o)
{
    double *cov_k = cov + k * o, *gain_k = gain + k * o;
    int64_t j = first;
    for (; j + 4 <= end; j += 4) {
        const double *b = cov + j * o + k;
        KB(take_off_four)(cov_k, cov + j * o, o, b, information + j, o);
        KB(take_off_four)(gain_k, gain + j * o, o, b, information + j, o);
    }
    for (; j < end; j++) {
        KB(take_off)(cov_k, cov + j * o, cov[j * o + k], information[j], o);
        KB(take_off)(gain_k, gain + j * o, cov[j * o + k], information[j], o);
    }
}

/* The class beats every rival; a pair counts as much as it was likely to be the one in question.
 *
 * The same measurements as `measure_probit` of e_label - e_k for every k in order, to the bit, but
 * a rival's column of Q and of A is asked for once, at its turn: it is brought up to date then, by
 * the updates before it, and not with every one of them. Its row of now_cov and of now_gain, which
 * is not needed after that, keeps the Q d and A d of its own update. */
KB_PART void KB(observe_categorical)(kb_work *w, int64_t label, double weight)
{
    const kb_constants *c = w->net->k;
    const double *p = w->probability, *input_var = w->input_var;
    const int64_t o = w->outputs;
    double *restrict cov = w->now_cov, *restrict gain = w->now_gain, *restrict mean = w->now_mean;
    double *restrict total = w->pull, *restrict information = w->direction;
    double *restrict own_gain = w->gain_d, *own_cov = cov + label * o;
    memset(own_gain, 0, (size_t)o * sizeof(double));
    own_gain[label] = 1.0;
    for (int64_t k = 0; k < o; k++) {
        if (k == label)
            continue;
        double *restrict cov_d = cov + k * o, *restrict gain_d = gain + k * o;
        KB(catch_up)(information, cov, gain, k, 0, k < label ? k : label, o);
        KB(catch_up)(information, cov, gain, k, label + 1, k, o);
        for (int64_t i = 0; i < o; i++) {
            cov_d[i] = own_cov[i] - cov_d[i];
            gain_d[i] = own_gain[i] - gain_d[i];
        }
        double var = KB(larger)(cov_d[label] - cov_d[k], 0.0) + (input_var[label] + input_var[k]);
        double share = KB(larger)(weight * (p[label] + p[k]), c->least_weight);
        KB(measured_t) seen = KB(measured_probit)(c, mean[label] - mean[k], var, share);
        double root = sqrt(seen.information), pull = seen.pull;
        information[k] = seen.information;
        double *restrict spread = w->spread + w->columns++ * o;
        for (int64_t i = 0; i < o; i++) {
            mean[i] += cov_d[i] * pull;
            total[i] += gain_d[i] * pull;
            spread[i] = gain_d[i] * root;
        }
        KB(take_off)(own_cov, cov_d, cov_d[label], seen.information, o);
        KB(take_off)(own_gain, gain_d, cov_d[label], seen.information, o);
    }
}

KB_INLINE void KB(observe_sigmoid)(kb_work *w, double y, double weight)
{
    const kb_constants *c = w->net->k;
    double mean, var, lambda = c->lambda;
    w->direction[0] = 1.0;
    KB(aim)(w, &mean, &var);
    double k = lambda * lambda * var, t = sqrt(1.0 + k), h = lambda * mean / t;
    KB(normal_t) n = KB(normal)(h);
    double slope = lambda * var * n.pdf / t / KB(larger)(var, c->smallest_var);
    double spread = w->net->printed ? KB(printed_var)(n.cdf, t, slope * slope * var, &w->raised)
                                    : KB(probit_var)(c, h, k);
    double total = KB(larger)(spread + w->net->noise, c->smallest_var);
    KB(measure_weighted)(w, var, slope * (y - n.cdf) / total, slope * slope / total, weight);
}

/* Residual, robust weight, noise level and measurement of each real target. */
KB_PART void KB(observe_gaussian)(kb_work *w, const double *y, double weight, double *inlier,
                                    double *surprise)
{
    const kb_net *net = w->net;
    const kb_constants *k = net->k;
    int64_t seen = 0;
    double total_surprise = 0.0;
    for (int64_t o = 0; o < net->labels; o++) {
        w->label_var[o] = INFINITY;
        if (net->learns_noise)
            memcpy(w->new_noise + 2 * o, w->state.noise + 2 * o, 2 * sizeof(double));
        if (!isfinite(y[o]))
            continue;
        seen++;
        double level = net->learns_noise ? w->state.noise[2 * o + 1] / w->state.noise[2 * o]
                                         : net->noise;
        double spread = w->stated_var[o] + KB(larger)(level, w->noise_var[o]);
        spread = KB(larger)(spread, k->smallest_var);
        double e = y[o] - w->out_mean[o], trust = 1.0;
        if (net->robust) {
            double u = e * e / spread;
            double odds = k->outlier_odds
                          * exp(-k->outlier_decay
                                * (u < k->outlier_reach ? u : k->outlier_reach));
            double p = odds / (1.0 + odds);
            *inlier = p < *inlier ? p : *inlier;
            trust = p + (1.0 - p) / k->outlier_var_ratio;
        }
        total_surprise += (KB(clip)(e * e / spread, 0.0, k->surprise_cap) - 1.0) / 2.0;
        if (net->robust || net->learns_noise)
            e = KB(clip)(e, -k->residual_bound * sqrt(spread), k->residual_bound * sqrt(spread));
        double share = trust * weight;
        if (net->learns_noise)
            level = KB(learn_level)(k, w->state.noise + 2 * o, w->new_noise + 2 * o, e,
                                    w->out_var[o], w->stated_var[o], trust, share);
        w->residual[o] = e;
        w->share[o] = share < trust ? share : trust; /* no row moves the head more than once */
        w->target[o] = w->out_mean[o] + e;
        w->label_var[o] = level / share;
    }
    *surprise = seen ? total_surprise / (double)seen : 0.0;
    memset(w->direction, 0, (size_t)w->outputs * sizeof(double));
    for (int64_t o = 0; o < net->labels; o++) {
        if (isinf(w->label_var[o]))
            continue;
        double mean, var;
        w->direction[o] = 1.0;
        KB(aim)(w, &mean, &var);
        double noise = KB(larger)(w->label_var[o], net->least_noise * w->now_cov[o * w->outputs + o]);
        double total = KB(larger)(var + noise, k->smallest_var);
        KB(measure)(w, (w->target[o] - mean) / total, 1.0 / total);
        w->direction[o] = 0.0;
    }
}

/* Surprise of one of two outcomes whose probabilities are given. */
KB_INLINE double KB(two_surprise)(const kb_constants *k, double p, double other)
{
    double here = -log(KB(larger)(p, k->tiny)), there = -log(KB(larger)(other, k->tiny));
    double entropy = p * here + other * there;
    double second = p * here * here + other * there * there;
    return (here - entropy) / sqrt(2.0 * (second - entropy * entropy + k->surprise_var));
}

/* Measure each target's amount, a real number, and then its presence. */
KB_PART void KB(observe_amount)(kb_work *w, const double *y, double weight, double *inlier,
                                double *surprise)
{
    const kb_constants *k = w->net->k;
    int64_t labels = w->net->labels, parts = 0;
    KB(observe_gaussian)(w, y, weight, inlier, surprise);
    for (int64_t j = 0; j < labels; j++)
        parts += isfinite(y[j]) != 0;
    double total = *surprise * (double)parts;
    for (int64_t j = 0; j < labels; j++) {
        if (isnan(y[j]))
            continue;
        int64_t o = labels + j;
        double sign = isfinite(y[j]) ? 1.0 : -1.0, rate = k->presence_rate;
        double u = sign * rate * w->out_mean[o]
                   / sqrt(k->probit_var + rate * rate * w->stated_var[o]);
        total += KB(two_surprise)(k, exp(KB(log_cdf)(u)), exp(KB(log_cdf)(-u)));
        parts++;
        w->direction[o] = sign * rate;
        KB(measure_probit)(w, weight);
        w->direction[o] = 0.0;
    }
    *surprise = parts ? total / (double)parts : 0.0;
}

/* Moments of the logarithm of a count's rate, and of the count; see kbnn/core/likelihoods.py. */
typedef struct {
    double mean, var, mu, inverse;
} KB(rate_t);

KB_INLINE KB(rate_t) KB(rate)(const kb_constants *k, double mean, double var, double phi)
{
    KB(rate_t) r;
    r.mean = KB(clip)(k->count_rate * mean, -k->log_rate_limit, k->log_rate_limit);
    r.var = KB(clip)(k->count_rate * k->count_rate * var, k->least_rate_var, k->most_rate_var);
    double top = r.mean + 0.5 * r.var;
    r.mu = exp(top < k->log_rate_limit ? top : k->log_rate_limit);
    r.inverse = exp(r.var) * (1.0 + phi) - 1.0;
    return r;
}

KB_INLINE void KB(count_posterior)(const kb_constants *c, const KB(rate_t) *now, double y, double phi,
                                   double *mean, double *var)
{
    double m = now->mean, q = now->var, k = 1.0 / phi, h = y * k / (y + k);
    double eta = y == 0.0 ? m : (m / q + h * log(y)) / (1.0 / q + h);
    for (int turn = 0; turn < (int)c->count_newton_turns; turn++) {
        double s = 1.0 / (1.0 + k * exp(-eta));
        double step = ((m - eta) / q + y - (y + k) * s) / (1.0 / q + (y + k) * s * (1.0 - s));
        step = KB(clip)(step, -c->count_newton_step, c->count_newton_step);
        eta += step;
        if (fabs(step) <= c->count_newton_rest * (1.0 + fabs(eta)))
            break;
    }
    double s = 1.0 / (1.0 + k * exp(-eta)), information = (y + k) * s * (1.0 - s);
    *var = q / (1.0 + q * information);
    *mean = eta - 0.5 * information * (1.0 - 2.0 * s) * *var * *var;
}

KB_INLINE double KB(count_inlier)(const kb_constants *k, const KB(rate_t) *r, double y)
{
    double alpha = 1.0 / r->inverse, s = r->mu + 1.0;
    double mass = lgamma(y + alpha) - lgamma(alpha) - lgamma(y + 1.0)
                  - alpha * log1p(r->mu * r->inverse) - y * log1p(alpha / r->mu);
    double far = log(s) - log(s + y) - log(s + y + 1.0);
    double odds = log((1.0 - k->outlier_share) / k->outlier_share) + mass - far;
    return 1.0 / (1.0 + exp(KB(clip)(-odds, -k->log_odds_limit, k->log_odds_limit)));
}

/* Robust weight, dispersion and measurement of each count. */
KB_PART void KB(observe_count)(kb_work *w, const double *y, double weight, double *inlier,
                               double *surprise)
{
    const kb_constants *k = w->net->k;
    int64_t seen = 0;
    double total_surprise = 0.0;
    memset(w->direction, 0, (size_t)w->outputs * sizeof(double));
    for (int64_t o = 0; o < w->outputs; o++) {
        const double *sums = w->state.noise + 2 * o;
        memcpy(w->new_noise + 2 * o, sums, 2 * sizeof(double));
        if (isnan(y[o]))
            continue;
        seen++;
        double phi = KB(clip)(sums[1] / sums[0], k->least_dispersion, k->most_dispersion);
        KB(rate_t) said = KB(rate)(k, w->out_mean[o], w->stated_var[o], phi);
        double trust = 1.0, gap = y[o] - said.mu, taken = y[o];
        double var = said.mu + said.mu * said.mu * said.inverse;
        if (w->net->robust) {
            double p = KB(count_inlier)(k, &said, y[o]), reach = k->residual_bound * sqrt(var);
            taken = gap < reach ? taken : said.mu + reach;
            *inlier = p < *inlier ? p : *inlier;
            trust = p + (1.0 - p) / k->outlier_var_ratio;
        }
        total_surprise += (KB(clip)(gap * gap / var, 0.0, k->surprise_cap) - 1.0) / 2.0;
        double share = trust * weight, scale = said.mu * said.mu * exp(said.var);
        double part = share * (scale / var) * (scale / var), bound = k->dispersion_bound * var;
        double square = gap * gap < bound ? gap * gap : bound;
        double more = (square - said.mu - said.mu * said.mu * expm1(said.var)) / scale;
        double kept = 1.0 - (1.0 - k->dispersion_kept) * (share < 1.0 ? share : 1.0);
        w->new_noise[2 * o] = kept * (sums[0] + part);
        w->new_noise[2 * o + 1] = kept * (sums[1] + part * more);
        double mean, output_var, after_mean, after_var;
        w->direction[o] = 1.0;
        KB(aim)(w, &mean, &output_var);
        KB(rate_t) now = KB(rate)(k, mean, output_var, phi);
        KB(count_posterior)(k, &now, taken, phi, &after_mean, &after_var);
        double pull = k->count_rate * (after_mean - now.mean) / now.var;
        double square_rate = k->count_rate * k->count_rate;
        double information = square_rate * (now.var - after_var) / (now.var * now.var);
        double clipped = output_var - now.var / square_rate;
        double part_kept = clipped > 0.0 ? 1.0 / (1.0 + information * clipped) : 1.0;
        KB(measure_weighted)(w, output_var, pull * part_kept, information * part_kept, share);
        w->direction[o] = 0.0;
    }
    *surprise = seen ? total_surprise / (double)seen : 0.0;
}

/* p_k and the odds of every j < k against k; those of k against each are added to p_j. Odds are the
 * rest over the tail: no branches, so that the loop over j vectorises. */
KB_PART double KB(odds_against)(const kb_work *w, int64_t k)
{
    const int64_t classes = w->outputs;
    const double *mean = w->out_mean, *input_var = w->input_var, *q = w->q;
    const double kappa = w->kappa, probit_var = w->net->k->probit_var;
    const double most = exp(w->net->k->log_odds_limit);
    double *restrict against = w->cov_d, *restrict p = w->probability, total = p[k];
    for (int64_t j = 0; j < k; j++) {
        double var = q[k * classes + k] + q[j * classes + j] - 2.0 * q[k * classes + j];
        var = kappa * KB(larger)(var, 0.0) + input_var[k] + input_var[j];
        against[j] = (mean[k] - mean[j]) / sqrt(probit_var + var);
    }
    for (int64_t j = 0; j < k; j++) {
        double u = against[j], tail = KB(normal)(-fabs(u)).cdf, odds = (1.0 - tail) / tail;
        odds = odds < most ? odds : most;
        double inverse = 1.0 / odds, for_k = u > 0.0 ? odds : inverse;
        against[j] = u > 0.0 ? inverse : odds;
        p[j] += for_k;
    }
    for (int64_t j = 0; j < k; j++)
        total += against[j];
    return total;
}

/* 1/p_k ~ sum_j of the odds of j against k, Phi(-u)/Phi(u), u = (m_k - m_j)/sqrt(8/pi + var). */
KB_PART void KB(class_probabilities)(kb_work *w)
{
    int64_t classes = w->outputs;
    double *p = w->probability, total = 0.0;
    if (w->net->observation != KB_CATEGORICAL) {
        double u = w->out_mean[0] / sqrt(w->net->k->probit_var + w->stated_var[0]);
        p[0] = exp(KB(log_cdf)(-u));
        p[1] = exp(KB(log_cdf)(u));
        return;
    }
    for (int64_t k = 0; k < classes; k++)
        p[k] = 1.0;
    for (int64_t k = 1; k < classes; k++)
        p[k] = KB(odds_against)(w, k);
    for (int64_t k = 0; k < classes; k++) {
        p[k] = 1.0 / p[k];
        total += p[k];
    }
    for (int64_t k = 0; k < classes; k++)
        p[k] /= total;
}

/* (log-loss - its expectation) in units of its spread. */
KB_INLINE double KB(class_surprise)(const kb_work *w, double y)
{
    int64_t classes = w->net->classes;
    int64_t label = w->net->observation == KB_CATEGORICAL ? (int64_t)y : y > 0.5;
    double entropy = 0.0, second = 0.0, loss = 0.0;
    for (int64_t k = 0; k < classes; k++) {
        double p = KB(larger)(w->probability[k], w->net->k->tiny), information = -log(p);
        entropy += p * information;
        second += p * information * information;
        if (k == label)
            loss = information;
    }
    return (loss - entropy) / sqrt(2.0 * (second - entropy * entropy + w->net->k->surprise_var));
}

/* Whether a label is an amount of 0. */
KB_INLINE int KB(is_none)(const kb_work *w, double y)
{
    return w->net->observation == KB_AMOUNT && y == -INFINITY;
}

/* Whether finite numbers can be a label. */
KB_INLINE int KB(label_fits)(const kb_work *w, const double *y)
{
    if (w->net->observation == KB_COUNTED)
        for (int64_t k = 0; k < w->net->labels; k++)
            if (!isnan(y[k]) && !(y[k] >= 0.0 && y[k] == floor(y[k]) && y[k] <= w->net->k->largest_count))
                return 0;
    return !w->net->classes || (y[0] >= 0.0 && y[0] < (double)w->net->classes);
}

/* Add the evidence of the label; return its surprise. */
KB_PART double KB(observe)(kb_work *w, const double *y, double weight, double *inlier)
{
    double surprise = w->net->classes ? KB(class_surprise)(w, y[0]) : 0.0;
    *inlier = 1.0;
    KB(begin_evidence)(w);
    switch (w->net->observation) {
    case KB_GAUSSIAN:
        KB(observe_gaussian)(w, y, weight, inlier, &surprise);
        break;
    case KB_BERNOULLI:
        w->direction[0] = y[0] > 0.5 ? 1.0 : -1.0;
        KB(measure_probit)(w, weight);
        break;
    case KB_CATEGORICAL:
        KB(observe_categorical)(w, (int64_t)y[0], weight);
        break;
    case KB_SIGMOID:
        KB(observe_sigmoid)(w, y[0], weight);
        break;
    case KB_COUNTED:
        KB(observe_count)(w, y, weight, inlier, &surprise);
        break;
    case KB_AMOUNT:
        KB(observe_amount)(w, y, weight, inlier, &surprise);
        break;
    }
    return surprise;
}

#endif
#endif
