/* Records of jobs on their way to whoever keeps them, at once or later. */
#include "rendezvous/service/journal.h"
#include "rendezvous/service/records.h"
#include "rendezvous/service/service_state.h"

#include <stdlib.h>

/* Room for one more record that is answered later. False without memory. */
static bool make_room(struct ct_service *service)
{
    if (service->open_count < service->open_room)
        return true;
    size_t room = service->open_room > 0 ? 2 * service->open_room : 16;
    struct ct_service_record *open = realloc(service->open, room * sizeof(*open));
    if (open == NULL)
        return false;
    service->open = open;
    service->open_room = room;
    return true;
}

/* A job that ends before its first round leaves none: there is nothing that a later daemon would
 * have to know. */
int ct_service_persist(struct ct_service_job *job, const struct ct_rdzv_action *action,
                       bool may_compact)
{
    struct ct_service *service = job->service;
    struct ct_buf record;
    if (service->io.persist == NULL || ct_rdzv_generation(job->core) == 0)
        return 0;
    ct_buf_init(&record, CT_JOURNAL_RECORD_LIMIT);
    ct_record_write_job(job->core, action->record, &record);
    int rc = record.failed || !make_room(service) ? CT_ENOMEM : 0;
    if (rc == 0)
        rc = service->io.persist(service->io.context, ++service->ticket, record.data, record.size,
                                 may_compact);
    if (rc == CT_SERVICE_LATER)
        service->open[service->open_count++] =
            (struct ct_service_record){.ticket = service->ticket, .job = job, .seq = action->seq};
    ct_buf_deinit(&record);
    return rc;
}

void ct_service_persist_forget(struct ct_service *service, const char *job)
{
    struct ct_buf record;
    ct_buf_init(&record, 0);
    ct_record_write_forget(job, &record);
    (void)service->io.persist(service->io.context, 0, record.data, record.size, true);
    ct_buf_deinit(&record);
}

void ct_service_forget_records(struct ct_service *service, const struct ct_service_job *job)
{
    for (size_t i = 0; i < service->open_count; i++)
        if (service->open[i].job == job)
            service->open[i].job = NULL;
}

void ct_service_kept(struct ct_service *service, uint64_t now_ms, uint64_t ticket, int code)
{
    size_t at = 0;
    while (at < service->open_count && service->open[at].ticket != ticket)
        at++;
    if (at == service->open_count)
        return;
    struct ct_service_job *job = service->open[at].job;
    const struct ct_rdzv_event event = {
        .kind = code == 0 ? CT_RDZV_ON_PERSISTED : CT_RDZV_ON_PERSIST_FAILED,
        .seq = service->open[at].seq,
    };
    service->open[at] = service->open[--service->open_count];
    if (job == NULL)
        return;
    ct_service_step(job, now_ms, &event);
    ct_service_reap(job);
}
