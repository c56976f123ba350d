/* Class probabilities and how surprising a label was, as in kbnn/core/observation.py and kbnn/core/drift.py.
 * Included once per instruction set. */

/* p_k ~ prod_j Phi((m_k - m_j)/sqrt(8/pi + var(a_k - a_j))), normalised in logarithms. */
KB_INLINE void KB(class_probabilities)(kb_work *w)
{
    int64_t classes = w->outputs;
    double *p = w->probability, most = -INFINITY, total = 0.0;
    if (w->net->observation == KB_BERNOULLI) {
        double u = w->out_mean[0] / sqrt(KB_PROBIT_VAR + w->stated_var[0]);
        p[0] = exp(KB(log_cdf)(-u));
        p[1] = exp(KB(log_cdf)(u));
        return;
    }
    for (int64_t k = 0; k < classes; k++) {
        p[k] = 0.0;
        for (int64_t j = 0; j < classes; j++) {
            if (j == k)
                continue;
            double var = w->q[k * classes + k] + w->q[j * classes + j]
                         - 2.0 * w->q[k * classes + j];
            var = w->kappa * KB(larger)(var, 0.0) + w->input_var[k] + w->input_var[j];
            p[k] += KB(log_cdf)((w->out_mean[k] - w->out_mean[j]) / sqrt(KB_PROBIT_VAR + var));
        }
        most = KB(larger)(most, p[k]);
    }
    for (int64_t k = 0; k < classes; k++) {
        p[k] = exp(p[k] - most);
        total += p[k];
    }
    for (int64_t k = 0; k < classes; k++)
        p[k] /= total;
}

/* (log-loss - its expectation) in units of its spread. */
KB_INLINE double KB(class_surprise)(const kb_work *w, double y)
{
    int64_t classes = w->net->observation == KB_BERNOULLI ? 2 : w->outputs;
    int64_t label = w->net->observation == KB_BERNOULLI ? y > 0.5 : (int64_t)y;
    double entropy = 0.0, second = 0.0, loss = 0.0;
    for (int64_t k = 0; k < classes; k++) {
        double p = KB(larger)(w->probability[k], 1e-300), information = -log(p);
        entropy += p * information;
        second += p * information * information;
        if (k == label)
            loss = information;
    }
    return (loss - entropy) / sqrt(2.0 * (second - entropy * entropy + 0.1));
}
