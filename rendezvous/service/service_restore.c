/* A service out of its journal, and back into one. */
#include "rendezvous/service/journal.h"
#include "rendezvous/service/records.h"
#include "rendezvous/service/service_state.h"

#include "rendezvous/core/core_state.h"

#include "base/assert.h"

enum { ARENA_BYTES = 64 << 20 };

static int apply(struct ct_service *service, uint64_t now_ms, const struct ct_record *record,
                 struct ct_error *err)
{
    struct ct_service_job *job = ct_service_find_job(service, record->job);
    if (record->kind == CT_RECORD_EPOCH) {
        service->epoch = record->epoch;
        return 0;
    }
    if (record->kind == CT_RECORD_FORGET) {
        if (job != NULL)
            ct_service_remove_job(service, job);
        return 0;
    }
    if (job == NULL && record->kind == CT_RECORD_RESERVE) {
        struct ct_rdzv *core = ct_rdzv_new(record->job, &record->params, 0, now_ms);
        job = ct_service_add_job(service, now_ms, core);
        if (job == NULL)
            return ct_error_set(err, CT_ENOMEM, "no memory for job %s", record->job);
    }
    if (job == NULL)
        return ct_error_set(err, CT_EDATA, "the journal tells of job %s before it began",
                            record->job);
    switch (record->kind) {
    case CT_RECORD_RESERVE:
        ct_rdzv_restore_reserve(job->core, record->generation, record->restarts, record->charged,
                                record->rebuilt);
        return 0;
    case CT_RECORD_COMMIT:
        return ct_rdzv_restore_commit(job->core, &record->roster, record->restarts, err);
    case CT_RECORD_MANIFEST:
        ct_rdzv_restore_manifest(job->core, &record->published);
        return 0;
    case CT_RECORD_CORDON:
        ct_rdzv_restore_cordon(job->core, record->cordons, record->cordon_count);
        return 0;
    default:
        ct_rdzv_restore_close(job->core, &record->result);
        return 0;
    }
}

int ct_service_restore(struct ct_service *service, uint64_t now_ms, const void *record, size_t size,
                       struct ct_error *err)
{
    struct ct_arena arena;
    struct ct_record content;
    ct_arena_init(&arena, ARENA_BYTES);
    int rc = ct_record_read(record, size, &arena, &content, err);
    if (rc == 0)
        rc = apply(service, now_ms, &content, err);
    ct_arena_deinit(&arena);
    return rc;
}

void ct_service_restored(struct ct_service *service, uint64_t epoch)
{
    service->epoch = epoch;
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        job->core->epoch = epoch;
        ct_rdzv_restored(job->core);
        ct_store_lose(job->store, ct_rdzv_roster(job->core)->generation);
    }
    ct_service_touch_all(service);
}

void ct_service_restored_within(struct ct_service *service, uint64_t within_ms)
{
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        ct_rdzv_restored_within(job->core, within_ms);
    ct_service_touch_all(service);
}

void ct_service_note_elsewhere(struct ct_service *service, uint64_t now_ms, const char *host)
{
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        ct_rdzv_note_elsewhere(job->core, now_ms, host);
    ct_service_touch_all(service);
}

void ct_service_hear_for(struct ct_service *service, uint64_t for_ms)
{
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        ct_rdzv_hear_for(job->core, for_ms);
    ct_service_touch_all(service);
}

void ct_service_node_silent(struct ct_service *service, uint64_t id, uint64_t silent_ms)
{
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        ct_rdzv_restored_silent(job->core, id, silent_ms);
    ct_service_touch_all(service);
}

void ct_service_node_died(struct ct_service *service, uint64_t now_ms, uint64_t id)
{
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        for (uint32_t i = 0; i < ct_rdzv_capacity(job->core); i++) {
            const struct ct_rdzv_member *member = ct_rdzv_member(job->core, i);
            const struct ct_rdzv_event event = {.kind = CT_RDZV_ON_DISCONNECT, .member = i};
            if (member->state != CT_RDZV_FREE && ct_id_fold(member->id) == id)
                ct_service_step(job, now_ms, &event);
        }
    ct_service_touch_all(service);
}

void ct_service_set_rebuild(struct ct_service *service, enum ct_rdzv_rebuild rebuild)
{
    service->rebuild = rebuild;
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        ct_rdzv_set_rebuild(job->core, rebuild);
    ct_service_touch_all(service);
}

void ct_service_raise(struct ct_service *service, uint64_t epoch)
{
    service->epoch = epoch;
    for (struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        job->core->epoch = epoch;
    ct_service_touch_all(service);
}

uint64_t ct_service_generation(const struct ct_service *service)
{
    uint64_t highest = 0;
    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next)
        highest = CT_MAX(highest, ct_rdzv_generation(job->core));
    return highest;
}

int ct_service_snapshot(const struct ct_service *service,
                        int (*emit)(void *context, const void *record, size_t size), void *context)
{
    struct ct_buf record;
    ct_buf_init(&record, CT_JOURNAL_RECORD_LIMIT);
    ct_record_write_epoch(service->epoch, &record);
    int rc = record.failed ? CT_ENOMEM : emit(context, record.data, record.size);
    for (const struct ct_service_job *job = service->jobs; job != NULL; job = job->next) {
        const struct ct_rdzv *core = job->core;
        const bool needed[CT_RDZV_RECORDS] = {
            [CT_RDZV_RECORD_RESERVE] = core->generation > 0,
            [CT_RDZV_RECORD_COMMIT] = core->roster.generation > 0,
            [CT_RDZV_RECORD_CLOSE] = core->generation > 0 && core->phase == CT_RDZV_CLOSED,
            [CT_RDZV_RECORD_MANIFEST] = core->published.generation > 0,
            [CT_RDZV_RECORD_CORDON] = core->generation > 0 && core->cordon_count > 0,
        };
        for (unsigned kind = CT_RDZV_RECORD_RESERVE; rc == 0 && kind < CT_RDZV_RECORDS; kind++) {
            if (!needed[kind])
                continue;
            ct_buf_clear(&record);
            if (kind == CT_RDZV_RECORD_COMMIT)
                ct_record_write_commit(core, &core->roster, &record);
            else if (kind == CT_RDZV_RECORD_MANIFEST)
                ct_record_write_manifest(core, &core->published, &record);
            else
                ct_record_write_job(core, (enum ct_rdzv_record)kind, &record);
            rc = record.failed ? CT_ENOMEM : emit(context, record.data, record.size);
        }
    }
    ct_buf_deinit(&record);
    return rc;
}
