/* The block filter, as in kbnn/reference.py. Separate neurons share their input vector: a unit's
 * gain C z serves its variance and its update alike, and the update of each unit is one pair of
 * scalars. Included once per instruction set. */

/* mu and, for separate neurons, gain = C z and own = z' C z of every unit of a layer. */
KB_INLINE void KB(layer_moments)(const kb_work *w, kb_layer *a)
{
    if (a->lanes) {
        int64_t entries = kb_triangle(a->inputs);
        for (int64_t g = 0; g < a->groups; g++) {
            double *gain = a->gain + g * a->inputs * KB_LANES;
            KB(multiply_lanes)(a->triangle + g * entries * KB_LANES, a->z, gain, a->inputs);
            const KB(v8) *weights = (const KB(v8) *)(a->weights + g * a->inputs * KB_LANES);
            const KB(v8) *gains = (const KB(v8) *)gain;
            KB(v8) mu = {0}, own = {0};
            for (int64_t i = 0; i < a->inputs; i++) {
                mu += weights[i] * a->z[i];
                own += gains[i] * a->z[i];
            }
            *(KB(v8) *)(a->mu + g * KB_LANES) = mu;
            *(KB(v8) *)(a->own + g * KB_LANES) = own;
        }
        return;
    }
    for (int64_t u = 0; u < a->units; u++) {
        a->mu[u] = KB(dot)(a->weights + u * a->inputs, a->z, a->inputs);
        if (!w->net->separate)
            continue;
        double *gain = a->gain + u * a->inputs;
        KB(multiply)(a->triangle + u * kb_triangle(a->inputs), a->z, gain, a->inputs);
        a->own[u] = KB(dot)(gain, a->z, a->inputs);
    }
}

/* own = z' C z of a layer's units from the joint blocks that hold their incoming weights; with
 * `trace` instead sum_i vz_i C_ii. */
KB_INLINE void KB(joint_own)(kb_work *w, int64_t l, double *own, int trace)
{
    const kb_net *net = w->net;
    const kb_layer *a = &w->layer[l];
    for (int64_t b = 0; b < net->blocks; b++) {
        const kb_block *block = &w->block[b];
        const double *p = w->state->cov + block->start;
        int64_t left = block->dim;
        for (int64_t k = 0; k < block->pieces; k++) {
            const int64_t *piece = net->pieces + (block->first_piece + k) * KB_PIECE_FIELDS;
            int64_t n = piece[KB_PIECE_LENGTH], first = piece[KB_PIECE_FIRST];
            if (piece[KB_PIECE_LAYER] == l && !trace)
                own[piece[KB_PIECE_UNIT]] += KB(quadratic)(p, left, a->z + first, n);
            else if (piece[KB_PIECE_LAYER] == l) {
                const double *diagonal = p;
                for (int64_t i = 0; i < n; diagonal += left - i, i++)
                    own[piece[KB_PIECE_UNIT]] += a->vz[first + i] * *diagonal;
            }
            p += kb_triangle(left) - kb_triangle(left - n);
            left -= n;
        }
    }
}

/* sum_i vz_i C_ii of every unit of a layer. */
static void KB(trace_spread)(kb_work *w, int64_t l, double *out)
{
    const kb_layer *a = &w->layer[l];
    int64_t entries = kb_triangle(a->inputs);
    for (int64_t u = 0; u < a->padded; u++)
        out[u] = 0.0;
    if (!w->net->separate) {
        KB(joint_own)(w, l, out, 1);
        return;
    }
    for (int64_t u = 0; u < a->units; u++) {
        int64_t at = 0;
        for (int64_t i = 0; i < a->inputs; at += a->inputs - i, i++)
            out[u] += a->vz[i] * (a->lanes
                ? a->triangle[((u / KB_LANES) * entries + at) * KB_LANES + u % KB_LANES]
                : a->triangle[u * entries + at]);
    }
}

