/* Backend nccl: collectives between GPUs by NCCL, which is loaded at run time.
 *
 *   call ---- NCCL does it as ctrun.h says? (nccl_calls.h)
 *     | no                    | yes
 *     |                       +-- a lane (nccl_lane.h): issue, InProgress?, event ---+
 *   staged.h: through         +-- its signature over the host group (nccl_check.h) --+-- both: over
 *   the host's memory
 *
 * Nothing blocks: communicators are made so that no call waits, and are polled like the events; so
 * deadlines and revocation are request.c's, as with any backend. A collective is `queued` when it
 * is in its stream: those behind it follow at once, in the order in which they were started, over
 * all lanes of the group, which is what NCCL asks of all ranks of a device. What goes through the
 * host begins when nothing else is under way. Messages that are open when somebody waits go as one
 * group.
 *
 * When the group fails, NCCL is told to leave its kernels (revoke), where it can; communicators are
 * aborted when the group is freed, and the next round makes new ones from new ids. None is shrunk:
 * after a death that NCCL itself has seen its shrink refuses, and one way is enough. */
#include "backend/nccl_calls.h"
#include "backend/nccl_check.h"
#include "backend/nccl_lane.h"
#include "backend/staged.h"
#include "base/assert.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SPINS = 200,
    LOOK_NS = 20000,       /* how long to sleep while the device works */
    FORM_LOOK_NS = 500000, /* and while a communicator forms */
    FORM_ASK = 100,        /* how many such looks until the store is asked for failures */
    RANKS_AN_ID = 128,
};

struct group {
    struct ct_staged staged;
    struct ct_nccl *nccl;
    struct ct_nccl_check check;
    struct ct_nccl_lane lanes[CT_NCCL_LANES];
    bool opened; /* the lanes are listed */
    bool failed;
    int open; /* collectives on the lanes that are not over */
    /* The batch of messages that goes next. */
    struct ct_nccl_message messages[CT_REQUESTS_MAX];
    size_t message_count;
};

/* What a task's `path` and `stage` are. */
enum { UNDECIDED, BY_LANE, BY_HOST };
enum { NEW, SPLITTING, READY, ISSUED, QUEUED };

static bool suits(const struct ct_setup *setup)
{
    return setup->device != NULL && setup->size > 1;
}

/* ---- creation --------------------------------------------------------------------------------*/

/* What members tell each other. */
struct card {
    uint8_t unique[16]; /* the GPU's */
    int32_t version;
    int32_t shares; /* NCCL was told to take several ranks a GPU */
    struct ct_nccl_id id;
};
_Static_assert(sizeof(struct card) <= CT_BLOB_BYTES, "fits the blob");

/* As many unique ids as roots: the members that make them are spread evenly. */
static int id_count(const struct ct_nccl *nccl, int size)
{
    return nccl->lib.ncclCommInitRankScalable == NULL ? 1 : 1 + (size - 1) / RANKS_AN_ID;
}

static int maker_of(int id, int count, int size)
{
    return (int)((int64_t)id * size / count);
}

