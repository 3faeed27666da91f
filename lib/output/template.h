/* Texts with names in them: "${local_rank}" and "$local_rank", as Python's string.Template, which
 * is what torchrun puts prefixes and script arguments through.
 *
 * A name is a letter or underscore, then letters, digits and underscores. "$$" stands for "$"; a
 * name that is not known, and a "$" before anything else, stay as they are. Pure. */
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

/* Does `text` hold one of the names? */
bool ct_template_uses(const char *text, const struct ct_template_value *values, size_t count);

#endif