/* out_u += sum_i vz_i w_ui^2. */
static void KB(weight_spread)(const kb_layer *a, double *out)
{
    for (int64_t g = 0; a->lanes && g < a->groups; g++) {
        const KB(v8) *weights = (const KB(v8) *)(a->weights + g * a->inputs * KB_LANES);
        KB(v8) sum = {0};
        for (int64_t i = 0; i < a->inputs; i++)
            sum += weights[i] * weights[i] * a->vz[i];
        *(KB(v8) *)(out + g * KB_LANES) += sum;
    }
    for (int64_t u = 0; !a->lanes && u < a->units; u++) {
        const double *weights = a->weights + u * a->inputs;
        double sum = 0.0;
        for (int64_t i = 0; i < a->inputs; i++)
            sum += weights[i] * weights[i] * a->vz[i];
        out[u] += sum;
    }
}

/* below_i = sum_u scale_u w_ui (or w_ui^2) over the units of a layer, bias left out. */
KB_INLINE void KB(back)(const kb_layer *a, const double *scale, double *below, int squared)
{
    for (int64_t i = 1; a->lanes && i < a->inputs; i++) {
        KB(v8) sum = {0};
        for (int64_t g = 0; g < a->groups; g++) {
            KB(v8) v = *(const KB(v8) *)(a->weights + (g * a->inputs + i) * KB_LANES);
            if (squared)
                v *= v;
            sum += v * *(const KB(v8) *)(scale + g * KB_LANES);
        }
        below[i - 1] = KB(sum8)(sum);
    }
    if (a->lanes)
        return;
    for (int64_t i = 1; i < a->inputs; i++)
        below[i - 1] = 0.0;
    for (int64_t u = 0; u < a->units; u++) {
        const double *weights = a->weights + u * a->inputs;
        if (scale[u] == 0.0)
            continue;
        for (int64_t i = 1; i < a->inputs; i++)
            below[i - 1] += scale[u] * (squared ? weights[i] * weights[i] : weights[i]);
    }
}

KB_INLINE void KB(filter_forward)(kb_work *w)
{
    int64_t last = w->net->layers - 1;
    for (int64_t l = 0; l < last; l++) {
        kb_layer *a = &w->layer[l], *next = &w->layer[l + 1];
        KB(layer_moments)(w, a);
        if (!w->net->separate) {
            memset(a->own, 0, (size_t)a->padded * sizeof(double));
            KB(joint_own)(w, l, a->own, 0);
        }
        memcpy(a->var, a->own, (size_t)a->padded * sizeof(double));
        if (l > 0 || w->uncertain) {
            if (l == 0) {
                KB(trace_spread)(w, 0, a->cov_az);
                for (int64_t u = 0; u < a->padded; u++)
                    a->var[u] += a->cov_az[u];
            }
            KB(weight_spread)(a, a->var);
        }
        for (int64_t u = 0; u < a->padded; u++)
            a->var[u] = a->var[u] > KB_SMALLEST_VAR ? a->var[u] : KB_SMALLEST_VAR;
        for (int64_t u = 0; u < a->padded; u++)
            a->seen_var[u] = KB(larger)(w->net->spread * a->var[u], KB_SMALLEST_VAR);
        KB(activate)(w->net, a, a->seen_var, next->z + 1, 0);
        for (int64_t u = 0; u < a->units; u++)
            next->vz[u + 1] = a->slope[u] * a->slope[u] * a->var[u];
    }
    KB(layer_moments)(w, &w->layer[last]);
    memcpy(w->out_mean, w->layer[last].mu, (size_t)w->outputs * sizeof(double));
}

/* dE[y_o]/da of every unit, from the last layer down. */
KB_INLINE void KB(filter_coefficients)(kb_work *w)
{
    int64_t last = w->net->layers - 1;
    for (int64_t o = 0; o < w->outputs; o++) {
        kb_layer *top = &w->layer[last];
        memset(top->coefficient + o * top->padded, 0, (size_t)top->padded * sizeof(double));
        top->coefficient[o * top->padded + o] = 1.0;
        for (int64_t l = last; l > 0; l--) {
            kb_layer *a = &w->layer[l], *below = &w->layer[l - 1];
            double *c = below->coefficient + o * below->padded;
            KB(back)(a, a->coefficient + o * a->padded, c, 0);
            for (int64_t u = 0; u < below->units; u++)
                c[u] *= below->slope[u];
        }
    }
}