static bool makes_id(const struct ct_nccl *nccl, const struct ct_setup *setup)
{
    int count = id_count(nccl, setup->size);

    for (int i = 0; i < count; i++)
        if (maker_of(i, count, setup->size) == setup->rank)
            return true;
    return false;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    struct group *group = calloc(1, sizeof *group);
    struct card card = {.shares = is_set("NCCL_HOSTID") || is_set("NCCL_MULTI_RANK_GPU_ENABLE")};

    if (group == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    *ret_state = group;
    if (is_set("NCCL_COMM_BLOCKING"))
        return ct_error_set(
            err, CT_EUNSUPPORTED,
            "NCCL_COMM_BLOCKING makes NCCL wait where nobody could end it: unset it");
    int code = ct_nccl_of_job(setup->job, &group->nccl, err);
    if (code == 0)
        code = ct_staged_init(&group->staged, setup, err);
    if (code != 0)
        return code;
    memcpy(card.unique, setup->device->unique, sizeof card.unique);
    card.version = group->nccl->lib.version;
    if (makes_id(group->nccl, setup)) {
        int result = group->nccl->lib.ncclGetUniqueId(&card.id);

        if (result != CT_NCCL_SUCCESS)
            return ct_nccl_error(&group->nccl->lib, NULL, result, "no unique id", err);
    }
    memcpy(ret_blob->data, &card, sizeof card);
    return 0;
}

static struct card card_of(const struct ct_blob *blobs, int member)
{
    struct card card;

    memcpy(&card, blobs[member].data, sizeof card);
    return card;
}

/* One version for all, and a GPU each. */
static int check_cards(const struct ct_setup *setup, const struct ct_blob *blobs,
                       struct ct_error *err)
{
    struct card first = card_of(blobs, 0);

    for (int i = 1; i < setup->size; i++) {
        struct card card = card_of(blobs, i);

        if (card.version != first.version)
            return ct_error_set(err, CT_EUNSUPPORTED,
                                "rank %d has NCCL %d, rank %d has %d: all need the same",
                                setup->ranks[0], first.version, setup->ranks[i], card.version);
        for (int j = 0; j < i && !card.shares; j++) {
            struct card other = card_of(blobs, j);

            if (memcmp(card.unique, other.unique, sizeof card.unique) == 0)
                return ct_error_set(err, CT_EUNSUPPORTED,
                                    "ranks %d and %d share a GPU, which NCCL refuses",
                                    setup->ranks[j], setup->ranks[i]);
        }
    }
    return 0;
}

/* Poll the lane that forms (its parent, while it is split off) until it is there. */
static int await(struct group *group, const struct ct_setup *setup, struct ct_nccl_lane *lane,
                 struct ct_nccl_lane *asked, struct ct_error *err)
{
    for (int looks = 0;; looks++) {
        (void)pthread_mutex_lock(&group->nccl->lock);
        int code = ct_nccl_lane_poll(group->nccl, asked, err);
        ct_nccl_unlock(group->nccl);
        if (code == CT_ECLOSED) /* a connection that cannot be made: another backend may do */
            return err->code = CT_EUNAVAILABLE;
        if (code < 0)
            return code;
        if (code == 1 && lane->comm != NULL)
            return 0;
        if (ct_job_revoked(setup->job))
            return ct_error_set(err, CT_EREVOKED, "the round was revoked");
        if (looks % FORM_ASK == FORM_ASK - 1) {
            code = setup->failed_elsewhere(setup, err);
            if (code != 0)
                return code;
        }
        if (ct_clock_mono_ns(&ct_clock_system) >= setup->deadline_ns)
            return ct_error_set(err, CT_ETIMEOUT,
                                "NCCL did not make a communicator of %d ranks in time",
                                setup->size);
        (void)nanosleep(&(struct timespec){.tv_nsec = FORM_LOOK_NS}, NULL);
    }
}

static int form_main(struct group *group, const struct ct_setup *setup, const struct ct_blob *blobs,
                     struct ct_error *err)
{
    struct ct_nccl_lane *lane = &group->lanes[CT_NCCL_MAIN];
    int count = id_count(group->nccl, setup->size);
    struct ct_nccl_id *ids = calloc((size_t)count, sizeof *ids);

    if (ids == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    for (int i = 0; i < count; i++)
        ids[i] = card_of(blobs, maker_of(i, count, setup->size)).id;
    (void)pthread_mutex_lock(&group->nccl->lock);
    int code = ct_nccl_lane_form(group->nccl, lane, setup->rank, setup->size, ids, count, err);
    ct_nccl_unlock(group->nccl);
    free(ids);
    return code == 0 ? await(group, setup, lane, lane, err) : code;
}

/* Two members that exchange messages cannot ask the others to make a communicator for it. */
static int form_pairs(struct group *group, const struct ct_setup *setup, struct ct_error *err)
{
    struct ct_nccl_lane *main = &group->lanes[CT_NCCL_MAIN];
    struct ct_nccl_lane *pairs = &group->lanes[CT_NCCL_PAIRS];

    (void)pthread_mutex_lock(&group->nccl->lock);
    int code = ct_nccl_lane_split(group->nccl, pairs, main, setup->rank, err);
    ct_nccl_unlock(group->nccl);
    return code == 0 ? await(group, setup, pairs, main, err) : code;
}

static int connect_group(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                         struct ct_error *err)
{
    struct group *group = state;
    int code = check_cards(setup, blobs, err);

    if (code == 0)
        code = ct_staged_connect(&group->staged, setup, err);
    if (code == 0 && ct_nccl_check_init(&group->check, group->staged.host) != 0)
        code = ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    for (int i = 0; i < CT_NCCL_LANES && code == 0; i++) {
        group->opened = true;
        code = ct_nccl_lane_open(group->nccl, &group->lanes[i], setup->device, err);
    }
    if (code == 0)
        code = form_main(group, setup, blobs, err);
    if (code == 0)
        code = form_pairs(group, setup, err);
    group->failed = code != 0;
    return code;
}

static void settle(void *state)
{
    (void)state;
}

static void close_group(void *state)
{
    struct group *group = state;
    struct ct_job *job = group->staged.job;

    bool idle = group->open == 0 && group->message_count == 0;
    for (int i = 0; i < CT_NCCL_LANES; i++)
        idle = idle && group->lanes[i].launched == group->lanes[i].done;
    ct_staged_deinit(&group->staged);
    ct_nccl_check_deinit(&group->check);
    if (group->opened) {
        struct ct_nccl_end how = {.nccl = group->nccl,
                                  .lanes = group->lanes,
                                  .count = CT_NCCL_LANES,
                                  .healthy = idle && !group->failed,
                                  .all = group->failed && ct_job_revoked(job)};

        if (!ct_nccl_lanes_end(job, &how))
            return; /* the library may still come back to its lanes */
    }
    free(group);
}

/* ---- collectives on a lane -------------------------------------------------------------------*/

/* Lanes but the first two are made when they are first used: all members come there in the same
 * order, with nothing under way. */
static int split_off(struct group *group, struct ct_nccl_lane *lane, struct ct_task *task,
                     struct ct_error *err)
{
    struct ct_nccl_lane *main = &group->lanes[CT_NCCL_MAIN];

    if (lane->comm == NULL && task->stage == NEW) {
        if (group->open > 0 || main->busy || main->launched != main->done)
            return 0;
        int code = ct_nccl_lane_split(group->nccl, lane, main, group->staged.rank, err);
        if (code != 0)
            return code;
        task->stage = SPLITTING;
    }
    int code = ct_nccl_lane_poll(group->nccl, main, err);
    if (code == 1 && lane->comm != NULL)
        task->stage = READY;
    return code < 0 ? code : task->stage == READY;
}

static bool has_room(const struct ct_nccl_lane *lane)
{
    return lane->launched - lane->done < CT_NCCL_RING;
}

static int issue(struct group *group, struct ct_nccl_lane *lane, struct ct_task *task,
                 struct ct_error *err)
{
    int code = ct_nccl_lane_poll(group->nccl, lane, err);

    if (code != 1 || !has_room(lane))
        return CT_MIN(code, 0);
    task->skipped = ct_nccl_check_push(&group->check, task);
    if (task->skipped == 0)
        return 0;
    task->stage = ISSUED;
    task->moves++;
    group->open++;
    if (ct_nccl_is_empty(&task->call))
        return 1;
    code = ct_nccl_lane_follow(lane, task->call.stream);
    if (code != 0)
        return ct_error_set(err, code, "%s failed", lane->device->name);
    int result = ct_nccl_issue(&group->nccl->lib, lane->comm, lane->stream, &task->call);
    code = ct_nccl_lane_launched(group->nccl, lane, result, err);
    task->at = lane->launched;
    return code < 0 ? code : 1;
}

/* What needs the library, and so the lock. 1: queued. */
static int enqueue(struct group *group, struct ct_nccl_lane *lane, struct ct_task *task,
                   struct ct_error *err)
{
    int code = 1;

    if (task->stage < READY)
        code = split_off(group, lane, task, err);
    if (code == 1 && task->stage == READY)
        code = issue(group, lane, task, err);
    if (code == 1 && task->stage == ISSUED)
        code = task->at == 0 ? 1 : ct_nccl_lane_poll(group->nccl, lane, err);
    if (code == 1 && task->stage == ISSUED) {
        task->stage = QUEUED;
        task->queued = true;
        task->moves++;
    }
    return code < 0 ? code : task->stage == QUEUED;
}

/* Under the lock, when it is free: the lane's failure, told by NCCL. */
static int ask(struct group *group, struct ct_nccl_lane *lane, struct ct_error *err)
{
    if (!ct_nccl_try_lock(group->nccl))
        return 0;
    int code = ct_nccl_lane_poll(group->nccl, lane, err);
    ct_nccl_unlock(group->nccl);
    return CT_MIN(code, 0);
}

/* Has the device done batch `task->at`, and have all called the same? */
static int is_over(struct group *group, struct ct_nccl_lane *lane, struct ct_task *task,
                   struct ct_error *err)
{
    int code = ct_nccl_lane_look(lane, err);
    int steps = code < 0 ? code : ct_nccl_check_pump(&group->check, err);

    if (steps < 0)
        return steps;
    task->moves += (uint64_t)steps;
    if (lane->done >= task->at && ct_nccl_check_done(&group->check, &task->call) >= task->skipped)
        return 1;
    return ask(group, lane, err);
}

static int collective(struct group *group, struct ct_task *task, struct ct_error *err)
{
    struct ct_nccl_lane *lane = &group->lanes[ct_nccl_lane_of(task->call.kind)];

    if (task->stage != QUEUED) {
        if (!ct_nccl_try_lock(group->nccl))
            return 0;
        if (task->stage == NEW && lane->comm != NULL)
            task->stage = READY;
        int code = enqueue(group, lane, task, err);
        ct_nccl_unlock(group->nccl);
        if (code != 1)
            return code;
    }
    int code = is_over(group, lane, task, err);
    group->open -= code == 1;
    return code;
}

/* ---- messages --------------------------------------------------------------------------------*/

/* Join the batch that goes next. */
static int join(struct group *group, struct ct_nccl_lane *lane, struct ct_task *task,
                struct ct_error *err)
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
        int code = ct_nccl_lane_follow(lane, call->stream);

        if (code != 0)
            return ct_error_set(err, code, "%s failed", lane->device->name);
        group->messages[group->message_count++] = (struct ct_nccl_message){
            out ? (void *)(uintptr_t)call->send : call->recv, bytes, call->peer, out};
    }
    /* an empty one is over with those before it: its lane's caller asks for the last one alone */
    task->at = lane->launched + (group->message_count > 0);
    task->stage = QUEUED;
    task->queued = true;
    task->moves++;
    return 0;
}

