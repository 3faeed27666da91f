/* See recorder.h. */
#include "group/recorder.h"

void ct_recorder_open(struct ct_group *group)
{
    struct ct_worker_record *record = group->tuning.inner ? NULL : group->job->record;

    group->record = ct_worker_record_group_new(record, group->key, (uint32_t)group->rank,
                                               (uint32_t)group->size);
    if (group->record == NULL)
        group->record = &group->unread;
    else
        group->flight = &record->flight;
}

void ct_recorder_close(struct ct_group *group)
{
    if (group->record != &group->unread)
        ct_worker_record_group_free(group->record);
}

struct ct_flight_call ct_recorder_call(const struct ct_request *request)
{
    const struct ct_group *group = request->group;
    const struct ct_call *call = &request->task.call;
    struct ct_signature what = request->task.signature;
    struct ct_signature_fields fields;

    if (request->number == 0 && call->kind != CT_CALL_EXCHANGE &&
        ct_signature_unpack(what.rest, &fields)) {
        fields.kind = call->kind; /* which of the two ends it is, and who is the other */
        fields.peer = (unsigned)call->peer;
        what.rest = ct_signature_pack(&fields);
    }
    return (struct ct_flight_call){
        .what = what,
        .number = (uint32_t)request->number,
        .group = (uint32_t)atomic_load_explicit(&group->record->id, memory_order_relaxed),
        .site = (uint64_t)(uintptr_t)call->site,
    };
}
