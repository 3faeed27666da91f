/* See calls.h. Free places form a list, so that a number is found without search. */
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
    ct_calls_init(calls);
}

static int grow(struct ct_calls *calls)
{
    uint32_t room = CT_MAX(calls->room * 2, (uint32_t)FIRST_ROOM);

    if (calls->room >= CT_CALLS_MAX)
        return CT_ELIMIT;
    struct ct_call_place *at = realloc(calls->at, room * sizeof *at);
    if (at == NULL)
        return CT_ENOMEM;
    calls->at = at;
    calls->room = room;
    return 0;
}

int ct_calls_add(struct ct_calls *calls, const struct ct_call *call, uint64_t *ret_number)
{
    uint32_t place = calls->free;

    if (place == NONE) {
        int rc = calls->used < calls->room ? 0 : grow(calls);
        if (rc != 0)
            return rc;
        place = calls->used++;
    } else {
        calls->free = calls->at[place].next_free;
    }
    uint64_t number = (uint64_t)calls->added++ << 32 | place;
    calls->at[place] = (struct ct_call_place){.call = *call, .number = number, .open = true};
    *ret_number = number;
    return 0;
}

bool ct_calls_remove(struct ct_calls *calls, uint64_t number, struct ct_call *ret_call)
{
    uint32_t at = (uint32_t)number;

    if (at >= calls->used || !calls->at[at].open || calls->at[at].number != number)
        return false;
    *ret_call = calls->at[at].call;
    calls->at[at].open = false;
    calls->at[at].next_free = calls->free;
    calls->free = at;
    return true;
}