/* Send the batch off, when the lane is free. */
static int send_off(struct group *group, struct ct_nccl_lane *lane, struct ct_error *err)
{
    if (!ct_nccl_try_lock(group->nccl))
        return 0;
    int code = ct_nccl_lane_poll(group->nccl, lane, err);
    if (code == 1 && has_room(lane)) {
        int result = ct_nccl_issue_messages(&group->nccl->lib, lane->comm, lane->stream,
                                            group->messages, group->message_count);

        group->message_count = 0;
        code = ct_nccl_lane_launched(group->nccl, lane, result, err);
    }
    ct_nccl_unlock(group->nccl);
    return CT_MIN(code, 0);
}

static int message(struct group *group, struct ct_task *task, struct ct_error *err)
{
    struct ct_nccl_lane *lane = &group->lanes[CT_NCCL_PAIRS];

    if (task->stage == NEW)
        return join(group, lane, task, err);
    if (group->message_count > 0 && task->at == lane->launched + 1) {
        int code = send_off(group, lane, err);

        if (code < 0)
            return code;
    }
    return is_over(group, lane, task, err);
}

/* ---- at work ---------------------------------------------------------------------------------*/

static int progress(void *state, struct ct_task *task, struct ct_error *err)
{
    struct group *group = state;

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
    return ct_staged_arm(&((struct group *)state)->staged);
}

