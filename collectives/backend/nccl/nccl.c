/* Backend nccl: collectives between GPUs by NCCL, which is loaded at run time.
 *
 *   call ---- NCCL does it as ctrun.h says? (nccl_calls.h)
 *     | no                    | yes
 *     |                       +-- a communicator: issue, InProgress?, event ---------+
 *   staged.h: through         +-- its signature over the host group (nccl_check.h) --+-- both: over
 *   the host's memory
 *
 * Nothing blocks: communicators are made so that no call waits, and are polled like the events; so
 * deadlines and revocation are request.c's, as with any backend. A collective is `queued` when it
 * is in its stream: those behind it follow at once, in the order in which they were started, over
 * all communicators of the group, as NCCL requires of all ranks of a device. Calls through the
 * host begin when no other call is under way. Messages that are open when a call waits go as one
 * group.
 *
 * When the group fails, NCCL is told to leave its kernels (revoke), where it can; communicators are
 * aborted when the group is freed, and the next round makes new ones from new ids; or shrinks one,
 * where that is asked for (nccl_kept.h). How groups form is nccl_form.c's. */
#include "backend/nccl/nccl_group.h"
#include "base/assert.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SPINS = 200, POLL_NS = 20000 }; /* how long to sleep while the device works */

/* What a task's `path` and `stage` are. */
enum { UNDECIDED, BY_LANE, BY_HOST };
enum { NEW, SPLITTING, COVERING, READY, ISSUED, QUEUED };

static bool suits(const struct ct_setup *setup)
{
    return setup->device != NULL && setup->size > 1;
}

static void finish_setup(void *state)
{
    (void)state;
}

/* ---- collectives on a communicator -----------------------------------------------------------*/

/* Communicators but the first two are made when they are first used: all members come there in the
 * same order, with nothing under way. */
static int split_off(struct ct_nccl_group *group, struct ct_nccl_communicator *communicator,
                     struct ct_task *task, struct ct_error *err)
{
    struct ct_nccl_communicator *main = &group->communicators[CT_NCCL_MAIN];

    if (communicator->comm == NULL && task->stage == NEW) {
        if (group->open > 0 || main->busy || main->launched != main->done)
            return 0;
        int code =
            ct_nccl_communicator_split(group->nccl, communicator, main, 0, group->staged.rank, err);
        if (code != 0)
            return code;
        task->stage = SPLITTING;
    }
    int code = 1;
    if (task->stage == SPLITTING) {
        code = ct_nccl_communicator_poll(group->nccl, main, err);
        if (code == 1 && communicator->comm != NULL)
            task->stage = COVERING;
    }
    if (code == 1 && task->stage == COVERING) {
        code = ct_nccl_communicator_cover(group->nccl, communicator, group->registered,
                                          group->registered_count, err);
        if (code == 1)
            task->stage = READY;
    }
    return code < 0 ? code : task->stage == READY;
}

static bool has_room(const struct ct_nccl_communicator *communicator)
{
    return communicator->launched - communicator->done < CT_NCCL_RING;
}

static int issue(struct ct_nccl_group *group, struct ct_nccl_communicator *communicator,
                 struct ct_task *task, struct ct_error *err)
{
    int code = ct_nccl_communicator_poll(group->nccl, communicator, err);

    if (code != 1 || !has_room(communicator))
        return CT_MIN(code, 0);
    task->skipped = ct_nccl_check_push(&group->check, task);
    if (task->skipped == 0)
        return 0;
    task->stage = ISSUED;
    task->moves++;
    group->open++;
    if (ct_nccl_is_empty(&task->call))
        return 1;
    code = ct_nccl_communicator_follow(communicator, task->call.stream);
    if (code != 0)
        return ct_error_set(err, code, "%s failed", communicator->device->name);
    int result =
        ct_nccl_issue(&group->nccl->lib, communicator->comm, communicator->stream, &task->call);
    code = ct_nccl_communicator_launched(group->nccl, communicator, result, err);
    task->at = communicator->launched;
    return code < 0 ? code : 1;
}

/* What needs the library, and so the lock. 1: queued. */
static int enqueue(struct ct_nccl_group *group, struct ct_nccl_communicator *communicator,
                   struct ct_task *task, struct ct_error *err)
{
    int code = 1;

    if (task->stage < READY)
        code = split_off(group, communicator, task, err);
    if (code == 1 && task->stage == READY)
        code = issue(group, communicator, task, err);
    if (code == 1 && task->stage == ISSUED)
        code = task->at == 0 ? 1 : ct_nccl_communicator_poll(group->nccl, communicator, err);
    if (code == 1 && task->stage == ISSUED) {
        task->stage = QUEUED;
        task->queued = true;
        task->moves++;
    }
    return code < 0 ? code : task->stage == QUEUED;
}

