/* See fake.h. What NCCL's rules forbid fails here, too: a call on a communicator in progress, one
 * that may block, a communicator destroyed before it is finalized. */
#include "comm.h"
#include "sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { SLOW_POLLS = 5, GROUP_MAX = 512, COMMS_MAX = 64, HANG_MS = 2000, VERSION = 22809 };

enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV };

struct op {
    enum kind kind;
    const char *send;
    char *recv;
    size_t count;
    int type, reduction, peer;
};

/* What one group gives one communicator. */
struct batch {
    struct ct_nccl_comm *comm;
    void *stream;
    int count;
    struct op ops[GROUP_MAX];
};

struct fake_count fake_count;

struct fakenccl_counts fakenccl_counts(void)
{
    struct fakenccl_counts counts = {.ids = atomic_load(&fake_count.ids),
                                     .splits = atomic_load(&fake_count.splits),
                                     .shrinks = atomic_load(&fake_count.shrinks),
                                     .comms = atomic_load(&fake_count.comms)};

    fake_memory_count(&counts);
    return counts;
}

/* ---- faults ----------------------------------------------------------------------------------*/

bool fake_has_fault(const char *name, int rank)
{
    const char *fault = getenv("FAKENCCL_FAULT"), *at = getenv("FAKENCCL_RANK");

    return fault != NULL && strcmp(fault, name) == 0 && (at == NULL || atoi(at) == rank);
}

static void hang(void)
{
    const char *text = getenv("FAKENCCL_HANG_MS");
    long ms = text != NULL ? atol(text) : HANG_MS;

    fake_park(ms * 1000000);
}

/* ---- collectives on the stream ---------------------------------------------------------------*/

/* One piece of an op: `at` and `count` in elements. */
struct work {
    const struct op *op;
    char *to; /* NULL: this rank takes nothing */
    size_t at, count, stride;
};

static void receive_sum(void *context, char *const *slots, int size)
{
    const struct work *work = context;

    if (work->to != NULL)
        fake_sum(work->op->type, work->op->reduction, work->to, slots, size, work->count);
}

static void receive_root(void *context, char *const *slots, int size)
{
    const struct work *work = context;

    (void)size;
    memcpy(work->to, slots[work->op->peer], work->count);
}

static void receive_all(void *context, char *const *slots, int size)
{
    const struct work *work = context;

    for (int i = 0; i < size; i++)
        memcpy(work->to + (size_t)i * work->stride, slots[i], work->count);
}

static bool exchange(struct ct_nccl_comm *comm, const void *own, size_t bytes, struct work *work,
                     void (*receive)(void *context, char *const *slots, int size))
{
    struct fake_part part = {own, bytes, receive, work};

    return fake_world_exchange(comm->world, &part, &comm->stop);
}

/* The sum of `from` at all ranks, to `to` where that is given. */
static bool sum_all(struct ct_nccl_comm *comm, const struct op *op, const char *from, char *to)
{
    size_t width = fake_width(op->type), most = FAKE_SLOT_BYTES / width;

    for (size_t at = 0; at < op->count; at += most) {
        size_t count = op->count - at < most ? op->count - at : most;
        struct work work = {.op = op, .to = to != NULL ? to + at * width : NULL, .count = count};

        if (!exchange(comm, from + at * width, count * width, &work, receive_sum))
            return false;
    }
    return true;
}

static bool move_all(struct ct_nccl_comm *comm, const struct op *op)
{
    size_t width = fake_width(op->type), bytes = op->count * width;
    bool gather = op->kind == ALL_GATHER, gives = gather || comm->rank == op->peer;

    for (size_t at = 0; at < bytes; at += FAKE_SLOT_BYTES) {
        size_t count = bytes - at < FAKE_SLOT_BYTES ? bytes - at : FAKE_SLOT_BYTES;
        struct work work = {.op = op, .to = op->recv + at, .count = count, .stride = bytes};

        if (!exchange(comm, gives ? op->send + at : NULL, count, &work,
                      gather ? receive_all : receive_root))
            return false;
    }
    return true;
}

