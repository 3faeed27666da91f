/* Backend thread: the members are threads of this process; the segment lies on the world's heap,
 * and the blob carries its address. */
#include "backend/local/local.h"
#include "job/thread_memory.h"

#include <string.h>

static bool suits(const struct ct_setup *setup)
{
    return setup->job->world != NULL;
}

static void release(struct ct_local *local)
{
    if (local->owner != NULL)
        ct_world_segment_leave(local->owner);
}

/* Rank 0 makes the segment; it lives until each member has left it, or until the world ends. */
static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    struct ct_local *local = ct_local_new(setup);

    if (local == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    local->release = release;
    local->one_process = true;
    *ret_state = local;
    if (setup->rank != 0)
        return 0;
    local->owner = ct_world_segment_new(setup->job->world, local->total_bytes, setup->size);
    if (local->owner == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a segment of %zu bytes",
                            local->total_bytes);
    memcpy(ret_blob->data, &local->owner, sizeof local->owner);
    return 0;
}

static int connect(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                   struct ct_error *err)
{
    struct ct_local *local = state;

    (void)setup;
    (void)err;
    memcpy(&local->owner, blobs[0].data, sizeof local->owner);
    ct_local_attach(local, ct_world_segment_memory(local->owner));
    return 0;
}

const struct ct_backend ct_backend_thread = {
    .name = "thread",
    .suits = suits,
    .prepare = prepare,
    .connect = connect,
    .finish_setup = ct_local_complete,
    .progress = ct_local_progress,
    .post = ct_local_post,
    .collect = ct_local_collect,
    .spins = ct_local_spins,
    .arm = ct_local_arm,
    .park = ct_local_park,
    .missing = ct_local_missing,
    .fail = ct_local_fail,
    .wake = ct_local_wake,
    .revoke = ct_local_revoke,
    .close = ct_local_close,
};
