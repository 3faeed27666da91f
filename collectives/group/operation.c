/* The handle forms: a call is put together from its arguments, in place resolved, checked, queued.
 */
#include "group/exchange.h"

/* A call with what all operations have in common; inlined, so that it sees who called the
 * operation. All of it is named: a compiler clears what is not with a loop, which takes longer than
 * the rest of a small call. */
__attribute__((always_inline)) static inline struct ct_call
make_call(const struct ct_group *group, enum ct_call_kind kind, struct ct_data data,
          const struct ct_options *options)
{
    return (struct ct_call){.kind = kind,
                            .dtype = data.dtype,
                            .reduce = CT_REDUCE_SUM,
                            .mode = options != NULL ? options->mode : CT_MODE_FAST,
                            .rank = group->rank,
                            .size = group->size,
                            .members = 0,
                            .peer = 0,
                            .tag = options != NULL ? options->tag : 0,
                            .count = data.count,
                            .scale = options != NULL ? options->scale : 1.0,
                            .send = data.send != NULL ? data.send : data.recv,
                            .recv = data.recv,
                            .uneven = false,
                            .in = {NULL, NULL},
                            .out = {NULL, NULL},
                            .transfers = NULL,
                            .stream = options != NULL ? options->stream : NULL,
                            .site = __builtin_return_address(0),
                            .longest_bytes = 0};
}

static int start(struct ct_group *group, struct ct_call *call, const struct ct_options *options,
                 struct ct_request **ret_request)
{
    bool lacks_scale = call->reduce == CT_REDUCE_PREMUL_SUM && options == NULL;

    if (ct_group_broken(group) != 0)
        return ct_group_broken(group);
    if (lacks_scale || !ct_call_complete(call))
        return CT_EUSAGE;
    return ct_request_start(group, call, options != NULL ? options->timeout_ms : 0, ret_request);
}

/* Where this rank's own part of a buffer in parts begins: the input or output of a call in place.
 * What makes no sense stays where it is; ct_call_complete refuses it. */
static char *own_part(const struct ct_call *call, const struct ct_parts *parts)
{
    size_t at = (size_t)call->rank * call->count;

    if (call->recv == NULL || (unsigned)call->dtype >= CT_DTYPE_COUNT)
        return call->recv;
    if (call->uneven && parts->offsets == NULL)
        return call->recv;
    if (call->uneven)
        at = parts->offsets[call->rank];
    /* of a wrong call this may lie anywhere: no pointer yet */
    return (char *)((uintptr_t)call->recv + at * ct_dtype_size(call->dtype));
}

int ct_all_reduce_start(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                        const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_ALL_REDUCE, data, options);

    call.reduce = reduce;
    return start(group, &call, options, ret_request);
}

int ct_reduce_start(struct ct_group *group, struct ct_data data, enum ct_reduce reduce, int root,
                    const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_REDUCE, data, options);

    call.reduce = reduce;
    call.peer = root;
    return start(group, &call, options, ret_request);
}

int ct_broadcast_start(struct ct_group *group, struct ct_data data, int root,
                       const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_BROADCAST, data, options);

    call.peer = root;
    return start(group, &call, options, ret_request);
}

int ct_all_gather_start(struct ct_group *group, struct ct_data data,
                        const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_ALL_GATHER, data, options);

    if (data.send == NULL)
        call.send = own_part(&call, &call.out);
    return start(group, &call, options, ret_request);
}

int ct_all_gather_v_start(struct ct_group *group, struct ct_data data, struct ct_parts parts,
                          const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_ALL_GATHER, data, options);

    call.uneven = true;
    call.out = parts;
    if (data.send == NULL)
        call.send = own_part(&call, &call.out);
    return start(group, &call, options, ret_request);
}

int ct_reduce_scatter_start(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                            const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_REDUCE_SCATTER, data, options);

    call.reduce = reduce;
    if (data.send == NULL)
        call.recv = own_part(&call, &call.in);
    return start(group, &call, options, ret_request);
}

int ct_reduce_scatter_v_start(struct ct_group *group, struct ct_data data, struct ct_parts parts,
                              enum ct_reduce reduce, const struct ct_options *options,
                              struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_REDUCE_SCATTER, data, options);

    call.reduce = reduce;
    call.uneven = true;
    call.in = parts;
    if (data.send == NULL)
        call.recv = own_part(&call, &call.in);
    return start(group, &call, options, ret_request);
}

int ct_gather_start(struct ct_group *group, struct ct_data data, int root,
                    const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_GATHER, data, options);

    call.peer = root;
    if (data.send == NULL && root == group->rank)
        call.send = own_part(&call, &call.out);
    return start(group, &call, options, ret_request);
}

int ct_scatter_start(struct ct_group *group, struct ct_data data, int root,
                     const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_SCATTER, data, options);

    call.peer = root;
    if (data.send == NULL && root == group->rank)
        call.recv = own_part(&call, &call.in);
    return start(group, &call, options, ret_request);
}

int ct_all_to_all_start(struct ct_group *group, struct ct_data data,
                        const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_ALL_TO_ALL, data, options);

    return start(group, &call, options, ret_request);
}

int ct_all_to_all_v_start(struct ct_group *group, struct ct_data data, struct ct_parts send_parts,
                          struct ct_parts recv_parts, const struct ct_options *options,
                          struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_ALL_TO_ALL, data, options);

    call.uneven = true;
    call.count = 0;
    call.in = send_parts;
    call.out = recv_parts;
    return start(group, &call, options, ret_request);
}

int ct_send_start(struct ct_group *group, struct ct_data data, int to,
                  const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_SEND, data, options);

    call.peer = to;
    return start(group, &call, options, ret_request);
}

int ct_recv_start(struct ct_group *group, struct ct_data data, int from,
                  const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_call call = make_call(group, CT_CALL_RECV, data, options);

    call.peer = from;
    return start(group, &call, options, ret_request);
}

int ct_exchange_start(struct ct_group *group, const struct ct_transfer *transfers, int count,
                      const struct ct_options *options, struct ct_request **ret_request)
{
    struct ct_data list = {NULL, NULL, count > 0 ? (size_t)count : 0, CT_U8};
    struct ct_call call = make_call(group, CT_CALL_EXCHANGE, list, options);

    call.transfers = transfers;
    if (count < 0 || (count > 0 && transfers == NULL) || !ct_exchange_valid(&call))
        return ct_group_broken(group) != 0 ? ct_group_broken(group) : CT_EUSAGE;
    return start(group, &call, options, ret_request);
}

int ct_barrier_start(struct ct_group *group, const struct ct_options *options,
                     struct ct_request **ret_request)
{
    struct ct_data nothing = {NULL, NULL, 0, CT_U8};
    struct ct_call call = make_call(group, CT_CALL_BARRIER, nothing, options);

    return start(group, &call, options, ret_request);
}
