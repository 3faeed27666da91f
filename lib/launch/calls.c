/* See calls.h. Free places form a list, so that numbers stay small and are found without search. */
#include "launch/calls.h"

#include "base/assert.h"
#include "base/error.h"

#include <stdlib.h>

enum { FIRST_ROOM = 64 };

#define NONE UINT32_MAX

void ct_calls_init(struct ct_calls *calls)
{
    *calls = (struct ct_calls){.free = NONE};
}

void ct_calls_deinit(struct ct_calls *calls)
{
    free(calls->at);
    free(calls->open);
    ct_calls_init(calls);
}

static int grow(struct ct_calls *calls)
{
    uint32_t room = CT_MAX(calls->room * 2, (uint32_t)FIRST_ROOM);

    if (calls->room >= CT_CALLS_MAX)
        return CT_ELIMIT;
    struct ct_call *at = realloc(calls->at, room * sizeof *at);
    if (at == NULL)
        return CT_ENOMEM;
    calls->at = at;
    bool *open = realloc(calls->open, room * sizeof *open);
    if (open == NULL)
        return CT_ENOMEM;
    calls->open = open;
    calls->room = room;
    return 0;
}

int ct_calls_add(struct ct_calls *calls, const struct ct_call *call, uint64_t *ret_number)
{
    uint32_t number = calls->free;

    if (number == NONE) {
        int rc = calls->used < calls->room ? 0 : grow(calls);
        if (rc != 0)
            return rc;
        number = calls->used++;
    } else {
        calls->free = calls->at[number].local_rank;
    }
    calls->at[number] = *call;
    calls->open[number] = true;
    *ret_number = number;
    return 0;
}

bool ct_calls_take(struct ct_calls *calls, uint64_t number, struct ct_call *ret_call)
{
    if (number >= calls->used || !calls->open[number])
        return false;
    *ret_call = calls->at[number];
    calls->open[number] = false;
    calls->at[number].local_rank = calls->free;
    calls->free = (uint32_t)number;
    return true;
}