/* The device rings no bell: while it works, look again soon. */
static void park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    struct group *group = state;
    bool works = group->message_count > 0;

    for (int i = 0; i < CT_NCCL_LANES; i++)
        works = works || group->lanes[i].busy || group->lanes[i].launched != group->lanes[i].done;
    ct_staged_park(&group->staged, armed,
                   works ? CT_MIN(timeout_ns, (uint64_t)LOOK_NS) : timeout_ns);
}

static int missing(void *state, const struct ct_task *task)
{
    struct group *group = state;

    if (ct_call_is_transfer(&task->call))
        return task->call.peer;
    return task->path == BY_HOST ? ct_staged_missing(&group->staged, task)
                                 : ct_nccl_check_missing(&group->check);
}

static void fail(void *state, int code)
{
    struct group *group = state;

    group->failed = true;
    ct_staged_fail(&group->staged, code);
    if (!ct_nccl_try_lock(group->nccl))
        return; /* they are being ended */
    for (int i = 0; i < CT_NCCL_LANES; i++)
        ct_nccl_lane_revoke(group->nccl, &group->lanes[i]);
    ct_nccl_unlock(group->nccl);
}

static void wake(void *state)
{
    ct_staged_wake(&((struct group *)state)->staged);
}

static void revoke(void *state)
{
    ct_staged_revoke(&((struct group *)state)->staged);
}

static struct ct_group *host_of(const void *state)
{
    return ((const struct group *)state)->staged.host;
}

static int copy_within(void *state, void *to, const void *from, size_t bytes, void *stream)
{
    return ct_staged_copy(&((struct group *)state)->staged, to, from, bytes, stream);
}

static int copied(void *state)
{
    return ct_staged_copied(&((struct group *)state)->staged);
}

const struct ct_backend ct_backend_nccl = {
    .name = "nccl",
    .on_device = true,
    .batches = true,
    .suits = suits,
    .prepare = prepare,
    .connect = connect_group,
    .settle = settle,
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
};