static bool run_collective(struct ct_nccl_comm *comm, const struct op *op)
{
    size_t part = op->count * fake_width(op->type);

    switch (op->kind) {
    case ALL_REDUCE:
        return sum_all(comm, op, op->send, op->recv);
    case REDUCE:
        return sum_all(comm, op, op->send, comm->rank == op->peer ? op->recv : NULL);
    case REDUCE_SCATTER:
        for (int i = 0; i < comm->size; i++)
            if (!sum_all(comm, op, op->send + (size_t)i * part, i == comm->rank ? op->recv : NULL))
                return false;
        return true;
    default:
        return move_all(comm, op);
    }
}

/* All messages of the batch side by side. */
static void run_messages(struct batch *batch)
{
    struct ct_nccl_comm *comm = batch->comm;
    struct fake_message messages[GROUP_MAX];
    int count = 0, open;

    for (int i = 0; i < batch->count; i++) {
        const struct op *op = &batch->ops[i];

        if (op->kind == SEND || op->kind == RECV)
            messages[count++] =
                (struct fake_message){op->peer, op->kind == SEND,
                                      op->kind == SEND ? (char *)(uintptr_t)op->send : op->recv,
                                      op->count * fake_width(op->type), 0};
    }
    do {
        open = 0;
        for (int i = 0; i < count; i++) {
            bool first = true; /* of its pair and direction that is open: they go in order */

            for (int j = 0; j < i && first; j++)
                first = messages[j].at == messages[j].bytes || messages[j].out != messages[i].out ||
                        messages[j].peer != messages[i].peer;
            open += !first || !fake_world_carry(comm->world, &messages[i]);
        }
        if (open > 0)
            fake_park(10000);
    } while (open > 0 && !atomic_load(&comm->stop));
}

static void run(void *argument)
{
    struct batch *batch = argument;
    struct ct_nccl_comm *comm = batch->comm;
    bool goes = true;

    if (fake_has_fault("async_error", comm->rank)) {
        atomic_store(&comm->broken, CT_NCCL_REMOTE_ERROR);
        while (!atomic_load(&comm->stop)) /* the kernel goes on waiting */
            fake_park(100000);
        goes = false;
    }
    for (int i = 0; i < batch->count && goes; i++)
        if (batch->ops[i].kind != SEND && batch->ops[i].kind != RECV)
            goes = run_collective(comm, &batch->ops[i]);
    if (goes)
        run_messages(batch);
    free(batch);
    (void)atomic_fetch_sub(&comm->under_way, 1);
}

/* The error of its connections shows when nothing is in progress. */
int fake_state_of(struct ct_nccl_comm *comm)
{
    int state = atomic_load(&comm->state);

    return state == CT_NCCL_SUCCESS ? atomic_load(&comm->broken) : state;
}

/* ---- groups ----------------------------------------------------------------------------------*/

static _Thread_local int depth;
static _Thread_local struct batch *batches[COMMS_MAX];
static _Thread_local int batch_count;
static _Thread_local struct ct_nccl_comm *aborts[COMMS_MAX];
static _Thread_local int abort_count;

static struct batch *batch_of(struct ct_nccl_comm *comm, void *stream)
{
    for (int i = 0; i < batch_count; i++)
        if (batches[i]->comm == comm && batches[i]->stream == stream)
            return batches[i];
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL || batch_count == COMMS_MAX)
        abort();
    batch->comm = comm;
    batch->stream = stream;
    batches[batch_count++] = batch;
    return batch;
}

void fake_comm_end(struct ct_nccl_comm *comm)
{
    while (atomic_load(&comm->under_way) > 0)
        fake_park(100000);
    free(comm->waits);
    fake_child_end(comm);
    fake_windows_leave(comm->windows);
    fake_windows_leave(comm->registering);
    fake_world_leave(comm->world);
    free(comm);
    (void)atomic_fetch_sub(&fake_count.comms, 1);
}

