/* See small_message.h. */
#include "group/small_message.h"

#include "group/recorder.h"
#include "reduce/reduce.h"

/* Whether the group has a fast path and is in a state for it. Nothing read here is written by other
 * threads, but for what ends the group. */
static inline bool is_free(const struct ct_group *group)
{
    return group->backend->post != NULL && ct_helper_is_idle(&group->helper) &&
           group->queued == 0 && group->free != NULL && ct_group_broken(group) == 0 &&
           !atomic_load_explicit(&group->revoked, memory_order_relaxed) &&
           !ct_control_page_revoked(group->job->page, group->job->assignment.generation);
}

/* An all_reduce that ct_call_complete would take. A premultiplied sum has a factor a rank. */
static inline bool set_data(struct ct_small_message *message, const struct ct_data *data,
                            enum ct_reduce reduce, enum ct_reduce_mode mode)
{
    if ((unsigned)data->dtype >= CT_DTYPE_COUNT || data->count - 1 >= CT_SMALL_MESSAGE_BYTES ||
        data->recv == NULL || reduce == CT_REDUCE_PREMUL_SUM ||
        (unsigned)mode > CT_MODE_INVARIANT || !ct_reduce_supports(data->dtype, reduce))
        return false;
    message->send = data->send != NULL ? data->send : data->recv;
    message->recv = data->recv;
    message->bytes = data->count * ct_dtype_size(data->dtype);
    message->dtype = data->dtype;
    message->reduce = reduce;
    message->mode = mode;
    return message->bytes <= CT_SMALL_MESSAGE_BYTES;
}

static inline void sign(struct ct_small_message *message, enum ct_call_kind kind, size_t count,
                        uint32_t tag)
{
    struct ct_signature_fields fields = {.kind = kind, .tag = tag};

    if (kind != CT_CALL_BARRIER) {
        fields.dtype = message->dtype;
        fields.reduce = message->reduce;
        fields.mode = message->mode;
    }
    message->signature = (struct ct_signature){count, ct_signature_pack(&fields)};
}

static inline struct ct_flight_call
describe(const struct ct_group *group, const struct ct_small_message *message, const void *site)
{
    return (struct ct_flight_call){
        .what = message->signature,
        .number = (uint32_t)group->collectives,
        .group = (uint32_t)atomic_load_explicit(&group->record->id, memory_order_relaxed),
        .site = (uint64_t)(uintptr_t)site,
    };
}

/* The call is over: record its begin and its end at once. */
static inline void record_completed(const struct ct_group *group,
                                    const struct ct_small_message *message, const void *site,
                                    uint64_t queued)
{
    ct_worker_record_completed(group->record, group->collectives);
    if (group->flight == NULL)
        return;
    struct ct_flight_call call = describe(group, message, site);
    ct_flight_whole(group->flight, &call, queued, ct_ticks_since(queued));
}

/* The call is not over: the request that is made next is this call. */
static void post_request(struct ct_group *group, const struct ct_small_message *message,
                         const void *site, uint64_t queued)
{
    group->posted_call =
        (struct ct_small_call){.posted = true, .number = group->collectives, .queued = queued};
    if (group->flight == NULL)
        return;
    struct ct_flight_call call = describe(group, message, site);
    group->posted_call.entry = ct_flight_begin(group->flight, &call, false, queued);
}

bool ct_small_message_run(struct ct_group *group, enum ct_call_kind kind,
                          const struct ct_data *data, enum ct_reduce reduce,
                          const struct ct_options *options, const void *site)
{
    struct ct_small_message message = {.bytes = 0};
    uint64_t queued = 0;

    if (!is_free(group))
        return false;
    if (kind == CT_CALL_ALL_REDUCE &&
        !set_data(&message, data, reduce, options != NULL ? options->mode : CT_MODE_FAST))
        return false;
    sign(&message, kind, data->count, options != NULL ? options->tag : 0);
    if (!group->backend->post(group->state, &message))
        return false;
    ct_worker_record_entered(group->record, ++group->collectives);
    if (group->flight != NULL) {
        queued = ct_ticks();
        ct_flight_expect(group->flight);
    }
    if (!group->backend->collect(group->state, &message)) {
        post_request(group, &message, site, queued);
        return false;
    }
    group->last = kind == CT_CALL_BARRIER ? CT_ALGO_FLAGS : CT_ALGO_FLAT;
    record_completed(group, &message, site, queued);
    return true;
}
