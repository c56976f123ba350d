/* Covariances of neurons, one neuron per lane of a vector: the packed upper triangle with KB_WIDTH
 * neurons' entries side by side. Where an update is pending, C -= push old old' goes first, entry by
 * entry in the same pass over memory, with no diagonal entry left below `least`. Every covariance
 * write of the lanes is here. */
#ifndef KBNN_LANES_H
#define KBNN_LANES_H

#include "vector.h"
#include "work.h"

/* gain = C z of a group of separate neurons. Returns how many diagonal entries had to be raised. */
KB_INLINE int64_t KB(lanes_gain)(double *restrict triangle, const double *restrict z,
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
        for (int64_t j = i + 1; j < dim; j++, entry++) {
            KB(vec) c = *entry;
            if (pending)
                *entry = c -= left * before[j];
            sum += c * z[j];
            out[j] += c * z[i];
        }
        out[i] = sum;
    }
    int64_t count = 0;
    for (int k = 0; k < KB_WIDTH; k++)
        count -= raised[k];
    return count;
}

/* C = (1 - share) C + share times the prior for a group of neurons. */
KB_INLINE void KB(lanes_forget)(double *triangle, const double *prior, int64_t dim, double share)
{
    for (int64_t k = 0; k < kb_triangle(dim) * KB_WIDTH; k++)
        triangle[k] *= 1.0 - share;
    for (int64_t i = 0; i < dim; triangle += (dim - i) * KB_WIDTH, i++)
        for (int k = 0; k < KB_WIDTH; k++)
            triangle[k] += share * prior[i * KB_WIDTH + k];
}

#endif
