/* Learn rows of many models, for kbnn/fleet/batched.py. */
#include "batched.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "scale.h"
#include "calibration.h"

/* No fused operations: numpy rounds after every step. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

/* Set pointers to the arrays of a state, which lie one after another. */
static void point_to(const kb_net *net, double *belief, kb_state *state)
{
    kb_lengths lengths;
    void **place = (void **)state;
    kb_lengths_of(net, &lengths);
    for (size_t k = 0; k < sizeof lengths / sizeof(int64_t); k++) {
        place[k] = belief;
        belief += ((const int64_t *)&lengths)[k];
    }
}

static void fetch(const double *model, int64_t numbers)
{
#if defined(__GNUC__)
    for (int64_t at = 0; at < numbers; at += 8)
        __builtin_prefetch(model + at);
#else
    (void)model, (void)numbers;
#endif
}

static int doubled(int64_t count, int64_t first) { return count >= first && !(count & (count - 1)); }

static int is_due(const int64_t *counts, const kb_learn_options *m)
{
    int64_t met = counts[KB_OF_MET] + 1;
    return doubled(counts[KB_OF_SEEN] + 1, m->first_refit)
           || doubled(counts[KB_OF_CURVE] + 1, m->first_point) || met == m->known || met == m->of_age;
}

static void keep(const kb_packed_layout *form, double *model, int64_t inputs, const double *x, double y,
                 double weight, double trust)
{
    int64_t *counts = (int64_t *)(model + form->counts);
    double *row = model + form->kept + counts[KB_OF_KEPT] % form->keep * (KB_KEPT_X + inputs);
    row[KB_KEPT_Y] = y;
    row[KB_KEPT_WEIGHT] = weight;
    row[KB_KEPT_NUMBER] = (double)(counts[KB_OF_MET] + 1);
    row[KB_KEPT_TRUST] = trust;
    memcpy(row + KB_KEPT_X, x, (size_t)inputs * sizeof(double));
    counts[KB_OF_KEPT]++;
}

/* Write the calibrated prediction of row k, in the user's units. */
static void say(const kb_batched_outputs *said, int64_t k, const kb_records *made, double *tail,
                const double *column, double y, const kb_learn_options *m, const kb_constants *c)
{
    kb_network_outputs given = {made->mean, made->function_var, made->noise_var, column + KB_CENTER,
                     column + KB_SCALE};
    kb_calibrated told = {said->stated + k * KB_PARAM_COUNT, said->mean + k, said->sd + k,
                    said->function_sd + k, said->noise_sd + k};
    kb_calibrate_outputs(tail, 1, 1, &given, &y, (int)m->robust, (int)m->tracked, &told, c);
}

int kb_batched_learn(kb_session **session, const kb_net *net, const kb_packed_layout *form, const kb_learn_options *manner,
                  double *models, const kb_batched_rows *rows, const kb_batched_outputs *said)
{
    int64_t inputs = net->widths[0] - net->directions, width = 1 + inputs, open = -1, left = -1;
    size_t columns = (size_t)(width * KB_COLUMN_FIELDS);
    double *scale = malloc((2 * columns + (size_t)inputs) * sizeof(double));
    double *room = scale + columns, *z = room + columns, label, weight = 1.0;
    double mean, function_var, noise_var, inlier, status;
    kb_records made = {&mean, &function_var, &noise_var, NULL, &inlier, &status};
    kb_state state;
    int failed = scale ? 0 : KB_NO_MEMORY;
    for (int64_t i = 0; i < rows->rows && !failed; i++) {
        int64_t k = rows->order[i], place = rows->at[k];
        double *model = models + place * form->size, y = rows->y[k];
        const double *x = rows->x + k * inputs;
        int64_t *counts = (int64_t *)(model + form->counts);
        if (i + 1 < rows->rows)
            fetch(models + rows->at[rows->order[i + 1]] * form->size, form->kept);
        said->done[k] = KB_LEFT;
        if (place == left)
            continue;
        left = place; /* unless all goes well */
        if (rows->alone[k] || is_due(counts, manner))
            continue;
        memcpy(scale, model + form->columns, columns * sizeof(double));
        int outgrown;
        kb_scale_rows(scale, 1, inputs, &y, x, &label, z, 1, rows->fixed, &outgrown, room, net->k);
        if (outgrown)
            continue;
        point_to(net, model, &state);
        if (!*session)
            failed = kb_open(session, net, &state);
        else if (open != place)
            kb_switch_state(*session, &state);
        open = -1;
        if (failed)
            break;
        if (rows->weight)
            weight = rows->weight[k];
        kb_data data = {1, KB_FIRST, z, NULL, &label, rows->weight ? &weight : NULL};
        failed = kb_run(*session, &data, &made, 1);
        if (failed || (int64_t)status & KB_ALARM)
            continue;
        kb_save(*session, &state);
        open = place;
        left = -1;
        memcpy(model + form->columns, scale, columns * sizeof(double));
        say(said, k, &made, model + form->tails, scale, y, manner, net->k);
        said->outlier[k] = manner->robust ? 1.0 - inlier : NAN;
        said->status[k] = (int64_t)status;
        keep(form, model, inputs, x, y, weight, manner->robust ? 1.0 - said->outlier[k] : 1.0);
        counts[KB_OF_SEEN]++;
        counts[KB_OF_MET]++;
        counts[KB_OF_CURVE]++;
        counts[KB_OF_SKIPPED] += ((int64_t)status & KB_UNLABELLED) > 0;
        said->done[k] = KB_DONE;
        if (!isfinite(y)) {
            counts[KB_OF_UNSCORED]++;
        } else if (!isfinite(said->mean[k]) || !isfinite(said->sd[k]) || !(said->sd[k] > 0.0)) {
            counts[KB_OF_INVALID]++;
        } else {
            kb_score_rows(&y, said->stated + k * KB_PARAM_COUNT, 1, said->judged + k * KB_SCORE_FIELDS,
                     net->k);
            said->done[k] = KB_JUDGED;
        }
    }
    free(scale);
    return failed;
}

void kb_batched_count(const kb_packed_layout *form, double *models, int64_t rows, const int64_t *at,
                   const double *terms, const int64_t *drawn, const int64_t *bin, const double *y,
                   const kb_constants *k)
{
    for (int64_t i = 0; i < rows; i++, terms += form->summed) {
        double *model = models + at[i] * form->size;
        int64_t *counts = (int64_t *)(model + form->counts);
        for (int64_t j = 0; j < form->summed; j++)
            model[form->sums + j] += terms[j];
        for (int64_t j = 0; j < form->drawn; j++)
            model[form->recent + j] += terms[drawn[j]];
        ((int64_t *)(model + form->pit))[bin[i]]++;
        kb_update_constant((kb_constant *)(model + form->constant), !counts[KB_OF_SCORED]++, y + i,
                          terms, 1, k->largest_term);
    }
}
