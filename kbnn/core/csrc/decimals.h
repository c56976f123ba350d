/* Tables of plain decimals, from text to numbers. */
#ifndef KBNN_DECIMALS_H
#define KBNN_DECIMALS_H

#include <stdint.h>

/* How many newlines there are. */
int64_t kb_count_lines(const char *text, int64_t length);

/* Reads `rows` lines of `columns` plain decimals each into out, column after column; 0 when the text
 * is anything else. Text that ends without a newline is anything else, too. */
int kb_parse_decimals(const char *text, int64_t length, char delimiter, int64_t columns, int64_t rows,
                double *out);

#endif
