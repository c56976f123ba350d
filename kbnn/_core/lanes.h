/* Covariances of separate neurons, one neuron per lane of a vector: the packed upper triangle with
 * KB_WIDTH neurons' entries side by side. Included once per instruction set. */

/* gain = C z of a group of neurons. Where an update is pending, C -= push old old' goes first,
 * entry by entry in the same pass over memory, with no diagonal entry left below `least`. Returns
 * how many had to be raised. Every covariance write of the lanes goes through here. */
KB_INLINE int64_t KB(lanes_pass)(double *restrict triangle, const double *restrict z,
                                 double *restrict gain, const double *restrict old,
                                 const double *restrict push, const double *restrict least,
                                 int64_t dim, int pending)
{
    KB(vec) *entry = (KB(vec) *)triangle, *out = (KB(vec) *)gain;
    const KB(vec) *before = (const KB(vec) *)old, *floor = (const KB(vec) *)least;
    KB(vec) weight = *(const KB(vec) *)push;
    KB(mask) raised = {0};
    for (int64_t i = 0; i < dim; i++)
        out[i] = (KB(vec)){0};
    for (int64_t i = 0; i < dim; i++) {
        KB(vec) left = before[i] * weight;
        if (pending)
            *entry = KB(at_least)(*entry - left * before[i], floor[i], &raised);
        KB(vec) sum = out[i] + *entry++ * z[i];
        if (pending)
            for (int64_t j = i + 1; j < dim; j++, entry++) {
                KB(vec) c = *entry - left * before[j];
                *entry = c;
                sum += c * z[j];
                out[j] += c * z[i];
            }
        else
            for (int64_t j = i + 1; j < dim; j++, entry++) {
                sum += *entry * z[j];
                out[j] += *entry * z[i];
            }
        out[i] = sum;
    }
    int64_t count = 0;
    for (int k = 0; k < KB_WIDTH; k++)
        count -= raised[k];
    return count;
}
