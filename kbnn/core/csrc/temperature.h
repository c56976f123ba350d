/* What is stated of classes: probabilities as sharp as the stream has shown that they may be. As in
 * kbnn/core/sharpness.py. */
#ifndef KBNN_TEMPERATURE_H
#define KBNN_TEMPERATURE_H

#include "kernel.h"

#include <stdint.h>

enum { KB_MOST_POWERS = 64 };

/* Powers and the logarithms of their prior; what is known, which begins with the rows seen and goes
 * on with the evidence of every power and the counts of every class. */
typedef struct {
    int64_t powers, classes;
    const double *power, *log_prior;
    double *known;
    double *work; /* 3 x classes + powers */
} kb_temperature;

/* States (rows, classes) from probabilities alike; with labels what is known learns from each, which
 * counts `weight` times if that is not NULL. */
void kb_apply_temperature(const kb_temperature *s, int64_t rows, const double *p, const double *label,
                         const double *weight, double *stated, const kb_constants *k);

#endif
