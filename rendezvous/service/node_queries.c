/* What a job's nodes answer an operator: their flight recorders, and their workers' lines; see
 * admin.h. Nothing is kept meanwhile: the question carries the number of his connection to the
 * nodes and back. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/assert.h"

#include <stdio.h>

/* ---- flight recorders ---- */

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
    if (m->generation == 0)
        ct_service_send_whole(job, link->number);
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

/* ---- lines ---- */

static void answer_no_lines(struct ct_service_job *job, uint64_t link, uint32_t index)
{
    struct ct_message message = {
        .type = CT_MSG_LINES,
        .lines = {.generation = ct_rdzv_roster(job->core)->generation,
                  .asker = link,
                  .incarnation = ct_rdzv_roster(job->core)->places[index].id,
                  .code = CT_EUNAVAILABLE}};
    ct_service_send(job->service, link, &message);
}

/* Why there are no lines of the job; false: there are. */
static bool has_no_lines(const struct ct_service_job *job, char text[256])
{
    bool is_over = ct_rdzv_phase(job->core) == CT_RDZV_CLOSED;
    if (ct_rdzv_roster(job->core)->count > 0 && !is_over)
        return false;
    (void)snprintf(text, 256,
                   is_over ? "job %.128s is over: what its workers wrote is in the log folders of "
                             "its nodes"
                           : "job %.128s has not begun a round yet, see `ctrun status`",
                   ct_rdzv_name(job->core));
    return true;
}

static void ask_for_lines(struct ct_service_job *job, const struct ct_service_link *link,
                          const struct ct_msg_lines_query *m)
{
    uint32_t count = ct_rdzv_roster(job->core)->count;
    if (m->first >= count)
        return;
    struct ct_message message = {.type = CT_MSG_LINES_QUERY, .lines_query = *m};
    message.lines_query.asker = link->number;
    uint32_t end = m->first + CT_MIN(m->count, count - m->first);
    for (uint32_t i = m->first; i < end; i++) {
        uint64_t node = link_to(job, i);
        if (node != 0)
            ct_service_send(job->service, node, &message);
        else
            answer_no_lines(job, link->number, i);
    }
}

void ct_service_on_lines_query(struct ct_service *service, uint64_t now_ms,
                               struct ct_service_link *link, const struct ct_msg_lines_query *m)
{
    char text[256];
    if (!link->admin) { /* a node, which knows its round */
        if (m->generation == ct_rdzv_roster(link->job->core)->generation)
            ask_for_lines(link->job, link, m);
        return;
    }
    if ((m->generation == 0 || m->count > 1) && ct_admin_is_too_fast(service, now_ms, link))
        return;
    struct ct_service_job *job = ct_admin_job(service, link);
    if (job == NULL)
        return;
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job->core);
    if (has_no_lines(job, text)) {
        ct_service_answer(service, link->number, CT_EUNAVAILABLE, text);
    } else if (m->generation != roster->generation) {
        ct_service_send_whole(job, link->number);
    } else {
        ask_for_lines(job, link, m);
    }
}

void ct_service_on_lines(struct ct_service *service, const struct ct_service_link *link,
                         const struct ct_msg_lines *m)
{
    const struct ct_service_link *asker = ct_service_link_of(service, m->asker);
    if (asker == NULL ||
        (asker->admin ? !ct_admin_means(service, asker, link->job) : asker->job != link->job))
        return;
    struct ct_message message = {.type = CT_MSG_LINES, .lines = *m};
    ct_service_send(service, m->asker, &message);
}
