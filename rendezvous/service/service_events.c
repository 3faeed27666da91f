/* Events of the jobs' histories, as records: for operators who ask, and for those who are told of
 * each as it is noted.
 *
 *   note -> history -> io.noted                      hooks of the daemon
 *                   -> ADMIN_REPLY to each operator that follows
 *                   -> ADMIN_REPLY to one node of the job, each event to one */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/log/record.h"

#include <stdio.h>
#include <string.h>

enum { LINES = 256, LINE_BYTES = 2048 /* of a job's name and a text, escaped */ };

static uint64_t wall_ns(const struct ct_service *service, uint64_t now_ms, uint64_t ms)
{
    uint64_t wall_ms =
        service->io.wall_ms != NULL ? service->io.wall_ms(service->io.context) : now_ms;

    return (wall_ms - (now_ms - ms)) * 1000000u;
}

static void put_event(const struct ct_service_job *job, uint64_t now_ms,
                      const struct ct_history_event *event, struct ct_buf *out)
{
    ct_record_begin(out, wall_ns(job->service, now_ms, event->ms), "event");
    ct_record_whole(out, "number", (int64_t)event->number);
    ct_record_string(out, "job", ct_rdzv_name(job->core));
    ct_record_whole(out, "generation", (int64_t)event->generation);
    ct_record_string(out, "event", ct_announcement_name(event->kind));
    ct_record_string(out, "level", ct_announcement_level(event->kind));
    ct_record_string(out, "text", event->text);
    ct_record_end(out);
}

/* The job whose next event comes first; NULL: none has one. */
static const struct ct_service_job *find_next(const struct ct_service *service,
                                              const struct ct_service_link *link,
                                              const struct ct_grant *reader, uint64_t after,
                                              const struct ct_history_event **ret_event)
{
    const struct ct_service_job *found = NULL;

    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        const struct ct_history_event *event = ct_history_next(job->history, after);

        if (event == NULL || (found != NULL && event->number > (*ret_event)->number) ||
            !(link != NULL ? ct_admin_means(service, link, job) : ct_service_shows(reader, job)))
            continue;
        *ret_event = event;
        found = job;
    }
    return found;
}

bool ct_service_put_event(const struct ct_service *service, uint64_t now_ms,
                          const struct ct_service_link *link, const struct ct_grant *reader,
                          uint64_t *after, struct ct_buf *out)
{
    const struct ct_history_event *event = NULL;

    if (*after > service->event_number) /* of an earlier daemon: this one counts anew */
        *after = 0;
    const struct ct_service_job *job = find_next(service, link, reader, *after, &event);

    if (job == NULL)
        return false;
    put_event(job, now_ms, event, out);
    *after = event->number;
    return true;
}

uint64_t ct_service_events(const struct ct_service *service)
{
    return service->event_number;
}

void ct_service_put_events(const struct ct_service *service, uint64_t now_ms,
                           const struct ct_service_link *link, uint64_t after, struct ct_buf *out)
{
    for (int i = 0; i < LINES && (out->limit == 0 || out->size + LINE_BYTES <= out->limit); i++)
        if (!ct_service_put_event(service, now_ms, link, NULL, &after, out))
            break;
}

/* ---- those who follow ----------------------------------------------------------------------- */

bool ct_service_add_follower(struct ct_service *service, const struct ct_service_link *link)
{
    uint32_t count = 0;
    bool found = false;

    for (uint32_t i = 0; i < service->follower_count; i++) {
        if (ct_service_link_of(service, service->followers[i]) == NULL)
            continue; /* it has gone */
        found = found || service->followers[i] == link->number;
        service->followers[count++] = service->followers[i];
    }
    service->follower_count = count;
    if (!found && count < CT_SERVICE_FOLLOWERS) {
        service->followers[service->follower_count++] = link->number;
        found = true;
    }
    return found;
}

static void tell_operators(const struct ct_service_job *job, const char *record)
{
    struct ct_service *service = job->service;

    for (uint32_t i = 0; i < service->follower_count; i++) {
        const struct ct_service_link *link = ct_service_link_of(service, service->followers[i]);

        if (link != NULL && ct_admin_means(service, link, job))
            ct_service_answer(service, link->number, 0, record);
    }
}

void ct_service_end_following(struct ct_service *service, const struct ct_service_job *job)
{
    char text[256];
    uint32_t count = 0;

    (void)snprintf(text, sizeof text, "job %s is over", ct_rdzv_name(job->core));
    for (uint32_t i = 0; i < service->follower_count; i++) {
        uint64_t number = service->followers[i];
        const struct ct_service_link *link = ct_service_link_of(service, number);

        if (link != NULL && strcmp(link->job_name, ct_rdzv_name(job->core)) == 0)
            ct_service_answer(service, number, CT_ENOTFOUND, text);
        else
            service->followers[count++] = number;
    }
    service->follower_count = count;
}

/* ---- the node that is told ------------------------------------------------------------------ */

static const struct ct_service_link *follower_of(const struct ct_service_job *job,
                                                 const struct ct_rdzv_member *member)
{
    const struct ct_service_link *link = member != NULL && member->state != CT_RDZV_FREE
                                             ? ct_service_link_of(job->service, member->link)
                                             : NULL;

    return link != NULL && link->follows && link->job == job ? link : NULL;
}

