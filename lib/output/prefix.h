/* The prefix of a worker's lines on the console.
 *
 *   template            called    a stream that is   begins with
 *   "" (none given)     ctrun     any                [node:rank] and a blank
 *   ""                  torchrun  tee'd              [default0]: role and local rank
 *   any                 ctrun     any                the template's text
 *   any                 torchrun  tee'd              the same
 *                       torchrun  not tee'd          nothing: the worker's own line
 *
 * The names of a template are role_name, local_rank, rank and hostname. Pure. */
#ifndef CT_OUTPUT_PREFIX_H
#define CT_OUTPUT_PREFIX_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_prefix {
    const char *template; /* "" for the usual one */
    bool torchrun;        /* the usual one is torchrun's */
    const char *role;
    const char *host;
    uint32_t node, rank, local_rank;
};

/* Return the text, in `arena`; NULL without memory. */
const char *ct_prefix_text(const struct ct_prefix *prefix, struct ct_arena *arena);

#endif
