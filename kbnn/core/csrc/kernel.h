/* The compiled twin of kbnn.core.twin: a session that learns and predicts rows. */
#ifndef KBNN_KERNEL_H
#define KBNN_KERNEL_H

#include <stdint.h>

enum { KB_PIECEWISE, KB_PROBIT, KB_TANH, KB_STEP };                      /* activations */
enum { KB_GAUSSIAN, KB_BERNOULLI, KB_CATEGORICAL, KB_SIGMOID };          /* observations */
enum { KB_LEARNED = 1, KB_REJECTED = 2, KB_ALARM = 4, KB_UNLABELLED = 8 }; /* status bits */
enum { KB_ROWS, KB_REJECTIONS, KB_REPAIRS, KB_CLIPPED, KB_ALARMS, KB_DISTINCT, KB_COUNTS };

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

/* The belief, in the order of ARRAYS in kbnn/core/state.py. */
typedef struct {
    double *mean, *cov, *prior_mean, *prior_var, *noise, *head_mean, *head_cov;
    double *input_mean, *input_cov, *surprise;
    int64_t *counts;
} kb_state;

/* How many numbers each array of a belief has, in the same order. */
typedef struct {
    int64_t mean, cov, prior_mean, prior_var, noise, head_mean, head_cov;
    int64_t input_mean, input_cov, surprise, counts;
} kb_lengths;

/* One record per row. */
typedef struct {
    double *mean, *function_var, *noise_var, *probability, *inlier, *status;
} kb_records;

/* A block of rows; x_var and weight may be NULL. */
typedef struct {
    int64_t rows, labels, again; /* again: learned before, in an earlier pass */
    const double *x, *x_var, *y, *weight;
} kb_data;

void kb_lengths_of(const kb_net *net, kb_lengths *lengths);

/* A belief opened in working memory of its own. Updates may be pending between two calls; whether
 * they are makes no difference to any result. One thread at a time. */
typedef struct kb_session kb_session;

/* Copies what it needs; `net` must outlive the session. NULL when memory is short. */
kb_session *kb_open(const kb_net *net, const kb_state *state);
void kb_close(kb_session *session);

/* Predicts each row and, if it is to `learn`, learns it. */
void kb_run(kb_session *session, const kb_data *data, kb_records *records, int learn);

/* The belief as it is now, copied out; prior_var never changes and is left alone. */
void kb_save(kb_session *session, kb_state *out);

/* The counts, and (a, b) of every output's noise; valid until the next row. */
const int64_t *kb_counts(kb_session *session);
const double *kb_noise(const kb_session *session);

/* Which instruction set runs: "avx512", "avx2" or "portable"; NULL leaves the choice to the CPU. */
const char *kb_instructions(void);
int kb_use(const char *name);

#endif