/* Under the lock, when it is free: the communicator's failure, reported by NCCL. */
static int ask(struct ct_nccl_group *group, struct ct_nccl_communicator *communicator,
               struct ct_error *err)
{
    if (!ct_nccl_try_lock(group->nccl))
        return 0;
    int code = ct_nccl_communicator_poll(group->nccl, communicator, err);
    ct_nccl_unlock(group->nccl);
    return CT_MIN(code, 0);
}

/* Has the device done batch `task->at`, and have all called the same? */
static int is_over(struct ct_nccl_group *group, struct ct_nccl_communicator *communicator,
                   struct ct_task *task, struct ct_error *err)
{
    int code = ct_nccl_communicator_query(communicator, err);
    int steps = code < 0 ? code : ct_nccl_check_pump(&group->check, err);

    if (steps < 0)
        return steps;
    task->moves += (uint64_t)steps;
    if (communicator->done >= task->at &&
        ct_nccl_check_done(&group->check, &task->call) >= task->skipped)
        return 1;
    return ask(group, communicator, err);
}

static int collective(struct ct_nccl_group *group, struct ct_task *task, struct ct_error *err)
{
    struct ct_nccl_communicator *communicator =
        &group->communicators[ct_nccl_communicator_of(task->call.kind)];

    if (task->stage != QUEUED) {
        if (!ct_nccl_try_lock(group->nccl))
            return 0;
        if (task->stage == NEW && communicator->comm != NULL)
            task->stage = READY;
        int code = enqueue(group, communicator, task, err);
        ct_nccl_unlock(group->nccl);
        if (code != 1)
            return code;
    }
    int code = is_over(group, communicator, task, err);
    group->open -= code == 1;
    return code;
}

/* ---- messages --------------------------------------------------------------------------------*/

/* Add to the next batch. */
static int join(struct ct_nccl_group *group, struct ct_nccl_communicator *communicator,
                struct ct_task *task, struct ct_error *err)
{
    const struct ct_call *call = &task->call;
    size_t bytes = ct_call_bytes(call);
    bool out = call->kind == CT_CALL_SEND;

    if (group->message_count == CT_COUNT(group->messages))
        return 0;
    task->skipped = ct_nccl_check_push(&group->check, task);
    if (task->skipped == 0)
        return 0;
    if (bytes > 0) {
        int code = ct_nccl_communicator_follow(communicator, call->stream);

        if (code != 0)
            return ct_error_set(err, code, "%s failed", communicator->device->name);
        group->messages[group->message_count++] = (struct ct_nccl_message){
            out ? (void *)(uintptr_t)call->send : call->recv, bytes, call->peer, out};
    }
    /* an empty one is over with those before it: its communicator's caller asks for the last one
     * alone */
    task->at = communicator->launched + (group->message_count > 0);
    task->stage = QUEUED;
    task->queued = true;
    task->moves++;
    return 0;
}

/* Send the batch off, when the communicator is free. */
static int send_off(struct ct_nccl_group *group, struct ct_nccl_communicator *communicator,
                    struct ct_error *err)
{
    if (!ct_nccl_try_lock(group->nccl))
        return 0;
    int code = ct_nccl_communicator_poll(group->nccl, communicator, err);
    if (code == 1 && has_room(communicator)) {
        int result =
            ct_nccl_issue_messages(&group->nccl->lib, communicator->comm, communicator->stream,
                                   group->messages, group->message_count);

        group->message_count = 0;
        code = ct_nccl_communicator_launched(group->nccl, communicator, result, err);
    }
    ct_nccl_unlock(group->nccl);
    return CT_MIN(code, 0);
}

static int message(struct ct_nccl_group *group, struct ct_task *task, struct ct_error *err)
{
    struct ct_nccl_communicator *communicator = &group->communicators[CT_NCCL_PAIRS];

    if (task->stage == NEW)
        return join(group, communicator, task, err);
    if (group->message_count > 0 && task->at == communicator->launched + 1) {
        int code = send_off(group, communicator, err);

        if (code < 0)
            return code;
    }
    return is_over(group, communicator, task, err);
}

/* ---- at work ---------------------------------------------------------------------------------*/

