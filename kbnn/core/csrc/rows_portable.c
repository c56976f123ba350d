/* The rows for any machine. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define KB_TARGET portable
#define KB_WIDTH 2
#include "rows.h"
