/* The compiled version of kbnn/core/reference.py: a session that learns and predicts rows. */
#ifndef KBNN_KERNEL_H
#define KBNN_KERNEL_H

#include <stdint.h>

enum { KB_FIRST, KB_AGAIN, KB_ROLE_REPLAY, KB_ROLE_REPLAY_MEANS }; /* roles of rows, see kb_data */
enum { KB_LEARNED = 1, KB_REJECTED = 2, KB_ALARM = 4, KB_UNLABELLED = 8 }; /* status bits */
enum { KB_ROWS, KB_REJECTIONS, KB_REPAIRS, KB_CLIPPED, KB_ALARMS, KB_DISTINCT, KB_REHEARSED, KB_MOVED,
       KB_BOUNDED, KB_RAISED, KB_COUNTS };

/* The numbers of kbnn/core/constants.py that are used here, under their names in small letters. */
#define KB_CONSTANTS(X) \
    X(lambda) X(probit_var) X(smallest_var) X(tiny) X(input_believed) X(label_limit) X(step_limit) \
    X(least_weight) X(most_weight) X(noise_loss) X(noise_rounds) X(noise_memory) \
    X(residual_bound) X(outlier_var_ratio) X(outlier_odds) X(outlier_decay) X(outlier_reach) \
    X(head_log_var_cap) X(head_log_mean_low) X(head_log_mean_high) X(head_step_cap) \
    X(surprise_cap) X(surprise_var) X(tail_reach) X(trusted) X(winsor) X(recent_rows) X(outgrown) \
    X(moved_share) X(rehearsed_power) X(smallest_spread) \
    X(half_50) X(half_60) X(half_80) X(half_90) X(half_95) X(outside_50) X(outside_80) X(outside_90) \
    X(outside_95) X(farthest_score) X(any_share) X(least_share) X(least_ratio) X(most_ratio) \
    X(tails_young) X(tails_every) X(tails_memory) X(extremes_memory) X(tails_reach) X(width_step) \
    X(width_pace) X(width_first) X(width_few) X(width_rest) X(width_cap) X(least_width) X(most_width) X(track_step) X(least_gain) X(most_gain) \
    X(count_rate) X(least_rate_var) X(most_rate_var) X(log_rate_limit) X(count_newton_turns) \
    X(count_newton_step) X(count_newton_rest) X(dispersion_kept) X(dispersion_bound) X(least_dispersion) \
    X(most_dispersion) X(dispersion_step) X(dispersion_move) X(outlier_share) X(largest_count) X(presence_rate) \
    X(log_odds_limit) X(sharpness_every) X(share_start) X(least_probability) X(largest_term)
#define KB_NODES 32

typedef struct {
#define KB_FIELD(name) double name;
    KB_CONSTANTS(KB_FIELD)
#undef KB_FIELD
    double nodes[KB_NODES], node_weights[KB_NODES]; /* quadrature on [-1, 1] */
} kb_constants;

/* The names in the struct's order, and NULL. */
extern const char *const kb_constant_names[];

/* A run of one unit's incoming weights. */
typedef struct {
    int64_t layer, unit, first, length;
} kb_piece;

/* f of a hidden layer; all doubles, since they come as one array. */
typedef struct {
    double code;        /* of activation.h */
    double printed;     /* Var f(a) as the paper prints it */
    double alpha, beta; /* slopes of a piecewise-linear activation; alpha of a probit */
} kb_activation;

/* The network: shape, options and the pieces of every covariance block. */
typedef struct {
    const kb_constants *k;
    int64_t layers;            /* weight layers */
    const int64_t *widths;     /* layers + 1 */
    const kb_activation *activations; /* layers - 1: of each hidden layer */
    int64_t paper;             /* the paper's scheme instead of the block filter */
    int64_t separate;          /* a block is one unit's incoming weights */
    int64_t observation;       /* a code of observe.h */
    int64_t labels, classes;   /* numbers in a label, number of classes */
    int64_t learns_noise, head, robust, drift;
    int64_t directions;        /* of a wide network's inputs, else 0; the first of widths counts them */
    int64_t printed;           /* a sigmoid output's variance is the one the paper prints */
    double noise, hidden_noise, limit;
    double spread;             /* share of var_a that the activation sees in the block filter */
    double floor;              /* least variance of a weight over that of its prior */
    double least_noise;        /* least share of an output's variance that counts as noise */
    double cap, slack, threshold, forget; /* of the drift detector */
    double repeats;            /* power of the variance inflation, `repeats` in kbnn/core/config.py */
    int64_t blocks;
    const int64_t *pieces;       /* each a kb_piece */
    const int64_t *block_pieces; /* blocks + 1 */
} kb_net;

/* The state, in the order of ARRAYS in kbnn/core/state.py. */
typedef struct {
    double *mean, *cov, *prior_mean, *prior_var, *noise, *head_mean, *head_cov;
    double *input_mean, *input_cov, *surprise;
    int64_t *counts;
    double *view;
} kb_state;

/* Length of each array of a state, in the same order. */
typedef struct {
    int64_t mean, cov, prior_mean, prior_var, noise, head_mean, head_cov;
    int64_t input_mean, input_cov, surprise, counts, view;
} kb_lengths;

/* One record per row. */
typedef struct {
    double *mean, *function_var, *noise_var, *probability, *inlier, *status;
} kb_records;

/* A block of rows; x_var and weight may be NULL. */
typedef struct {
    int64_t rows;
    int64_t role; /* new; of a later pass; replayed; or replayed for the means alone */
    const double *x, *x_var, *y, *weight;
} kb_data;

void kb_lengths_of(const kb_net *net, kb_lengths *lengths);

/* A state opened in working memory of its own. Updates may be pending between two calls; whether
 * they are makes no difference to any result. One thread at a time. */
typedef struct kb_session kb_session;

enum { KB_OPENED, KB_NO_MEMORY, KB_UNKNOWN_ACTIVATION, KB_UNKNOWN_OBSERVATION };

/* Copies what it needs; `net` must outlive the session. */
int kb_open(kb_session **session, const kb_net *net, const kb_state *state);
void kb_close(kb_session *session);

/* Replace the open state by another one of the same network. */
void kb_switch_state(kb_session *session, const kb_state *state);

/* Predicts each row and, if it is to `learn`, learns it; KB_NO_MEMORY before anything changed. */
int kb_run(kb_session *session, const kb_data *data, kb_records *records, int learn);

/* Copy out the current state; prior_var never changes and is not written. */
void kb_save(kb_session *session, kb_state *out);

/* The counts, and (a, b) of every output's noise; valid until the next row. */
const int64_t *kb_counts(kb_session *session);
const double *kb_noise(const kb_session *session);

/* Which instruction set runs: "avx512", "avx2" or "portable"; NULL or "" leaves the choice to the CPU. */
const char *kb_instruction_set(void);
int kb_use_instruction_set(const char *name);

#endif
