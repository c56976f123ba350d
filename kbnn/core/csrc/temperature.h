/* Class probabilities with a temperature learned from the stream, as in
 * kbnn/distributions/temperature.py. */
#ifndef KBNN_TEMPERATURE_H
#define KBNN_TEMPERATURE_H

#include "kernel.h"

#include <stdint.h>

enum { KB_MOST_POWERS = 64 };

/* Powers and the logarithms of their prior; the state: rows of evidence, evidence of every power,
 * counts of every class. */
typedef struct {
    int64_t powers, classes;
    const double *power, *log_prior;
    double *known;
    double *work; /* 3 x classes + powers */
} kb_temperature;

/* Write tempered probabilities (rows, classes); with labels the state is updated with each row, which
 * counts `weight` times if that is not NULL. */
void kb_apply_temperature(const kb_temperature *s, int64_t rows, const double *p, const double *label,
                         const double *weight, double *stated, const kb_constants *k);

#endif
