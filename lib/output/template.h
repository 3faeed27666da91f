/* Text templates: "${local_rank}" and "$local_rank", as Python's string.Template, which torchrun
 * uses for prefixes and script arguments.
 *
 * A name is a letter or underscore, then letters, digits and underscores. "$$" gives "$"; unknown
 * names, and a "$" before anything else, stay unchanged. Pure. */
#ifndef CT_OUTPUT_TEMPLATE_H
#define CT_OUTPUT_TEMPLATE_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>

struct ct_template_value {
    const char *name;
    const char *value;
};

/* Append `text`, each name replaced by its value. */
void ct_template_expand(const char *text, const struct ct_template_value *values, size_t count,
                        struct ct_buf *to);

/* Return whether `text` contains one of the names. */
bool ct_template_uses(const char *text, const struct ct_template_value *values, size_t count);

#endif
