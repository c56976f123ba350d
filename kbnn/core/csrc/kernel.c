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
} kb_variant;

static const kb_variant kb_variants[] = {
#ifdef KB_X86
    {"avx512", 8, run_avx512},
    {"avx2", 4, run_avx2},
#endif
    {"portable", 2, run_portable},
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

static int kb_run(const kb_net *net, kb_state *state, const kb_data *data, kb_records *records,
                  int learn)
{
    kb_work work;
    kb_instructions();
    const kb_variant *chosen = kb_chosen; /* once: another thread may choose while rows run */
    if (kb_work_open(&work, net, state, chosen->width))
        return -1;
    unsigned mode = kb_flush_subnormals();
    chosen->run(&work, data, records, learn);
    kb_restore(mode);
    if (learn)
        kb_work_store(&work);
    kb_work_close(&work);
    return 0;
}

int kb_learn(const kb_net *net, kb_state *state, const kb_data *data, kb_records *records)
{
    return kb_run(net, state, data, records, 1);
}

int kb_predict(const kb_net *net, kb_state *state, const kb_data *data, kb_records *records)
{
    return kb_run(net, state, data, records, 0);
}
