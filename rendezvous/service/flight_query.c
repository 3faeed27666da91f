/* The ranks of a job, as an operator sees them; see admin.h. Nothing is kept meanwhile: the
 * question carries the number of his connection to the nodes and back. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/assert.h"

#include <stdio.h>

/* The connection to node `index` of the round; 0: there is none. */
static uint64_t link_to(const struct ct_service_job *job, uint32_t index)
{
    const struct ct_rdzv_place *place = &ct_rdzv_roster(job->core)->places[index];
    const struct ct_rdzv_member *member = ct_rdzv_member_of(job->core, place->id);
    return member != NULL ? member->link : 0;
}

/* Nobody can be asked there. */
static void answer_for(struct ct_service *service, uint64_t link, uint64_t generation,
                       uint32_t node)
{
    struct ct_message message = {
        .type = CT_MSG_FLIGHT_REPLY,
        .flight_reply = {
            .generation = generation, .asker = link, .node = node, .code = CT_EUNAVAILABLE}};
    ct_service_send(service, link, &message);
}

void ct_service_on_flight_query(struct ct_service *service, const struct ct_service_link *link,
                                const struct ct_msg_flight_query *m)
{
    struct ct_service_job *job = ct_admin_job(service, link);
    if (job == NULL)
        return;
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job->core);
    if (roster->count == 0 || (m->generation != 0 && m->generation != roster->generation)) {
        char text[256];
        (void)snprintf(text, sizeof(text),
                       m->generation == 0 ? "job %s has not begun a round yet, see `ctrun status`"
                                          : "job %s has begun another round meanwhile: ask again",
                       ct_rdzv_name(job->core));
        ct_service_answer(service, link->number, CT_EUNAVAILABLE, text);
        return;
    }
    for (uint32_t i = 0; m->generation == 0 && i < roster->count; i += CT_WIRE_PART)
        ct_service_send_part(job, link->number, i);
    if (m->generation == 0 || m->first >= roster->count)
        return;
    struct ct_message message = {.type = CT_MSG_FLIGHT_QUERY, .flight_query = *m};
    message.flight_query.asker = link->number;
    uint32_t end = m->first + CT_MIN(m->count, roster->count - m->first);
    for (uint32_t i = m->first; i < end; i++) {
        uint64_t node = link_to(job, i);
        if (node != 0)
            ct_service_send(service, node, &message);
        else
            answer_for(service, link->number, roster->generation, i);
    }
}

void ct_service_on_flight_reply(struct ct_service *service, const struct ct_service_link *link,
                                const struct ct_msg_flight_reply *m)
{
    const struct ct_service_link *asker = ct_service_link_of(service, m->asker);
    if (asker == NULL || !asker->admin || !ct_admin_means(service, asker, link->job))
        return;
    struct ct_message message = {.type = CT_MSG_FLIGHT_REPLY, .flight_reply = *m};
    ct_service_send(service, m->asker, &message);
}
