/* Working memory: the belief in the order in which the row loop wants it.
 *
 * A layer of separate neurons is kept in groups of eight *lanes*: weights [group][input][lane],
 * covariance triangles [group][entry][lane], so that every vector register is full and every access
 * is in sequence. A layer of fewer than four separate neurons, and every joint block, keeps its
 * packed triangle row after row. Lanes beyond the last neuron hold zeros. */

#define KB_LANES 8
#define KB_LANES_FROM 4

typedef struct {
    int64_t inputs;   /* incoming weights per unit, bias included */
    int64_t units, groups, padded;
    int64_t start;    /* in the mean vector */
    int64_t cov;      /* in the covariance vector, separate layers only */
    int lanes;
    double *weights;  /* lanes: [groups][inputs][8]; else a view of the mean vector */
    double *triangle; /* lanes: [groups][entries][8]; else a view of the covariance vector */
    double *gain;     /* C z: lanes [groups][inputs][8], else [units][inputs] */
    double *z;        /* this layer's input [1, z]: (inputs) */
    double *vz;       /* and its variance */
    double *mu, *var, *seen_var, *own, *slope, *cov_az, *var_z; /* per unit, padded */
    double *coefficient; /* (outputs, padded): dE[y]/da */
    double *pull, *push; /* the two scalars of each unit's update */
} kb_layer;

typedef struct {
    int64_t dim, start, first_piece, pieces;
} kb_block;

typedef struct {
    const kb_net *net;
    kb_state *state;
    int64_t outputs, inputs, features, largest, classes;
    kb_layer *layer;
    kb_block *block;
    double *memory;
    double *h, *g;         /* joint blocks: H of one output, G = P H' of each, in block order */
    double *q;             /* (outputs, outputs) covariance of the outputs */
    double *out_mean, *out_var, *stated_var, *input_var, *target, *label_var, *residual;
    double *now_mean, *now_cov, *now_gain; /* m, Q, A while a label is worked in */
    double *pull, *spread; /* b, and B column after column */
    int64_t columns;
    double *direction, *cov_d, *gain_d;
    double *x_cov;         /* covariance of this row's inputs */
    double *head_gain, *head_log_mean, *head_log_var, *noise_var, *new_noise, *share;
    double *probability;   /* of each class, before the row's label */
    double *scratch;
    double kappa;          /* what repeated passes ask for, see kbnn/belief.py */
    int fresh;             /* rows of a first pass */
    int uncertain;         /* this row's inputs have a variance */
} kb_work;

static int64_t kb_triangle(int64_t dim) { return dim * (dim + 1) / 2; }

/* Counts with `memory` NULL, hands out with it set. */
static double *kb_take(double *memory, int64_t *used, int64_t size)
{
    double *place = memory ? memory + *used : NULL;
    *used += (size + KB_LANES - 1) / KB_LANES * KB_LANES;
    return place;
}

static int64_t kb_work_plan(kb_work *w, double *memory)
{
    const kb_net *net = w->net;
    int64_t used = 0, weights = 0, o = w->outputs;
    for (int64_t l = 0; l < net->layers; l++) {
        kb_layer *a = &w->layer[l];
        weights += a->units * a->inputs;
        if (a->lanes) {
            a->weights = kb_take(memory, &used, a->groups * a->inputs * KB_LANES);
            a->triangle = kb_take(memory, &used, a->groups * kb_triangle(a->inputs) * KB_LANES);
        }
        a->gain = kb_take(memory, &used, a->padded * a->inputs);
        a->z = kb_take(memory, &used, a->inputs + KB_LANES);
        a->vz = kb_take(memory, &used, a->inputs + KB_LANES);
        double **per_unit[] = {&a->mu, &a->var, &a->seen_var, &a->own, &a->slope, &a->cov_az, &a->var_z,
                               &a->pull, &a->push};
        for (size_t k = 0; k < sizeof per_unit / sizeof *per_unit; k++)
            *per_unit[k] = kb_take(memory, &used, a->padded);
        a->coefficient = kb_take(memory, &used, o * a->padded);
    }
    if (!net->separate) {
        w->h = kb_take(memory, &used, weights);
        w->g = kb_take(memory, &used, o * weights);
    }
    double **square[] = {&w->q, &w->now_cov, &w->now_gain, &w->spread};
    for (size_t k = 0; k < sizeof square / sizeof *square; k++)
        *square[k] = kb_take(memory, &used, o * o);
    double **per_output[] = {&w->out_mean, &w->out_var, &w->stated_var, &w->input_var, &w->target,
                             &w->label_var, &w->residual, &w->now_mean, &w->pull, &w->direction,
                             &w->cov_d, &w->gain_d, &w->head_log_mean, &w->head_log_var,
                             &w->noise_var, &w->share};
    for (size_t k = 0; k < sizeof per_output / sizeof *per_output; k++)
        *per_output[k] = kb_take(memory, &used, o);
    w->new_noise = kb_take(memory, &used, 2 * o);
    w->probability = kb_take(memory, &used, o + 1);
    w->head_gain = kb_take(memory, &used, o * w->features);
    w->x_cov = kb_take(memory, &used, w->inputs * w->inputs);
    w->scratch = kb_take(memory, &used, 2 * w->largest + 4 * KB_LANES + 4 * o);
    return used;
}

