/* Names and attributes of code that is compiled once per instruction set: KB_TARGET, whose vector
 * registers hold KB_WIDTH doubles. */
#ifndef KBNN_TARGET_H
#define KBNN_TARGET_H

#define KB_PASTE(name, target) name##_##target
#define KB_NAME(name, target) KB_PASTE(name, target)
#define KB(name) KB_NAME(name, KB_TARGET)

#define KB_QUOTED(name) #name
#define KB_QUOTE(name) KB_QUOTED(name)

/* Small parts belong into the loops that use them; parts of a row are compiled once each. */
#define KB_INLINE static inline __attribute__((always_inline))
#define KB_PART static __attribute__((noinline))

/* For a function whose loops vectorise: compiled for AVX2 too and, where the machine has that, run so.
 * Without fused operations, so to the same bits. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define KB_WIDER __attribute__((target_clones("avx2", "default"), flatten))
#else
#define KB_WIDER
#endif

#ifdef __has_builtin
#define KB_SHUFFLES __has_builtin(__builtin_shufflevector)
#else
#define KB_SHUFFLES 0
#endif

#endif