/* G = P H' and Q = H G over the joint blocks. */
KB_INLINE void KB(joint_gains)(kb_work *w)
{
    const kb_net *net = w->net;
    int64_t outputs = w->outputs, weights = 0;
    for (int64_t b = 0; b < net->blocks; b++)
        weights += w->block[b].dim;
    for (int64_t b = 0, at = 0; b < net->blocks; at += w->block[b].dim, b++) {
        const kb_block *block = &w->block[b];
        for (int64_t o = 0; o < outputs; o++) {
            double *h = w->h + at;
            for (int64_t k = 0; k < block->pieces; k++) {
                const int64_t *piece = net->pieces + (block->first_piece + k) * KB_PIECE_FIELDS;
                const kb_layer *a = &w->layer[piece[KB_PIECE_LAYER]];
                double c = a->coefficient[o * a->padded + piece[KB_PIECE_UNIT]];
                const double *z = a->z + piece[KB_PIECE_FIRST];
                for (int64_t i = 0; i < piece[KB_PIECE_LENGTH]; i++)
                    *h++ = c * z[i];
            }
            h = w->h + at;
            KB(multiply)(w->state->cov + block->start, h, w->g + o * weights + at, block->dim);
            for (int64_t p = 0; p <= o; p++)
                w->q[o * outputs + p] += KB(dot)(h, w->g + p * weights + at, block->dim);
        }
    }
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t p = 0; p < o; p++)
            w->q[p * outputs + o] = w->q[o * outputs + p];
}

KB_INLINE void KB(filter_outputs)(kb_work *w)
{
    int64_t outputs = w->outputs;
    KB(filter_forward)(w);
    KB(filter_coefficients)(w);
    memset(w->q, 0, (size_t)(outputs * outputs) * sizeof(double));
    memset(w->input_var, 0, (size_t)outputs * sizeof(double));
    if (!w->net->separate)
        KB(joint_gains)(w);
    for (int64_t l = 0; w->net->separate && l < w->net->layers; l++) {
        const kb_layer *a = &w->layer[l];
        for (int64_t o = 0; o < outputs; o++)
            for (int64_t p = 0; p < outputs; p++) {
                const double *c = a->coefficient + o * a->padded, *d = a->coefficient + p * a->padded;
                double sum = 0.0;
                for (int64_t u = 0; u < a->units; u++)
                    sum += c[u] * d[u] * a->own[u];
                w->q[o * outputs + p] += sum;
            }
    }
    if (!w->uncertain)
        return;
    kb_layer *first = &w->layer[0];
    KB(trace_spread)(w, 0, first->cov_az);
    for (int64_t o = 0; o < outputs; o++) {
        const double *c = first->coefficient + o * first->padded;
        KB(back)(first, c, w->scratch, 0);
        for (int64_t i = 1; i < first->inputs; i++)
            w->input_var[o] += first->vz[i] * w->scratch[i - 1] * w->scratch[i - 1];
        for (int64_t u = 0; u < first->units; u++)
            w->input_var[o] += c[u] * c[u] * first->cov_az[u];
    }
}

