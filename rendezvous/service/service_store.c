/* The store requests of a job's members: bounded, each answered once, and a SET done once. */
#include "rendezvous/service/service_state.h"

#include "base/assert.h"

#include <stdlib.h>

void ct_service_on_reply(void *context, uint64_t client, const struct ct_msg_store_reply *reply)
{
    struct ct_service_job *job = context;
    struct ct_service_link *link = ct_service_link_of(job->service, client);
    if (link == NULL)
        return;
    if (link->open_requests > 0)
        link->open_requests--;
    struct ct_message message = {.type = CT_MSG_STORE_REPLY, .store_reply = *reply};
    ct_service_send(job->service, client, &message);
}

/* The last SET of the member; NULL without memory. */
static struct ct_service_set *set_of(struct ct_service_job *job, uint32_t member)
{
    if (member >= job->set_count) {
        uint32_t members = (uint32_t)ct_rdzv_capacity(job->core);
        uint32_t count = CT_MAX(members, 2 * job->set_count); /* each node copies a few, not all */
        struct ct_service_set *sets =
            members > member ? realloc(job->sets, count * sizeof(*sets)) : NULL;
        if (sets == NULL)
            return NULL;
        for (uint32_t i = job->set_count; i < count; i++)
            sets[i] = (struct ct_service_set){.request = 0};
        job->sets = sets;
        job->set_count = count;
    }
    return &job->sets[member];
}

/* Was it done, and its answer lost with the connection? An agent counts its requests in the upper
 * half of their numbers (lib/launch/calls.h), which may begin anew some day. */
static bool is_repeated(struct ct_service_link *link, uint64_t request)
{
    struct ct_service_set *last = set_of(link->job, link->member);
    if (last == NULL)
        return false;
    bool is_known = ct_id_equal(last->id, link->id);
    int32_t ahead = (int32_t)((uint32_t)(request >> 32) - (uint32_t)(last->request >> 32));
    if (is_known && ahead <= 0)
        return true;
    *last = (struct ct_service_set){.id = link->id, .request = request};
    return false;
}

void ct_service_on_store(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                         const struct ct_message *message)
{
    if (link->open_requests >= service->limits.open_requests) {
        ct_service_violation(service, link, "too many store requests wait for an answer");
        return;
    }
    link->open_requests++;
    if (message->type == CT_MSG_STORE_SET && is_repeated(link, message->store_set.request))
        ct_service_on_reply(
            link->job, link->number,
            &(struct ct_msg_store_reply){.request = message->store_set.request,
                                         .generation = message->store_set.generation});
    else
        ct_store_request(link->job->store, now_ms, link->number, message);
    ct_service_log_refusal(link->job, now_ms);
}
