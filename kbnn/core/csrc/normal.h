/* exp, the normal cdf and their relatives without branches, so that loops over units vectorise.
 */
#ifndef KBNN_NORMAL_H
#define KBNN_NORMAL_H

#include "target.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

KB_INLINE double KB(clip)(double value, double low, double high)
{
    return value < low ? low : (value > high ? high : value);
}

KB_INLINE double KB(larger)(double a, double b) { return a > b ? a : b; }

/* exp(y) for -708 <= y <= 700: y = n log 2 + r, Taylor to r^13 (|r| <= 0.35: error below 1e-17). */
KB_INLINE double KB(fast_exp)(double y)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    double shifted = y * 1.4426950408889634 + magic;
    double n = shifted - magic;
    double r = (y - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.6059043836821613e-10;
    p = p * r + 2.08767569878681e-09;
    p = p * r + 2.505210838544172e-08;
    p = p * r + 2.755731922398589e-07;
    p = p * r + 2.7557319223985893e-06;
    p = p * r + 2.48015873015873e-05;
    p = p * r + 0.0001984126984126984;
    p = p * r + 0.001388888888888889;
    p = p * r + 0.008333333333333333;
    p = p * r + 0.041666666666666664;
    p = p * r + 0.16666666666666666;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int64_t)((uint64_t)(bits + 1023) << 52); /* 2^n */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* exp(x^2) erfc(x) for x >= 0: a polynomial in t = (x - 3.75)/(x + 3.75) over 1 + 2 x, fitted at
 * Chebyshev nodes; relative error below 1e-15. */
KB_INLINE double KB(scaled_erfc)(double x)
{
    double t = (x - 3.75) / (x + 3.75);
    double p = -2.7293941332533855e-09;
    p = p * t - 1.952790162974837e-09;
    p = p * t + 3.256499083798513e-08;
    p = p * t + 1.8778501156468795e-08;
    p = p * t - 2.4996538037405243e-07;
    p = p * t - 5.0816911811698186e-08;
    p = p * t + 1.7438577411359181e-06;
    p = p * t - 9.79297529099823e-07;
    p = p * t - 1.143961526007595e-05;
    p = p * t + 2.238759272534769e-05;
    p = p * t + 5.164737123871838e-05;
    p = p * t - 0.0002901553656394713;
    p = p * t + 0.00029371408777227685;
    p = p * t + 0.0017556261692276722;
    p = p * t - 0.00974657962081509;
    p = p * t + 0.028362277371370044;
    p = p * t - 0.058693398584491845;
    p = p * t + 0.09230432116435616;
    p = p * t - 0.10880393014193915;
    p = p * t + 0.08227673848999159;
    p = p * t + 0.0035854154854663067;
    p = p * t - 0.14024059858554522;
    p = p * t + 1.2375126308378275;
    return p / (1.0 + 2.0 * x);
}

typedef struct {
    double cdf, pdf, excess; /* Phi(u), N(u), M(u) = u Phi(u) + N(u) */
} KB(normal_t);

/* The last u whose tail fast_exp can tell. */
#define KB_FARTHEST 37.5

/* One exp and one scaled erfc give all three; in the tails |u| counts as no more than the farthest. */
KB_INLINE KB(normal_t) KB(normal)(double u)
{
    double size = fabs(u);
    size = size < KB_FARTHEST ? size : KB_FARTHEST;
    double decay = KB(fast_exp)(-0.5 * size * size);
    double scaled = KB(scaled_erfc)(size * 0.70710678118654752440);
    double tail = 0.5 * decay * scaled;
    double pdf = 0.39894228040143267794 * decay;
    double below = pdf * (1.0 - size * 1.2533141373155002512 * scaled);
    below = below > 0.0 ? below : 0.0;
    KB(normal_t) n;
    n.cdf = u > 0.0 ? 1.0 - tail : tail;
    n.pdf = pdf;
    n.excess = below + (u > 0.0 ? u : 0.0);
    return n;
}

/* N(u)/Phi(u). */
KB_INLINE double KB(hazard)(double u)
{
    if (u > 0.0) {
        KB(normal_t) n = KB(normal)(u);
        return n.pdf / n.cdf;
    }
    return 0.79788456080286535588 / KB(scaled_erfc)(-u * 0.70710678118654752440);
}

/* log Phi(u). */
KB_INLINE double KB(log_cdf)(double u)
{
    if (u > 0.0)
        return log1p(-0.5 * erfc(u * 0.70710678118654752440));
    return -0.5 * u * u + log(0.5 * KB(scaled_erfc)(-u * 0.70710678118654752440));
}

#endif
