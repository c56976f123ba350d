/* What a label says: evidence in output space and the noise belief, as in kbnn/core/observation.py and
 * kbnn/core/noise.py. Included once per instruction set. */

#define KB_PROBIT_VAR 2.54647908947032537 /* 8/pi */
#define KB_LAMBDA 0.62665706865775012560  /* sqrt(pi/8) */
#define KB_SMALLEST_VAR 1e-12

KB_INLINE double KB(clip)(double value, double low, double high)
{
    return value < low ? low : (value > high ? high : value);
}

KB_INLINE double KB(larger)(double a, double b) { return a > b ? a : b; }

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
KB_INLINE void KB(aim)(kb_work *w, double *mean, double *var)
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
KB_INLINE void KB(measure)(kb_work *w, double pull, double information)
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

KB_INLINE void KB(measure_weighted)(kb_work *w, double var, double pull, double information,
                                    double weight)
{
    double known = information * var;
    double factor = weight / (1.0 + (weight - 1.0) * (known < 1.0 ? known : 1.0));
    KB(measure)(w, pull * factor, information * factor);
}

/* d'a > 0 seen through Phi(lambda .). */
KB_INLINE void KB(measure_probit)(kb_work *w, double weight)
{
    double mean, var;
    KB(aim)(w, &mean, &var);
    double t = sqrt(KB_PROBIT_VAR + var), u = mean / t, rho = KB(hazard)(u);
    double information = KB(clip)(rho * (rho + u), 0.0, 1.0) / (t * t);
    KB(measure_weighted)(w, var, rho / t, information, weight);
}

KB_INLINE void KB(observe_categorical)(kb_work *w, int64_t label, double weight)
{
    memset(w->direction, 0, (size_t)w->outputs * sizeof(double));
    w->direction[label] = 1.0;
    for (int64_t k = 0; k < w->outputs; k++) {
        if (k == label)
            continue;
        w->direction[k] = -1.0;
        KB(measure_probit)(w, weight);
        w->direction[k] = 0.0;
    }
}

KB_INLINE void KB(observe_sigmoid)(kb_work *w, double y, double weight)
{
    double mean, var;
    w->direction[0] = 1.0;
    KB(aim)(w, &mean, &var);
    double k = KB_LAMBDA * KB_LAMBDA * var, t = sqrt(1.0 + k), h = KB_LAMBDA * mean / t;
    KB(normal_t) n = KB(normal)(h);
    double slope = KB_LAMBDA * var * n.pdf / t / KB(larger)(var, KB_SMALLEST_VAR);
    double total = KB(larger)(KB(probit_var)(h, k) + w->net->noise, KB_SMALLEST_VAR);
    KB(measure_weighted)(w, var, slope * (y - n.cdf) / total, slope * slope / total, weight);
}

/* Noise variance predicted for each output at this row. */
KB_INLINE void KB(noise_forecast)(kb_work *w)
{
    const kb_net *net = w->net;
    const double *features = w->layer[net->layers - 1].z;
    int64_t f = w->features;
    for (int64_t o = 0; o < w->outputs; o++) {
        w->noise_var[o] = net->noise;
        if (!net->learns_noise)
            continue;
        double level = w->state.noise[2 * o + 1] / w->state.noise[2 * o];
        w->noise_var[o] = level;
        if (!net->head)
            continue;
        double *gain = w->head_gain + o * kb_round_up(f, KB_ALIGN);
        KB(tiles_multiply)(&w->head[o], features, gain, 1);
        w->head_log_mean[o] =
            KB(clip)(KB(dot)(w->state.head_mean + o * f, features, f), -16.0, 8.0);
        w->head_log_var[o] = KB(larger)(KB(dot)(gain, features, f), 0.0);
        w->noise_var[o] = level * exp(w->head_log_mean[o]
                                      + 0.5 * KB(clip)(w->head_log_var[o], 0.0, 3.0));
    }
}

/* (a, b) after a residual; returns r. */
KB_INLINE double KB(learn_level)(const double *noise, double *next, double e, double var,
                                 double stated, double trust, double share)
{
    double a = noise[0] + 0.5 * share, r = noise[1] / noise[0];
    for (int turn = 0; turn < 2; turn++) {
        double gain = r / (var * trust + r), rest = stated * r / (stated * trust + r);
        r = (noise[1] + 0.5 * share * (e * e * gain * gain + rest)) / a;
        r = KB(larger)(r, KB_SMALLEST_VAR);
    }
    double keep = 1.0 / (1.0 + (1.0 / 0.99 - 1.0) * share);
    next[0] = keep * a;
    next[1] = keep * r * a;
    return r;
}

