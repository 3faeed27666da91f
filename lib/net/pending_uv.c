/* See pending_uv.h. */
#include "net/pending_uv.h"
#include "net/conn_inner_uv.h"

#include "base/assert.h"

#include <stdlib.h>

int ct_pending_init(struct ct_pending *pending, uint32_t most, uint64_t seed)
{
    ct_rng_init(&pending->rng, seed);
    pending->strangers = calloc(most, sizeof(struct ct_conn *));
    pending->most_strangers = most;
    return pending->strangers != NULL ? 0 : CT_ENOMEM;
}

void ct_pending_deinit(struct ct_pending *pending)
{
    free(pending->strangers);
}

/* ---- by age ---- */

static void append(struct ct_pending_list *list, struct ct_conn *conn)
{
    conn->older = list->newest;
    if (list->newest != NULL)
        list->newest->newer = conn;
    else
        list->oldest = conn;
    list->newest = conn;
    list->count++;
}

static void take_out(struct ct_pending_list *list, struct ct_conn *conn)
{
    if (conn->older != NULL)
        conn->older->newer = conn->newer;
    else
        list->oldest = conn->newer;
    if (conn->newer != NULL)
        conn->newer->older = conn->older;
    else
        list->newest = conn->older;
    conn->older = conn->newer = NULL;
    list->count--;
}

uint32_t ct_pending_count_trusted(const struct ct_pending *pending, uint64_t account,
                                  struct ct_conn **ret_oldest)
{
    uint32_t count = 0;

    for (struct ct_conn *conn = pending->trusted.oldest; conn != NULL; conn = conn->newer) {
        if (conn->state == CT_CONN_ENDED || conn->account != account)
            continue;
        if (count++ == 0)
            *ret_oldest = conn;
    }
    return count;
}

/* ---- strangers ---- */

static void add_stranger(struct ct_pending *pending, struct ct_conn *conn)
{
    CT_ASSERT(pending->stranger_count < pending->most_strangers);
    conn->stranger_at = pending->stranger_count;
    pending->strangers[pending->stranger_count++] = conn;
}

static void remove_stranger(struct ct_pending *pending, struct ct_conn *conn)
{
    struct ct_conn *last = pending->strangers[--pending->stranger_count];

    pending->strangers[conn->stranger_at] = last;
    last->stranger_at = conn->stranger_at;
}

struct ct_conn *ct_pending_displaced(struct ct_pending *pending, uint64_t account,
                                     uint32_t most_of_one)
{
    struct ct_conn *own = NULL;
    uint32_t count = 0;

    for (uint32_t i = 0; i < pending->stranger_count; i++)
        if (pending->strangers[i]->account == account && ct_rng_below(&pending->rng, ++count) == 0)
            own = pending->strangers[i];
    if (count >= most_of_one)
        return own;
    return pending->stranger_count < pending->most_strangers
               ? NULL
               : pending->strangers[ct_rng_below(&pending->rng, pending->stranger_count)];
}

/* ---- places ---- */

void ct_pending_enter(struct ct_pending *pending, struct ct_conn *conn, enum ct_place place)
{
    CT_ASSERT(conn->place == CT_PLACE_NONE);
    conn->place = place;
    if (place == CT_PLACE_STRANGER)
        add_stranger(pending, conn);
    else
        append(place == CT_PLACE_TRUSTED ? &pending->trusted : &pending->bound, conn);
}

void ct_pending_leave(struct ct_pending *pending, struct ct_conn *conn)
{
    if (conn->place == CT_PLACE_STRANGER)
        remove_stranger(pending, conn);
    else if (conn->place != CT_PLACE_NONE)
        take_out(conn->place == CT_PLACE_TRUSTED ? &pending->trusted : &pending->bound, conn);
    conn->place = CT_PLACE_NONE;
}

bool ct_pending_is_new(struct ct_pending *pending, uint64_t hello)
{
    uint64_t *slot = &pending->hellos[hello % CT_HELLOS];
    bool is_new = *slot != hello;

    *slot = hello;
    return is_new;
}

uint32_t ct_pending_count(const struct ct_pending *pending)
{
    return pending->trusted.count + pending->bound.count + pending->stranger_count;
}
