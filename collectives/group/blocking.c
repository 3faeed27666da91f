/* The blocking forms: start and wait. */
#include "group/recorder.h"
#include "group/small_message.h"

/* What is started now is waited for at once: not for the helper. */
static inline struct ct_request *hold(struct ct_group *group)
{
    group->waiting = true;
    return NULL;
}

/* Inlined, so that it sees who called the operation. */
__attribute__((always_inline)) static inline int wait_for(struct ct_group *group, int code,
                                                          struct ct_request *request)
{
    group->waiting = false;
    if (code != 0)
        return code;
    ct_recorder_site(request, __builtin_return_address(0));
    return ct_wait(request);
}

int ct_all_reduce(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                  const struct ct_options *options)
{
    if (ct_small_message_run(group, CT_CALL_ALL_REDUCE, &data, reduce, options,
                             __builtin_return_address(0)))
        return 0;
    struct ct_request *request = hold(group);
    int code = ct_all_reduce_start(group, data, reduce, options, &request);

    return wait_for(group, code, request);
}

int ct_reduce(struct ct_group *group, struct ct_data data, enum ct_reduce reduce, int root,
              const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_reduce_start(group, data, reduce, root, options, &request);

    return wait_for(group, code, request);
}

int ct_broadcast(struct ct_group *group, struct ct_data data, int root,
                 const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_broadcast_start(group, data, root, options, &request);

    return wait_for(group, code, request);
}

int ct_all_gather(struct ct_group *group, struct ct_data data, const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_all_gather_start(group, data, options, &request);

    return wait_for(group, code, request);
}

int ct_all_gather_v(struct ct_group *group, struct ct_data data, struct ct_parts parts,
                    const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_all_gather_v_start(group, data, parts, options, &request);

    return wait_for(group, code, request);
}

int ct_reduce_scatter(struct ct_group *group, struct ct_data data, enum ct_reduce reduce,
                      const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_reduce_scatter_start(group, data, reduce, options, &request);

    return wait_for(group, code, request);
}

int ct_reduce_scatter_v(struct ct_group *group, struct ct_data data, struct ct_parts parts,
                        enum ct_reduce reduce, const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_reduce_scatter_v_start(group, data, parts, reduce, options, &request);

    return wait_for(group, code, request);
}

int ct_gather(struct ct_group *group, struct ct_data data, int root,
              const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_gather_start(group, data, root, options, &request);

    return wait_for(group, code, request);
}

int ct_scatter(struct ct_group *group, struct ct_data data, int root,
               const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_scatter_start(group, data, root, options, &request);

    return wait_for(group, code, request);
}

int ct_all_to_all(struct ct_group *group, struct ct_data data, const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_all_to_all_start(group, data, options, &request);

    return wait_for(group, code, request);
}

int ct_all_to_all_v(struct ct_group *group, struct ct_data data, struct ct_parts send_parts,
                    struct ct_parts recv_parts, const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_all_to_all_v_start(group, data, send_parts, recv_parts, options, &request);

    return wait_for(group, code, request);
}

int ct_send(struct ct_group *group, struct ct_data data, int to, const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_send_start(group, data, to, options, &request);

    return wait_for(group, code, request);
}

int ct_recv(struct ct_group *group, struct ct_data data, int from, const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_recv_start(group, data, from, options, &request);

    return wait_for(group, code, request);
}

int ct_exchange(struct ct_group *group, const struct ct_transfer *transfers, int count,
                const struct ct_options *options)
{
    struct ct_request *request = hold(group);
    int code = ct_exchange_start(group, transfers, count, options, &request);

    return wait_for(group, code, request);
}

int ct_barrier(struct ct_group *group, const struct ct_options *options)
{
    struct ct_data nothing = {NULL, NULL, 0, CT_U8};

    if (ct_small_message_run(group, CT_CALL_BARRIER, &nothing, CT_REDUCE_SUM, options,
                             __builtin_return_address(0)))
        return 0;
    struct ct_request *request = hold(group);
    int code = ct_barrier_start(group, options, &request);

    return wait_for(group, code, request);
}
