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

#ifdef __has_builtin
#define KB_SHUFFLES __has_builtin(__builtin_shufflevector)
#else
#define KB_SHUFFLES 0
#endif

#endif
