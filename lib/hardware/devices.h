/* Which GPUs a worker sees: its CUDA_VISIBLE_DEVICES.
 *
 *   asked for                    the agent's own list    worker 1 gets
 *   nothing                      any                     the same list
 *   one each                     none                    1
 *                                4,5                     5
 *   lists "0+1", "2+3"           none                    2,3
 *                                4,5,6,7                 6,7
 *
 * Numbers count in the agent's own list, as they do for every CUDA program; names (GPU-...,
 * MIG-...) stand for themselves. Pure. */
#ifndef CT_HARDWARE_DEVICES_H
#define CT_HARDWARE_DEVICES_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_devices {
    const char *const *lists; /* of each worker, "0+1"; another's memory */
    size_t count;             /* 0: none were given */
    bool one_each;            /* without lists: worker i sees the i-th GPU alone */
    const char *visible;      /* the agent's own list, "4,5"; NULL: all GPUs */
};

/* Return the list of worker `local_rank` in `arena`; NULL in *ret_list when it gets the agent's
 * own. 0; CT_EUSAGE with a sentence that follows the name of a setting ("gives ...") for an invalid
 * device or one that is not in the agent's list; CT_ENOMEM. */
int ct_devices_of(const struct ct_devices *devices, uint32_t local_rank, struct ct_arena *arena,
                  const char **ret_list, struct ct_error *err);

/* Return the entry `index` of a list with commas, without blanks around it, in `room`; false when
 * the list is shorter. */
bool ct_devices_entry(const char *list, uint64_t index, char *room, size_t size);

#endif
