/* The session, and which instruction set runs it. The rows are elsewhere: what opens and closes is worth
 * less of the compiler's time. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

#include "activation.h"
#include "observe.h"
#include "plan.h"
#include "replay.h"

#define KB_SMALL_BLOCK 100 /* weights, on average of a network's blocks */
#define KB_WHOLE_FAMILY 26 /* of AMD's processors, from which on vectors of eight are not halved */

#if defined(__x86_64__)
#define KB_X86 1
#include <cpuid.h>
#include <xmmintrin.h>
#endif

const char *const kb_constant_names[] = {
#define KB_QUOTED(name) #name,
    KB_CONSTANTS(KB_QUOTED)
#undef KB_QUOTED
    NULL,
};

static const kb_variant *const kb_variants[] = {
#ifdef KB_X86
    &kb_avx512, &kb_avx2,
#endif
    &kb_portable,
};

static int kb_supported(const char *name)
{
#ifdef KB_X86
    __builtin_cpu_init();
    if (!strcmp(name, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
               && __builtin_cpu_supports("avx512vl");
    if (!strcmp(name, "avx2"))
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return !strcmp(name, "portable");
}

static const kb_variant *kb_chosen;
static int kb_by_hand; /* the choice is not ours */

int kb_use_instruction_set(const char *name)
{
    int any = !name || !*name;
    for (size_t i = 0; i < sizeof kb_variants / sizeof *kb_variants; i++)
        if ((any || !strcmp(name, kb_variants[i]->name)) && kb_supported(kb_variants[i]->name)) {
            kb_chosen = kb_variants[i];
            kb_by_hand = !any;
            return 0;
        }
    return -1;
}

#ifdef KB_X86
/* Whether vectors of eight are always the fastest, as measured. Asking the processor is slow. */
static int kb_prefers_eight(void)
{
    static int known = -1;
    unsigned top, b, c, d, family;
    if (known < 0)
        known = __get_cpuid(0, &top, &b, &c, &d) && !memcmp(&b, "Auth", 4)
                && !memcmp(&d, "enti", 4) && !memcmp(&c, "cAMD", 4)
                && __get_cpuid(1, &family, &b, &c, &d)
                && (family >> 8 & 15) + (family >> 20 & 255) >= KB_WHOLE_FAMILY;
    return known;
}
#endif

/* What runs a network fastest: on most processors, vectors of eight are half empty in small joint
 * blocks. */
static const kb_variant *kb_suited(const kb_net *net)
{
    kb_instruction_set();
#ifdef KB_X86
    kb_lengths n;
    kb_lengths_of(net, &n);
    if (kb_chosen == &kb_avx512 && !kb_by_hand && !net->separate
        && n.cov <= net->blocks * kb_triangle(KB_SMALL_BLOCK) && !kb_prefers_eight())
        return &kb_avx2;
#endif
    return kb_chosen;
}

const char *kb_instruction_set(void)
{
    if (!kb_chosen)
        kb_use_instruction_set(NULL);
    return kb_chosen->name;
}

/* Covariances of settled directions decay into subnormal numbers, which are a hundred times slower
 * and mean nothing here: results below 2.2e-308 become 0 while rows run. */
static unsigned kb_flush_subnormals(void)
{
#ifdef KB_X86
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    return mode;
#else
    return 0;
#endif
}

static void kb_restore(unsigned mode)
{
#ifdef KB_X86
    _mm_setcsr(mode);
#else
    (void)mode;
#endif
}

struct kb_session {
    kb_work work;
    const kb_variant *variant; /* once: another thread may choose while rows run */
};

int kb_open(kb_session **out, const kb_net *net, const kb_state *state)
{
    *out = NULL;
    for (int64_t l = 0; l + 1 < net->layers; l++)
        if (!(net->activations[l].code >= 0 && net->activations[l].code < KB_ACTIVATIONS))
            return KB_UNKNOWN_ACTIVATION;
    if (net->observation < 0 || net->observation >= KB_OBSERVATIONS)
        return KB_UNKNOWN_OBSERVATION;
    kb_session *session = malloc(sizeof *session);
    if (!session)
        return KB_NO_MEMORY;
    session->variant = kb_suited(net);
    if (kb_work_open(&session->work, net, state, session->variant->width)) {
        free(session);
        return KB_NO_MEMORY;
    }
    *out = session;
    return KB_OPENED;
}

void kb_close(kb_session *session)
{
    if (!session)
        return;
    kb_work_close(&session->work);
    free(session);
}

void kb_switch_state(kb_session *session, const kb_state *state) { kb_work_take(&session->work, state); }

int kb_run(kb_session *session, const kb_data *data, kb_records *records, int learn)
{
    kb_work *w = &session->work;
    int put_back = learn && data->role == KB_ROLE_REPLAY_MEANS, failed = 0;
    unsigned mode = kb_flush_subnormals();
    if (put_back) {
        session->variant->settle(w);
        failed = kb_covs_keep(w);
    }
    int64_t repairs = w->state.counts[KB_REPAIRS];
    if (!failed)
        session->variant->run(w, data, records, learn);
    if (put_back && !failed)
        kb_covs_put_back(w, repairs);
    kb_restore(mode);
    return failed ? KB_NO_MEMORY : 0;
}

void kb_save(kb_session *session, kb_state *out)
{
    const kb_work *w = &session->work;
    unsigned mode = kb_flush_subnormals();
    session->variant->settle(&session->work);
    kb_restore(mode);
    kb_copy_state(w->net, out, &w->state);
    kb_work_means(w, out->mean);
    kb_work_covs(w, out->cov, out->head_cov);
}

const int64_t *kb_counts(kb_session *session)
{
    unsigned mode = kb_flush_subnormals();
    session->variant->settle_diagonals(&session->work);
    kb_restore(mode);
    return session->work.state.counts;
}

const double *kb_noise(const kb_session *session) { return session->work.state.noise; }
