/* See endpoints.h. */
#include "rendezvous/client/endpoints.h"

#include "base/assert.h"

#include <string.h>

static bool has_several(const struct ct_endpoints *endpoints)
{
    return endpoints->count > 1;
}

int ct_endpoints_init(struct ct_endpoints *endpoints, const char *list, struct ct_error *err)
{
    int rc = 0;

    *endpoints = (struct ct_endpoints){.turn_ms = CT_ENDPOINTS_TURN_MS};
    do {
        char one[CT_ENDPOINT_TEXT];

        if (endpoints->count == CT_ENDPOINTS_GIVEN)
            return ct_error_set(err, CT_EUSAGE, "an agent can be given %d endpoints",
                                CT_ENDPOINTS_GIVEN);
        ct_endpoint_next(&list, one);
        rc = ct_endpoint_parse(one, -1, &endpoints->list[endpoints->count++], err);
    } while (rc == 0 && *list != '\0');
    endpoints->given = endpoints->count;
    return rc;
}

static bool is_same(const struct ct_endpoint *a, const struct ct_endpoint *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

static void append_own(struct ct_endpoints *endpoints)
{
    if (!endpoints->has_own)
        return;
    for (size_t i = 0; i < endpoints->count; i++)
        if (is_same(&endpoints->list[i], &endpoints->own))
            return;
    endpoints->list[endpoints->count++] = endpoints->own;
}

void ct_endpoints_set_own(struct ct_endpoints *endpoints, const char *address)
{
    struct ct_endpoint own;

    if (ct_endpoint_parse(address, -1, &own, NULL) != 0 ||
        (endpoints->has_own && is_same(&own, &endpoints->own)))
        return;
    CT_ASSERT(!endpoints->has_own); /* a process has one holder, at one address */
    endpoints->own = own;
    endpoints->has_own = true;
    append_own(endpoints);
}

static bool are_same(const struct ct_endpoints *a, const struct ct_endpoints *b)
{
    bool same = a->count == b->count;

    for (size_t i = a->given; same && i < a->count; i++)
        same = is_same(&a->list[i], &b->list[i]);
    return same;
}

/* The leader is last in its own list, so that others are asked before when it is gone. */
void ct_endpoints_learn(struct ct_endpoints *endpoints, const struct ct_msg_voters *voters)
{
    struct ct_endpoints before = *endpoints;

    endpoints->count = endpoints->given;
    for (uint32_t i = 0; i < voters->servers.count && endpoints->count < CT_ENDPOINTS_ALL - 1; i++)
        if (ct_endpoint_parse(voters->servers.data[i].address, -1,
                              &endpoints->list[endpoints->count], NULL) == 0)
            endpoints->count++;
    append_own(endpoints);
    /* One that follows may repeat itself, and be wrong: those given are asked, too. */
    if (voters->epoch == 0 && are_same(&before, endpoints))
        return;
    endpoints->sent_on = voters->epoch == 0 ? endpoints->sent_on + 1 : 0;
    endpoints->next = endpoints->given < endpoints->count ? endpoints->given : 0;
    if (endpoints->sent_on > CT_ENDPOINTS_SENT_ON)
        endpoints->next = endpoints->sent_on = 0;
}

void ct_endpoints_begin(struct ct_endpoints *endpoints, uint64_t now_ms, uint64_t give_up_ms,
                        uint32_t nodes)
{
    uint32_t least_ms = CT_MIN(nodes / 2, (uint32_t)CT_ENDPOINTS_LONGEST_MS);

    if (endpoints->tried >= endpoints->count)
        endpoints->turn_ms = CT_MIN(2 * endpoints->turn_ms, (uint32_t)CT_ENDPOINTS_LONGEST_MS);
    endpoints->turn_ms = CT_MAX(endpoints->turn_ms, least_ms);
    endpoints->tried = 0;
    endpoints->give_up_ms = now_ms + CT_MIN(give_up_ms, (uint64_t)INT32_MAX);
}

void ct_endpoints_opened(struct ct_endpoints *endpoints)
{
    endpoints->tried = 0;
    endpoints->turn_ms = CT_ENDPOINTS_TURN_MS;
}

struct ct_endpoint_try ct_endpoints_next(struct ct_endpoints *endpoints, uint64_t now_ms)
{
    uint64_t limit_ms = has_several(endpoints) ? endpoints->turn_ms : INT32_MAX;
    uint64_t left_ms = endpoints->give_up_ms > now_ms ? endpoints->give_up_ms - now_ms : 1;
    const struct ct_endpoint *endpoint = &endpoints->list[endpoints->next];

    endpoints->tried++;
    endpoints->next = (endpoints->next + 1) % endpoints->count;
    return (struct ct_endpoint_try){.endpoint = endpoint,
                                    .connect_ms = (uint32_t)CT_MIN(left_ms, limit_ms),
                                    .once = has_several(endpoints)};
}

bool ct_endpoints_go_on(const struct ct_endpoints *endpoints, bool was_open)
{
    return !was_open && has_several(endpoints) && endpoints->tried < endpoints->count;
}