/* mean_u += pull_u gain_u, C_u -= push_u gain_u gain_u' for a layer of separate neurons. */
KB_INLINE void KB(separate_update)(kb_work *w, kb_layer *a, double floor)
{
    int64_t entries = kb_triangle(a->inputs), *repairs = &w->state->counts[KB_REPAIRS];
    const double *prior = w->state->prior_var + a->start;
    for (int64_t g = 0; a->lanes && g < a->groups; g++) {
        int64_t lanes = a->units - g * KB_LANES;
        double *gain = a->gain + g * a->inputs * KB_LANES;
        KB(v8) *weights = (KB(v8) *)(a->weights + g * a->inputs * KB_LANES);
        KB(v8) pull = *(const KB(v8) *)(a->pull + g * KB_LANES);
        for (int64_t i = 0; i < a->inputs; i++)
            weights[i] += pull * ((const KB(v8) *)gain)[i];
        KB(shrink_lanes)(a->triangle + g * entries * KB_LANES, gain, a->push + g * KB_LANES,
                         a->inputs, floor, prior + g * KB_LANES * a->inputs,
                         lanes < KB_LANES ? lanes : KB_LANES, repairs);
    }
    for (int64_t u = 0; !a->lanes && u < a->units; u++) {
        const double *gain = a->gain + u * a->inputs;
        for (int64_t i = 0; i < a->inputs; i++)
            a->weights[u * a->inputs + i] += a->pull[u] * gain[i];
        KB(shrink)(a->triangle + u * entries, gain, a->push[u], a->inputs, floor,
                   prior + u * a->inputs, repairs);
    }
}

/* w += G b, P -= (G B)(G B)' over the joint blocks. */
KB_INLINE int KB(joint_update)(kb_work *w)
{
    const kb_net *net = w->net;
    int64_t outputs = w->outputs, weights = 0;
    for (int64_t b = 0; b < net->blocks; b++)
        weights += w->block[b].dim;
    double check = 0.0, *move = w->h;
    for (int64_t i = 0; i < weights; i++) {
        double sum = 0.0;
        for (int64_t o = 0; o < outputs; o++)
            sum += w->g[o * weights + i] * w->pull[o];
        move[i] = sum;
        check += fabs(sum);
    }
    if (!isfinite(check))
        return 0;
    for (int64_t b = 0, at = 0; b < net->blocks; at += w->block[b].dim, b++) {
        const kb_block *block = &w->block[b];
        double *prior = w->scratch, *u = w->scratch + w->largest;
        int64_t i = 0;
        for (int64_t k = 0; k < block->pieces; k++) {
            const int64_t *piece = net->pieces + (block->first_piece + k) * KB_PIECE_FIELDS;
            const kb_layer *a = &w->layer[piece[KB_PIECE_LAYER]];
            int64_t from = piece[KB_PIECE_UNIT] * a->inputs + piece[KB_PIECE_FIRST];
            for (int64_t n = 0; n < piece[KB_PIECE_LENGTH]; n++, i++) {
                a->weights[from + n] += move[at + i];
                prior[i] = w->state->prior_var[a->start + from + n];
            }
        }
        for (int64_t c = 0; c < w->columns; c++) {
            for (i = 0; i < block->dim; i++)
                u[i] = 0.0;
            for (int64_t o = 0; o < outputs; o++)
                for (i = 0; i < block->dim; i++)
                    u[i] += w->g[o * weights + at + i] * w->spread[c * outputs + o];
            KB(shrink)(w->state->cov + block->start, u, 1.0, block->dim, 1e-12, prior,
                       &w->state->counts[KB_REPAIRS]);
        }
    }
    return 1;
}

KB_INLINE int KB(filter_update)(kb_work *w)
{
    int64_t outputs = w->outputs;
    if (!w->net->separate)
        return KB(joint_update)(w);
    double check = 0.0;
    for (int64_t l = 0; l < w->net->layers; l++) {
        kb_layer *a = &w->layer[l];
        for (int64_t u = 0; u < a->padded; u++) {
            double pull = 0.0, push = 0.0;
            for (int64_t o = 0; o < outputs; o++)
                pull += a->coefficient[o * a->padded + u] * w->pull[o];
            for (int64_t c = 0; c < w->columns; c++) {
                double along = 0.0;
                for (int64_t o = 0; o < outputs; o++)
                    along += a->coefficient[o * a->padded + u] * w->spread[c * outputs + o];
                push += along * along;
            }
            a->pull[u] = pull;
            a->push[u] = push;
            check += fabs(pull) * (1.0 + a->own[u]) + push;
        }
    }
    if (!isfinite(check))
        return 0;
    for (int64_t l = 0; l < w->net->layers; l++)
        KB(separate_update)(w, &w->layer[l], 1e-12);
    return 1;
}