static int progress(void *state, struct ct_task *task, struct ct_error *err)
{
    struct ct_nccl_group *group = state;

    if (ct_call_is_transfer(&task->call))
        return message(group, task, err);
    if (task->path == UNDECIDED)
        task->path = ct_nccl_carries(&task->call) ? BY_LANE : BY_HOST;
    if (task->path == BY_LANE)
        return collective(group, task, err);
    /* the host group carries one collective at a time: the checks of all earlier ones first */
    return group->open > 0 ? 0 : ct_staged_progress(&group->staged, task, err);
}

static int spins(const void *state)
{
    (void)state;
    return SPINS;
}

static uint32_t arm(void *state)
{
    return ct_staged_arm(&((struct ct_nccl_group *)state)->staged);
}

/* The device wakes no thread: while it works, poll again soon. */
static void park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    struct ct_nccl_group *group = state;
    bool works = group->message_count > 0;

    for (int i = 0; i < CT_NCCL_KINDS; i++)
        works = works || group->communicators[i].busy ||
                group->communicators[i].launched != group->communicators[i].done;
    ct_staged_park(&group->staged, armed,
                   works ? CT_MIN(timeout_ns, (uint64_t)POLL_NS) : timeout_ns);
}

static int missing(void *state, const struct ct_task *task)
{
    struct ct_nccl_group *group = state;

    if (ct_call_is_transfer(&task->call))
        return task->call.peer;
    return task->path == BY_HOST ? ct_staged_missing(&group->staged, task)
                                 : ct_nccl_check_missing(&group->check);
}

static void fail(void *state, int code)
{
    struct ct_nccl_group *group = state;

    group->failed = true;
    ct_staged_fail(&group->staged, code);
    if (!ct_nccl_try_lock(group->nccl))
        return; /* they are being ended */
    for (int i = 0; i < CT_NCCL_KINDS; i++)
        ct_nccl_communicator_revoke(group->nccl, &group->communicators[i]);
    ct_nccl_unlock(group->nccl);
}

static void wake(void *state)
{
    ct_staged_wake(&((struct ct_nccl_group *)state)->staged);
}

static void revoke(void *state)
{
    ct_staged_revoke(&((struct ct_nccl_group *)state)->staged);
}

static struct ct_group *host_of(const void *state)
{
    return ((const struct ct_nccl_group *)state)->staged.host;
}

static int copy_within(void *state, void *to, const void *from, size_t bytes, void *stream)
{
    return ct_staged_copy(&((struct ct_nccl_group *)state)->staged, to, from, bytes, stream);
}

static int copied(void *state)
{
    return ct_staged_copied(&((struct ct_nccl_group *)state)->staged);
}

/* ---- the end ---------------------------------------------------------------------------------*/

static void leave_memory(struct ct_nccl_group *group)
{
    (void)pthread_mutex_lock(&group->nccl->lock);
    for (int i = 0; i < group->registered_count; i++)
        ct_nccl_memory_leave(group->nccl, group->registered[i]);
    ct_nccl_unlock(group->nccl);
}

static void close_group(void *state)
{
    struct ct_nccl_group *group = state;
    struct ct_job *job = group->staged.job;

    bool idle = group->open == 0 && group->message_count == 0;
    for (int i = 0; i < CT_NCCL_KINDS; i++)
        idle = idle && group->communicators[i].launched == group->communicators[i].done;
    ct_staged_deinit(&group->staged);
    ct_nccl_check_deinit(&group->check);
    if (group->opened) {
        bool over = group->failed && ct_job_revoked(job);

        if (over && group->origin.tag != 0 && group->origin.name[0] != '\0' &&
            ct_nccl_lacks(&group->nccl->lib, CT_NCCL_SHRINK) == NULL)
            ct_nccl_keep(group->nccl, &group->communicators[CT_NCCL_MAIN], &group->origin);
        struct ct_nccl_end how = {.nccl = group->nccl,
                                  .communicators = group->communicators,
                                  .count = CT_NCCL_COMMS,
                                  .healthy = idle && !group->failed,
                                  .all = over};

        if (!ct_nccl_communicators_end(job, &how))
            return; /* the library may still come back to its communicators */
        leave_memory(group);
    }
    free(group);
}

const struct ct_backend ct_backend_nccl = {
    .name = "nccl",
    .on_device = true,
    .batches = true,
    .suits = suits,
    .prepare = ct_nccl_group_prepare,
    .connect = ct_nccl_group_connect,
    .finish_setup = finish_setup,
    .progress = progress,
    .spins = spins,
    .arm = arm,
    .park = park,
    .missing = missing,
    .fail = fail,
    .wake = wake,
    .revoke = revoke,
    .close = close_group,
    .host = host_of,
    .copy = copy_within,
    .copied = copied,
    .split = ct_nccl_group_split,
    .register_memory = ct_nccl_group_register,
};