int ncclGroupStart(void)
{
    depth++;
    return CT_NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    int result = CT_NCCL_SUCCESS;

    if (--depth > 0)
        return result;
    for (int i = 0; i < batch_count; i++) {
        struct ct_nccl_comm *comm = batches[i]->comm;

        (void)atomic_fetch_add(&comm->under_way, 1);
        if (fake_has_fault("slow_enqueue", comm->rank)) {
            comm->waits = batches[i];
            comm->polls = SLOW_POLLS;
            atomic_store(&comm->state, CT_NCCL_IN_PROGRESS);
            result = CT_NCCL_IN_PROGRESS;
        } else {
            fake_stream_push(batches[i]->stream, run, batches[i]);
        }
    }
    batch_count = 0;
    for (int i = 0; i < abort_count; i++)
        fake_comm_end(aborts[i]);
    abort_count = 0;
    return result;
}

static int add(struct ct_nccl_comm *comm, void *stream, struct op op)
{
    if (comm->revoked || comm->finishing)
        return CT_NCCL_INVALID_USAGE;
    if (fake_state_of(comm) != CT_NCCL_SUCCESS)
        return CT_NCCL_INVALID_ARGUMENT;
    (void)ncclGroupStart();
    struct batch *batch = batch_of(comm, stream);
    if (batch->count == GROUP_MAX)
        abort();
    op.send = fake_near(op.send);
    op.recv = fake_near(op.recv);
    batch->ops[batch->count++] = op;
    return ncclGroupEnd();
}

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int reduction,
                  struct ct_nccl_comm *comm, void *stream)
{
    return add(comm, stream, (struct op){ALL_REDUCE, send, recv, count, type, reduction, 0});
}

int ncclReduce(const void *send, void *recv, size_t count, int type, int reduction, int root,
               struct ct_nccl_comm *comm, void *stream)
{
    return add(comm, stream, (struct op){REDUCE, send, recv, count, type, reduction, root});
}

int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int reduction,
                      struct ct_nccl_comm *comm, void *stream)
{
    return add(comm, stream, (struct op){REDUCE_SCATTER, send, recv, count, type, reduction, 0});
}

int ncclAllGather(const void *send, void *recv, size_t count, int type, struct ct_nccl_comm *comm,
                  void *stream)
{
    return add(comm, stream, (struct op){ALL_GATHER, send, recv, count, type, 0, 0});
}

int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
                  struct ct_nccl_comm *comm, void *stream)
{
    return add(comm, stream, (struct op){BROADCAST, send, recv, count, type, 0, root});
}

int ncclSend(const void *send, size_t count, int type, int peer, struct ct_nccl_comm *comm,
             void *stream)
{
    return add(comm, stream, (struct op){SEND, send, NULL, count, type, 0, peer});
}

int ncclRecv(void *recv, size_t count, int type, int peer, struct ct_nccl_comm *comm, void *stream)
{
    return add(comm, stream, (struct op){RECV, NULL, recv, count, type, 0, peer});
}

/* ---- communicators ---------------------------------------------------------------------------*/

struct ct_nccl_comm *fake_comm_new(const struct ct_nccl_id *id, int rank, int size)
{
    struct ct_nccl_comm *comm = calloc(1, sizeof *comm);

    if (comm == NULL)
        abort();
    (void)atomic_fetch_add(&fake_count.comms, 1);
    comm->id = *id;
    comm->rank = rank;
    comm->size = size;
    comm->forming = true;
    comm->world = fake_world_join(id, rank, size);
    atomic_store(&comm->state,
                 fake_has_fault("fail_init", rank) ? CT_NCCL_SYSTEM_ERROR : CT_NCCL_IN_PROGRESS);
    return comm;
}

bool fake_is_fine(const struct ct_nccl_config *config)
{
    return config->magic == (unsigned)CT_NCCL_CONFIG_MAGIC && config->size == sizeof *config &&
           config->version == CT_NCCL_CONFIG_VERSION && config->blocking == 0 &&
           config->split_share == 0;
}

int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKENCCL_VERSION");

    *version = text != NULL ? atoi(text) : VERSION;
    return CT_NCCL_SUCCESS;
}

int ncclGetUniqueId(struct ct_nccl_id *id)
{
    uint64_t random[2];

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return CT_NCCL_SYSTEM_ERROR;
    (void)atomic_fetch_add(&fake_count.ids, 1);
    memset(id, 0, sizeof *id);
    (void)snprintf(id->internal, sizeof id->internal, "fakenccl-%016llx%016llx",
                   (unsigned long long)random[0], (unsigned long long)random[1]);
    return CT_NCCL_SUCCESS;
}

