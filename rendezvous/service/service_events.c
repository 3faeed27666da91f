/* Events of the jobs' histories, as records for operators. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/log/record.h"

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
                                              const struct ct_service_link *link, uint64_t after,
                                              const struct ct_history_event **ret_event)
{
    const struct ct_service_job *found = NULL;

    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        const struct ct_history_event *event = ct_history_next(job->history, after);

        if (event == NULL || (link != NULL && !ct_admin_means(service, link, job)) ||
            (found != NULL && event->number > (*ret_event)->number))
            continue;
        *ret_event = event;
        found = job;
    }
    return found;
}

bool ct_service_put_event(const struct ct_service *service, uint64_t now_ms,
                          const struct ct_service_link *link, uint64_t *after, struct ct_buf *out)
{
    const struct ct_history_event *event = NULL;

    if (*after > service->event_number) /* of an earlier daemon: this one counts anew */
        *after = 0;
    const struct ct_service_job *job = find_next(service, link, *after, &event);

    if (job == NULL)
        return false;
    put_event(job, now_ms, event, out);
    *after = event->number;
    return true;
}

void ct_service_put_events(const struct ct_service *service, uint64_t now_ms,
                           const struct ct_service_link *link, uint64_t after, struct ct_buf *out)
{
    for (int i = 0; i < LINES && (out->limit == 0 || out->size + LINE_BYTES <= out->limit); i++)
        if (!ct_service_put_event(service, now_ms, link, &after, out))
            break;
}
