/* The compiled twin of kbnn.core.twin: same arguments, same results, one call per block of rows. */
#ifndef KBNN_KERNEL_H
#define KBNN_KERNEL_H

#include <stdint.h>

enum { KB_PIECEWISE, KB_PROBIT, KB_TANH, KB_STEP };                      /* activations */
enum { KB_GAUSSIAN, KB_BERNOULLI, KB_CATEGORICAL, KB_SIGMOID };          /* observations */
enum { KB_LEARNED = 1, KB_REJECTED = 2, KB_ALARM = 4 };                  /* status bits */
enum { KB_ROWS, KB_REJECTIONS, KB_REPAIRS, KB_CLIPPED, KB_ALARMS, KB_FRESH };

/* A run of one unit's incoming weights. */
typedef struct {
    int64_t layer, unit, first, length;
} kb_piece;

/* The network: shape, options and the pieces of every covariance block. */
typedef struct {
    int64_t layers;            /* weight layers */
    const int64_t *widths;     /* layers + 1 */
    int64_t activation;
    double alpha, beta;        /* slopes of a piecewise-linear activation; alpha of a probit */
    int64_t paper;             /* the paper's scheme instead of the block filter */
    int64_t separate;          /* a block is one unit's incoming weights */
    int64_t observation;
    int64_t learns_noise, head, robust, drift, printed;
    double noise, hidden_noise, limit;
    double spread;             /* share of var_a that the activation sees in the block filter */
    int64_t blocks;
    const int64_t *pieces;       /* each a kb_piece */
    const int64_t *block_pieces; /* blocks + 1 */
} kb_net;

/* The belief, written in place. */
typedef struct {
    double *mean, *cov, *prior_mean;
    const double *prior_var;
    double *noise, *head_mean, *head_cov, *input_mean, *input_cov, *surprise;
    int64_t *counts;
} kb_state;

/* One record per row. */
typedef struct {
    double *mean, *function_var, *noise_var, *probability, *inlier, *status;
} kb_records;

/* A block of rows; x_var and weight may be NULL. */
typedef struct {
    int64_t rows, labels, fresh; /* fresh: not learned in an earlier pass */
    const double *x, *x_var, *y, *weight;
} kb_data;

/* Both return 0, or -1 when memory is short (then nothing was written). */
int kb_learn(const kb_net *net, kb_state *state, const kb_data *data, kb_records *records);
int kb_predict(const kb_net *net, kb_state *state, const kb_data *data, kb_records *records);

/* Which instruction set runs: "avx512", "avx2" or "portable"; NULL leaves the choice to the CPU. */
const char *kb_instructions(void);
int kb_use(const char *name);

#endif
