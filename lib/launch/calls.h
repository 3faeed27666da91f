/* Open store requests of workers: the requesting worker, and its own number of the request.
 *
 * The agent sends all its workers' requests over one link, under numbers of its own, and must
 * return each answer to its worker with the worker's number. A worker of an older round gets no
 * answer any more. A number is used once: a late answer to a request that was given up when its
 * round ended is dropped. One thread; grows to CT_CALLS_MAX open requests. */
#ifndef CT_LAUNCH_CALLS_H
#define CT_LAUNCH_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_CALLS_MAX = 16384 };

struct ct_call {
    uint32_t local_rank;
    uint64_t request;    /* the worker's number */
    uint64_t generation; /* of the worker's round */
};

/* Low half: the index of its slot; high half: the number of calls before it. */
struct ct_call_place {
    struct ct_call call;
    uint64_t number;
    bool open;
    uint32_t next_free;
};

struct ct_calls {
    struct ct_call_place *at;
    uint32_t room, used, free; /* `free` is UINT32_MAX when none is */
    uint32_t added;
};

void ct_calls_init(struct ct_calls *calls);
void ct_calls_deinit(struct ct_calls *calls);

/* Remember `call`; its number. 0, CT_ELIMIT when too many are open, CT_ENOMEM. */
int ct_calls_add(struct ct_calls *calls, const struct ct_call *call, uint64_t *ret_number);

/* Remove call `number` and return it; false when it is not open. */
bool ct_calls_remove(struct ct_calls *calls, uint64_t number, struct ct_call *ret_call);

#endif
