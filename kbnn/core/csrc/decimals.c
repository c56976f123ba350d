/* A plain decimal is [-]digits[.digits], of 18 digits at most. While these as a whole number are no
 * more than 2^53, it and the power of ten below it are exact in a double, and one division, which
 * IEEE 754 rounds correctly, gives the double nearest to the decimal. */
#include "decimals.h"

#include "target.h"

#include <limits.h>

enum { DIGITS = 18 };

static const double power_of_ten[DIGITS + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
    1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};

/* Of as many bytes at once as a byte can count: so it vectorises. */
KB_WIDER int64_t kb_count_lines(const char *text, int64_t length)
{
    int64_t lines = 0;
    for (int64_t at = 0; at < length; at += UCHAR_MAX) {
        int64_t few = length - at < UCHAR_MAX ? length - at : UCHAR_MAX;
        unsigned char found = 0;
        for (int64_t i = 0; i < few; i++)
            found = (unsigned char)(found + (text[at + i] == '\n'));
        lines += found;
    }
    return lines;
}

/* The digits from `at` on, joined to those in *whole; where they end. The text ends in a newline. */
static const char *digits(const char *at, uint64_t *whole)
{
    for (unsigned digit; (digit = (unsigned)(unsigned char)*at - '0') < 10; at++)
        *whole = 10 * *whole + digit;
    return at;
}

/* The number that begins at `at`; where it ends, NULL if it is not a plain decimal. */
static const char *decimal(const char *at, double *value)
{
    int negative = *at == '-';
    const char *first = at += negative;
    uint64_t whole = 0;
    int64_t places = 0;
    at = digits(at, &whole);
    int64_t count = at - first;
    if (!count)
        return 0;
    if (*at == '.') {
        const char *point = at++;
        at = digits(at, &whole);
        places = at - point - 1;
        count += places;
        if (!places)
            return 0;
    }
    if (count > DIGITS || whole > (uint64_t)1 << 53)
        return 0;
    static const double sign[2] = {1.0, -1.0}; /* without a branch: signs are unpredictable */
    *value = sign[negative] * (double)whole / power_of_ten[places];
    return at;
}

int kb_parse_decimals(const char *text, int64_t length, char delimiter, int64_t columns, int64_t rows,
                double *out)
{
    const char *at = text, *end = text + length;
    if (!length || end[-1] != '\n')
        return 0;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t j = 0; j < columns; j++) {
            at = decimal(at, out + j * rows + row);
            if (!at)
                return 0;
            if (j + 1 == columns && *at == '\r')
                at++;
            if (*at++ != (j + 1 < columns ? delimiter : '\n'))
                return 0;
        }
    return at == end;
}
