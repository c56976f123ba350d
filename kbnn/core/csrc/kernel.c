/* Compiles the rows three times, for AVX-512, AVX2 and plain machines, and picks one at run time. */
#include "kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KB_PASTE(name, target) name##_##target
#define KB_NAME(name, target) KB_PASTE(name, target)
#define KB(name) KB_NAME(name, KB_TARGET)
#define KB_INLINE static inline __attribute__((always_inline))

#ifdef __has_builtin
#define KB_SHUFFLES __has_builtin(__builtin_shufflevector)
#else
#define KB_SHUFFLES 0
#endif

#include "quadrature.h"
#include "work.h"
#include "plan.h"

#define KB_TARGET portable
#define KB_WIDTH 2
#include "rows.h"
#undef KB_WIDTH
#undef KB_TARGET

#if defined(__x86_64__)
#define KB_X86 1
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define KB_TARGET avx2
#define KB_WIDTH 4
#include "rows.h"
#undef KB_WIDTH
#undef KB_TARGET
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,fma"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,fma,prefer-vector-width=512")
#endif
#define KB_TARGET avx512
#define KB_WIDTH 8
#include "rows.h"
#undef KB_WIDTH
#undef KB_TARGET
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

typedef struct {
    const char *name;
    int64_t width; /* doubles in a vector register */
    void (*run)(kb_work *, const kb_data *, kb_records *, int);
    void (*settle)(kb_work *);
    void (*settle_diagonals)(kb_work *);
} kb_variant;

#define KB_VARIANT(target, width) \
    {#target, width, run_##target, settle_##target, settle_diagonals_##target}

static const kb_variant kb_variants[] = {
#ifdef KB_X86
    KB_VARIANT(avx512, 8),
    KB_VARIANT(avx2, 4),
#endif
    KB_VARIANT(portable, 2),
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

int kb_use(const char *name)
{
    for (size_t i = 0; i < sizeof kb_variants / sizeof *kb_variants; i++)
        if ((!name || !strcmp(name, kb_variants[i].name)) && kb_supported(kb_variants[i].name)) {
            kb_chosen = &kb_variants[i];
            return 0;
        }
    return -1;
}

const char *kb_instructions(void)
{
    if (!kb_chosen)
        kb_use(NULL);
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

kb_session *kb_open(const kb_net *net, const kb_state *state)
{
    kb_session *session = malloc(sizeof *session);
    kb_instructions();
    if (!session)
        return NULL;
    session->variant = kb_chosen;
    if (kb_work_open(&session->work, net, state, session->variant->width)) {
        free(session);
        return NULL;
    }
    return session;
}

void kb_close(kb_session *session)
{
    if (!session)
        return;
    kb_work_close(&session->work);
    free(session);
}

void kb_run(kb_session *session, const kb_data *data, kb_records *records, int learn)
{
    unsigned mode = kb_flush_subnormals();
    session->variant->run(&session->work, data, records, learn);
    kb_restore(mode);
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
