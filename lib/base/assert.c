/* See assert.h. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void ct_assert_fail(const char *text, const char *file, int line, const char *function)
{
    (void)fprintf(stderr, "%s:%d: %s: assertion `%s` failed\n", file, line, function, text);
    abort();
}
