/* Backend self: a group of one. Nearly every operation is a copy, or nothing. */
#include "backend/backend.h"
#include "reduce/reduce.h"

#include <string.h>

static bool suits(const struct ct_setup *setup)
{
    return setup->size == 1;
}

static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    (void)setup;
    (void)ret_blob;
    (void)err;
    *ret_state = NULL;
    return 0;
}

static int connect(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                   struct ct_error *err)
{
    (void)state;
    (void)setup;
    (void)blobs;
    (void)err;
    return 0;
}

static void nothing(void *state)
{
    (void)state;
}

/* Does the result of one operand differ from it? */
static bool changes(const struct ct_call *call)
{
    return ct_call_reduces(call->kind) &&
           (call->reduce == CT_REDUCE_PREMUL_SUM || call->dtype == CT_BOOL);
}

static int progress(void *state, struct ct_task *task, struct ct_error *err)
{
    (void)state;
    (void)err;
    const struct ct_call *call = &task->call;
    struct ct_span in = ct_call_in(call, 0), out = ct_call_out(call, 0);

    if (in.bytes == 0) /* then there may be no buffers */
        return 1;
    const void *from = call->send + in.at;
    void *to = call->recv + out.at;
    if (changes(call)) {
        struct ct_reduction how = ct_call_reduction(call);

        how.factor = &call->scale;
        ct_reduce_buffers(&how, to, &from, 1, call->count);
    } else if (from != to) {
        memcpy(to, from, in.bytes);
    }
    return 1;
}

static int spins(const void *state)
{
    (void)state;
    return 0;
}

static uint32_t arm(void *state)
{
    (void)state;
    return 0;
}

static void park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    (void)state;
    (void)armed;
    (void)timeout_ns;
}

static int missing(void *state, const struct ct_task *task)
{
    (void)state;
    (void)task;
    return -1;
}

static void fail(void *state, int code)
{
    (void)state;
    (void)code;
}

const struct ct_backend ct_backend_self = {
    .name = "self",
    .suits = suits,
    .prepare = prepare,
    .connect = connect,
    .finish_setup = nothing,
    .progress = progress,
    .spins = spins,
    .arm = arm,
    .park = park,
    .missing = missing,
    .fail = fail,
    .close = nothing,
};
