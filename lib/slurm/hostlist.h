/* Slurm's host lists: "gpu[001-003,7],login" names gpu001, gpu002, gpu003, gpu7 and login.
 *
 *      list    = item { "," item }
 *      item    = text and groups in any order, at least one character
 *      group   = "[" range { "," range } "]"   several groups: the last one turns fastest
 *      range   = number [ "-" number ]         as many digits as the first number is written with
 *
 * Pure. The order of the list is kept: Slurm numbers nodes by it. */
#ifndef CT_SLURM_HOSTLIST_H
#define CT_SLURM_HOSTLIST_H

#include "base/arena.h"
#include "base/error.h"

#include <stddef.h>

enum {
    CT_HOSTLIST_MAX = 65536, /* hosts in a list */
    CT_HOSTLIST_NAME = 256,  /* room for a name */
};

/* Expand a host list, in the arena. 0; CT_EUSAGE for an invalid list (a sentence with the place);
 * CT_ELIMIT above CT_HOSTLIST_MAX; CT_ENOMEM. */
int ct_hostlist_expand(const char *text, struct ct_arena *arena, const char *const **ret_hosts,
                       size_t *ret_count, struct ct_error *err);

#endif