int ncclCommInitRankScalable(struct ct_nccl_comm **comm, int size, int rank, int count,
                             struct ct_nccl_id *ids, struct ct_nccl_config *config)
{
    if (!fake_is_fine(config) || rank < 0 || rank >= size || count < 1)
        return CT_NCCL_INVALID_ARGUMENT;
    *comm = fake_comm_new(&ids[0], rank, size);
    return CT_NCCL_IN_PROGRESS;
}

int ncclCommInitRankConfig(struct ct_nccl_comm **comm, int size, struct ct_nccl_id id, int rank,
                           struct ct_nccl_config *config)
{
    return ncclCommInitRankScalable(comm, size, rank, 1, &id, config);
}

static void advance(struct ct_nccl_comm *comm)
{
    int success = CT_NCCL_SUCCESS;

    if (comm->child != NULL && !comm->revoking)
        fake_child_advance(comm);
    if (comm->ret_window != NULL && !comm->revoking)
        fake_window_advance(comm);
    if (comm->waits != NULL && --comm->polls == 0) {
        fake_stream_push(comm->waits->stream, run, comm->waits);
        comm->waits = NULL;
        atomic_store(&comm->state, success);
    }
    if (comm->forming && !fake_has_fault("hang_init", comm->rank) &&
        fake_world_is_full(comm->world)) {
        comm->forming = false;
        atomic_store(&comm->state, success);
    }
    if (comm->revoking && atomic_load(&comm->under_way) == 0) {
        comm->revoking = false;
        atomic_store(&comm->state, success);
    }
    if (comm->finishing && !comm->finished && atomic_load(&comm->under_way) == 0 &&
        fake_world_is_finished(comm->world)) {
        comm->finished = true;
        atomic_store(&comm->state, success);
    }
}

int ncclCommGetAsyncError(struct ct_nccl_comm *comm, int *state)
{
    if (atomic_load(&comm->state) == CT_NCCL_IN_PROGRESS)
        advance(comm);
    *state = fake_state_of(comm);
    return CT_NCCL_SUCCESS;
}

int ncclCommRevoke(struct ct_nccl_comm *comm, int flags)
{
    if (getenv("FAKENCCL_WITHOUT_REVOKE") != NULL)
        return CT_NCCL_INVALID_USAGE;
    if (flags != 0 || comm->revoked)
        return CT_NCCL_INVALID_ARGUMENT;
    comm->revoked = comm->revoking = true;
    if (comm->waits != NULL) {
        free(comm->waits);
        comm->waits = NULL;
        (void)atomic_fetch_sub(&comm->under_way, 1);
    }
    atomic_store(&comm->stop, true);
    atomic_store(&comm->state, CT_NCCL_IN_PROGRESS);
    return CT_NCCL_IN_PROGRESS;
}

int ncclCommFinalize(struct ct_nccl_comm *comm)
{
    if (comm->revoked || comm->finishing || fake_state_of(comm) != CT_NCCL_SUCCESS)
        return CT_NCCL_INVALID_USAGE;
    comm->finishing = true;
    fake_world_set_finished(comm->world);
    atomic_store(&comm->state, CT_NCCL_IN_PROGRESS);
    return CT_NCCL_IN_PROGRESS;
}

int ncclCommDestroy(struct ct_nccl_comm *comm)
{
    if (!comm->finished)
        abort(); /* in a node this waits for all */
    fake_comm_end(comm);
    return CT_NCCL_SUCCESS;
}

int ncclCommAbort(struct ct_nccl_comm *comm)
{
    if (fake_has_fault("hang_abort", comm->rank))
        hang();
    atomic_store(&comm->stop, true);
    if (comm->waits != NULL)
        (void)atomic_fetch_sub(&comm->under_way, 1);
    if (depth == 0)
        fake_comm_end(comm);
    else if (abort_count < COMMS_MAX)
        aborts[abort_count++] = comm;
    return CT_NCCL_SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return result == CT_NCCL_REMOTE_ERROR ? "remote process exited or there was a network error"
                                          : "an error of the fake";
}

const char *ncclGetLastError(struct ct_nccl_comm *comm)
{
    (void)comm;
    return "";
}