/* May events wait for node 0 of the first round? They are few, and it comes. */
static bool may_wait(const struct ct_service_job *job)
{
    enum ct_rdzv_phase phase = ct_rdzv_phase(job->core);

    return ct_rdzv_roster(job->core)->generation == 0 && phase != CT_RDZV_CLOSING &&
           phase != CT_RDZV_CLOSED && job->history->event_count - job->told_count < CT_ADMIN_HELD;
}

/* The lowest of the round that asks for it, else any that does; NULL: none, or not yet. */
static const struct ct_service_link *find_listener(const struct ct_service_job *job)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job->core);
    const struct ct_service_link *found = NULL;

    if (job->followers == 0 || may_wait(job))
        return NULL;
    for (uint32_t i = 0; i < roster->count && found == NULL && roster->generation > 0; i++)
        found = follower_of(job, ct_rdzv_member_of(job->core, roster->places[i].id));
    for (size_t i = 0; i < ct_rdzv_capacity(job->core) && found == NULL; i++)
        found = follower_of(job, ct_rdzv_member(job->core, i));
    return found;
}

/* All that no node was told yet, in one message. */
static void tell(struct ct_service_job *job, uint64_t now_ms, const struct ct_service_link *link)
{
    const struct ct_history_event *event = ct_history_next(job->history, job->told);
    struct ct_buf text;

    if (event == NULL)
        return;
    ct_buf_init(&text, CT_WIRE_VALUE_BYTES);
    for (; event != NULL && text.size + LINE_BYTES <= text.limit;
         event = ct_history_next(job->history, job->told)) {
        put_event(job, now_ms, event, &text);
        job->told = event->number;
    }
    job->told_count = job->history->event_count;
    job->told_to = link->id;
    ct_service_answer(job->service, link->number, 0, ct_buf_str(&text));
    ct_buf_deinit(&text);
}

static void tell_node(struct ct_service_job *job, uint64_t now_ms)
{
    const struct ct_service_link *link = find_listener(job);

    if (link != NULL)
        tell(job, now_ms, link);
}

/* What the node that was told last has not got, because its connection broke, it is told again. */
void ct_service_start_following(struct ct_service_job *job, uint64_t now_ms,
                                struct ct_service_link *link)
{
    if (!link->wants_events || link->follows)
        return;
    job->followers++;
    link->follows = true;
    if (ct_id_equal(link->id, job->told_to) && link->after < job->told &&
        find_listener(job) == link)
        job->told = link->after;
    tell_node(job, now_ms);
}

void ct_service_tell_end(struct ct_service_job *job, uint64_t now_ms,
                         const struct ct_service_link *link)
{
    enum ct_rdzv_phase phase = ct_rdzv_phase(job->core);

    if (link->wants_events && (phase == CT_RDZV_CLOSING || phase == CT_RDZV_CLOSED))
        tell(job, now_ms, link);
}

bool ct_service_is_follow(const struct ct_service_link *link, const struct ct_message *message)
{
    return !link->admin && message->type == CT_MSG_ADMIN &&
           message->admin.verb == CT_ADMIN_FOLLOW && link->job == NULL;
}

void ct_service_on_follow(struct ct_service_link *link, uint64_t after)
{
    link->wants_events = true;
    link->after = after;
}

/* ---- an event ------------------------------------------------------------------------------- */

static void tell_hooks(const struct ct_service_job *job, const struct ct_history_event *event,
                       const struct ct_buf *record)
{
    const struct ct_service_event noted = {.job = ct_rdzv_name(job->core),
                                           .kind = event->kind,
                                           .name = ct_announcement_name(event->kind),
                                           .level = ct_announcement_level(event->kind),
                                           .number = event->number,
                                           .generation = event->generation,
                                           .record = record->data,
                                           .size = record->size};

    if (!record->failed)
        job->service->io.noted(job->service->io.context, &noted);
}

void ct_service_note(struct ct_service_job *job, uint64_t now_ms,
                     const struct ct_history_event *event)
{
    struct ct_service *service = job->service;

    if (event->number == 0)
        return;
    ct_history_note(job->history, now_ms, &service->event_number, event);
    service->ended_well += event->kind == CT_ANNOUNCE_ENDED_WELL;
    service->ended_badly += event->kind == CT_ANNOUNCE_ENDED_BADLY;
    if (service->io.noted != NULL || service->follower_count > 0) {
        const struct ct_history_event *noted =
            ct_history_next(job->history, service->event_number - 1);
        struct ct_buf record;

        ct_buf_init(&record, 0);
        put_event(job, now_ms, noted, &record);
        tell_operators(job, ct_buf_str(&record));
        if (service->io.noted != NULL)
            tell_hooks(job, noted, &record);
        ct_buf_deinit(&record);
    }
    tell_node(job, now_ms);
}

void ct_service_note_begin(struct ct_service_job *job, uint64_t now_ms)
{
    const struct ct_rdzv_params *params = ct_rdzv_params(job->core);
    struct ct_history_event event = {.number = 1, .kind = CT_ANNOUNCE_JOB_BEGUN};

    (void)snprintf(event.text, sizeof event.text,
                   "the job begins: %u to %u nodes may join, %u restart%s may be used",
                   params->nodes_min, params->nodes_max, params->max_restarts,
                   params->max_restarts == 1 ? "" : "s");
    ct_service_note(job, now_ms, &event);
}