KB_INLINE void KB(learn_head)(kb_work *w, int64_t o)
{
    double log_var = w->head_log_var[o], noise = w->noise_var[o];
    double e = w->residual[o], var = w->out_var[o], stated = w->stated_var[o], share = w->share[o];
    if (log_var <= KB_SMALLEST_VAR)
        return;
    int64_t f = w->features;
    double *gain = w->head_gain + o * kb_round_up(f, KB_ALIGN), *mean = w->state.head_mean + o * f;
    double v = KB(clip)(log_var, 0.0, 3.0), k = noise / (var + noise);
    double e2 = (k * e) * (k * e), rest = stated * noise / (stated + noise);
    double m2 = e2 + rest, s2 = 2.0 * rest * rest + 4.0 * rest * e2, d = 3.0 * exp(v) - 1.0;
    double dm = KB(clip)(share * v * (m2 / noise - 1.0) / d, -2.0, 2.0);
    double dv = share * v * v * (s2 / ((noise * d) * (noise * d)) - 1.0 / d);
    dv = dv < 0.0 ? dv : 0.0;
    double *update = KB(tiles_update)(&w->head[o]);
    for (int64_t i = 0; i < f; i++) {
        mean[i] += gain[i] * (dm / log_var);
        update[i] = gain[i] * (sqrt(-dv) / log_var);
    }
}

/* Residual, robust weight, noise level and measurement of each real target. */
KB_INLINE void KB(observe_gaussian)(kb_work *w, const double *y, double weight, double *inlier,
                                    double *surprise)
{
    const kb_net *net = w->net;
    int64_t seen = 0;
    double total_surprise = 0.0;
    for (int64_t o = 0; o < w->outputs; o++) {
        w->label_var[o] = INFINITY;
        if (net->learns_noise)
            memcpy(w->new_noise + 2 * o, w->state.noise + 2 * o, 2 * sizeof(double));
        if (isnan(y[o]))
            continue;
        seen++;
        double level = net->learns_noise ? w->state.noise[2 * o + 1] / w->state.noise[2 * o]
                                         : net->noise;
        double spread = w->stated_var[o] + KB(larger)(level, w->noise_var[o]);
        spread = KB(larger)(spread, KB_SMALLEST_VAR);
        double e = y[o] - w->out_mean[o], trust = 1.0;
        if (net->robust) {
            double u = e * e / spread;
            double odds = 990.0 * exp(-0.495 * (u < 1e6 ? u : 1e6));
            double p = odds / (1.0 + odds);
            *inlier = p < *inlier ? p : *inlier;
            trust = p + (1.0 - p) / 100.0;
        }
        total_surprise += (KB(clip)(e * e / spread, 0.0, 1e12) - 1.0) / 2.0;
        if (net->robust || net->learns_noise)
            e = KB(clip)(e, -5.0 * sqrt(spread), 5.0 * sqrt(spread));
        double share = trust * weight;
        if (net->learns_noise)
            level = KB(learn_level)(w->state.noise + 2 * o, w->new_noise + 2 * o, e,
                                    w->out_var[o], w->stated_var[o], trust, share);
        w->residual[o] = e;
        w->share[o] = share < trust ? share : trust; /* no row moves the head more than once */
        w->target[o] = w->out_mean[o] + e;
        w->label_var[o] = level / share;
    }
    *surprise = seen ? total_surprise / (double)seen : 0.0;
    double least = net->paper ? 0.0 : 1e-6;
    memset(w->direction, 0, (size_t)w->outputs * sizeof(double));
    for (int64_t o = 0; o < w->outputs; o++) {
        if (isinf(w->label_var[o]))
            continue;
        double mean, var;
        w->direction[o] = 1.0;
        KB(aim)(w, &mean, &var);
        double noise = KB(larger)(w->label_var[o], least * w->now_cov[o * w->outputs + o]);
        double total = KB(larger)(var + noise, KB_SMALLEST_VAR);
        KB(measure)(w, (w->target[o] - mean) / total, 1.0 / total);
        w->direction[o] = 0.0;
    }
}