/* Lane order <-> the state's order, one layer at a time. */
static void kb_lanes_load(kb_layer *a, const double *mean, const double *cov)
{
    int64_t entries = kb_triangle(a->inputs);
    for (int64_t u = 0; u < a->units; u++) {
        int64_t group = u / KB_LANES, lane = u % KB_LANES;
        for (int64_t i = 0; i < a->inputs; i++)
            a->weights[(group * a->inputs + i) * KB_LANES + lane] =
                mean[a->start + u * a->inputs + i];
        for (int64_t t = 0; t < entries; t++)
            a->triangle[(group * entries + t) * KB_LANES + lane] = cov[a->cov + u * entries + t];
    }
}

static void kb_lanes_store(const kb_layer *a, double *mean, double *cov)
{
    int64_t entries = kb_triangle(a->inputs);
    for (int64_t u = 0; u < a->units; u++) {
        int64_t group = u / KB_LANES, lane = u % KB_LANES;
        for (int64_t i = 0; i < a->inputs; i++)
            mean[a->start + u * a->inputs + i] =
                a->weights[(group * a->inputs + i) * KB_LANES + lane];
        for (int64_t t = 0; t < entries; t++)
            cov[a->cov + u * entries + t] = a->triangle[(group * entries + t) * KB_LANES + lane];
    }
}

static void kb_work_shape(kb_work *w)
{
    const kb_net *net = w->net;
    int64_t start = 0, cov = 0;
    w->inputs = net->widths[0];
    w->outputs = net->widths[net->layers];
    w->features = net->widths[net->layers - 1] + 1;
    w->largest = w->inputs + 1;
    w->classes = net->observation == KB_BERNOULLI ? 2
                 : net->observation == KB_CATEGORICAL ? w->outputs : 0;
    for (int64_t l = 0; l < net->layers; l++) {
        kb_layer *a = &w->layer[l];
        a->inputs = net->widths[l] + 1;
        a->units = net->widths[l + 1];
        a->lanes = net->separate && a->units >= KB_LANES_FROM;
        a->groups = (a->units + KB_LANES - 1) / KB_LANES;
        a->padded = a->groups * KB_LANES;
        a->start = start;
        a->cov = cov;
        start += a->units * a->inputs;
        cov += a->units * kb_triangle(a->inputs);
        if (a->inputs > w->largest)
            w->largest = a->inputs;
        if (a->padded > w->largest)
            w->largest = a->padded;
    }
    cov = 0;
    for (int64_t b = 0; b < net->blocks; b++) {
        kb_block *k = &w->block[b];
        k->first_piece = net->block_pieces[b];
        k->pieces = net->block_pieces[b + 1] - k->first_piece;
        k->dim = 0;
        for (int64_t p = k->first_piece; p < k->first_piece + k->pieces; p++)
            k->dim += net->pieces[p * KB_PIECE_FIELDS + KB_PIECE_LENGTH];
        k->start = cov;
        cov += kb_triangle(k->dim);
        if (k->dim > w->largest)
            w->largest = k->dim;
    }
}

static void kb_work_close(kb_work *w)
{
    free(w->memory);
    free(w->layer);
    free(w->block);
}

static int kb_work_open(kb_work *w, const kb_net *net, kb_state *state)
{
    memset(w, 0, sizeof *w);
    w->net = net;
    w->state = state;
    w->layer = calloc((size_t)net->layers, sizeof *w->layer);
    w->block = calloc((size_t)net->blocks, sizeof *w->block);
    if (!w->layer || !w->block) {
        kb_work_close(w);
        return -1;
    }
    kb_work_shape(w);
    size_t size = (size_t)kb_work_plan(w, NULL) * sizeof(double);
    w->memory = aligned_alloc(64, (size + 127) / 64 * 64);
    if (!w->memory) {
        kb_work_close(w);
        return -1;
    }
    memset(w->memory, 0, size);
    kb_work_plan(w, w->memory);
    for (int64_t l = 0; l < net->layers; l++) {
        kb_layer *a = &w->layer[l];
        if (a->lanes)
            kb_lanes_load(a, state->mean, state->cov);
        else {
            a->weights = state->mean + a->start;
            a->triangle = net->separate ? state->cov + a->cov : NULL;
        }
        a->z[0] = 1.0;
    }
    return 0;
}

static void kb_work_store(kb_work *w)
{
    for (int64_t l = 0; l < w->net->layers; l++)
        if (w->layer[l].lanes)
            kb_lanes_store(&w->layer[l], w->state->mean, w->state->cov);
}
