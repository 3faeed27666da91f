/* See staged.h. */
#include "backend/staged/staged.h"

#include "base/assert.h"
#include "base/clock.h"
#include "reduce/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LEAST_BYTES = 64 << 10,
    LOOK_NS = 20000,            /* how long to sleep while the device copies */
    COPY_PATIENCE_NS = 5000000, /* at the end, for copies that are still under way: ... */
    COPY_LOOKS = 2000,          /* ... so often */
};

/* ---- the start and the end -------------------------------------------------------------------*/

static size_t stage_count(const struct ct_staged *staged)
{
    return 1 + 2 * (size_t)staged->size;
}

static int no_memory(const struct ct_staged *staged, struct ct_error *err)
{
    return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", staged->size);
}

static int device_error(const struct ct_staged *staged, int code, const char *what,
                        struct ct_error *err)
{
    return ct_error_set(err, code, "%s on %s failed: %s", what, staged->device->name,
                        ct_strerror(code));
}

static int make_stage(struct ct_staged *staged, struct ct_stage *stage, struct ct_error *err)
{
    int code = staged->device->event_new(staged->device->context, &stage->event);

    return code == 0 ? 0 : device_error(staged, code, "making an event", err);
}

int ct_staged_init(struct ct_staged *staged, const struct ct_setup *setup, struct ct_error *err)
{
    const struct ct_accel *device = setup->device;
    int code;

    *staged = (struct ct_staged){.job = setup->job,
                                 .device = device,
                                 .rank = setup->rank,
                                 .size = setup->size,
                                 .chunk_bytes = setup->tuning.staged_piece_bytes / 64 * 64};
    CT_ASSERT(staged->size > 0 && staged->chunk_bytes > 0);
    code = device->enter(device->context);
    if (code == 0)
        code = device->stream_new(device->context, &staged->stream);
    if (code == 0)
        code = device->event_new(device->context, &staged->copied);
    if (code != 0)
        return device_error(staged, code, "making a stream", err);
    staged->stages = calloc(stage_count(staged), sizeof *staged->stages);
    if (staged->stages == NULL)
        return no_memory(staged, err);
    for (size_t i = 0; i < stage_count(staged) && code == 0; i++)
        code = make_stage(staged, &staged->stages[i], err);
    for (int i = 0; i < 2 && code == 0; i++) {
        struct ct_stage *stage = &staged->stages[0];

        stage->counts[i] = calloc((size_t)staged->size, sizeof *stage->counts[i]);
        stage->offsets[i] = calloc((size_t)staged->size, sizeof *stage->offsets[i]);
        if (stage->counts[i] == NULL || stage->offsets[i] == NULL)
            code = no_memory(staged, err);
    }
    return code;
}

int ct_staged_connect(struct ct_staged *staged, const struct ct_setup *setup, struct ct_error *err)
{
    struct ct_tuning tuning = *setup->given;
    uint64_t now = ct_clock_mono_ns(&ct_clock_system);
    char name[160];
    struct ct_group_options options = {
        .name = name,
        .ranks = setup->ranks,
        .nranks = setup->size,
        .encrypt = setup->encrypt,
        .timeout_ms = setup->deadline_ns > now ? (setup->deadline_ns - now) / 1000000u + 1 : 1,
        .no_thread = true,
    };

    (void)snprintf(name, sizeof name, "%s/host", setup->key);
    tuning.inner = true;
    return ct_group_make(setup->job, &options, &tuning, NULL, &staged->host, err);
}

/* Give the stage's memory back. What the device still copies keeps it: it is better lost. */
static void drop_memory(struct ct_staged *staged, struct ct_stage *stage)
{
    const struct ct_accel *device = staged->device;

    for (int i = 0; stage->busy && i < COPY_LOOKS; i++) {
        if (device->query(device->context, stage->event) != 0)
            stage->busy = false;
        else
            (void)nanosleep(&(struct timespec){.tv_nsec = COPY_PATIENCE_NS}, NULL);
    }
    if (stage->memory == NULL || stage->busy)
        return;
    device->unpin(device->context, stage->memory);
    ct_mem_free(staged->job, stage->memory);
    stage->memory = NULL;
    stage->bytes = 0;
}

void ct_staged_deinit(struct ct_staged *staged)
{
    const struct ct_accel *device = staged->device;

    if (device == NULL)
        return;
    (void)device->enter(device->context);
    for (size_t i = 0; staged->stages != NULL && i < stage_count(staged); i++)
        drop_memory(staged, &staged->stages[i]);
    ct_group_free(staged->host);
    for (size_t i = 0; staged->stages != NULL && i < stage_count(staged); i++)
        if (staged->stages[i].event != NULL)
            device->event_free(device->context, staged->stages[i].event);
    for (int i = 0; staged->stages != NULL && i < 2; i++) {
        free(staged->stages[0].counts[i]);
        free(staged->stages[0].offsets[i]);
    }
    free(staged->stages);
    if (staged->copied != NULL)
        device->event_free(device->context, staged->copied);
    if (staged->stream != NULL)
        device->stream_free(device->context, staged->stream);
}

/* ---- memory --------------------------------------------------------------------------------- */

static struct ct_stage *stage_of(const struct ct_staged *staged, const struct ct_call *call)
{
    size_t at = 0;

    if (ct_call_is_transfer(call))
        at = 1 + (call->kind == CT_CALL_SEND ? 0 : (size_t)staged->size) + (size_t)call->peer;
    return &staged->stages[at];
}

/* Memory that is large enough, with room to grow into: sizes come back. */
static int reserve(struct ct_staged *staged, struct ct_stage *stage, size_t bytes,
                   struct ct_error *err)
{
    const struct ct_accel *device = staged->device;
    size_t room = CT_MAX(stage->bytes, (size_t)LEAST_BYTES);
    void *memory;

    if (stage->memory != NULL && bytes <= stage->bytes)
        return 0;
    while (room < bytes)
        room *= 2;
    drop_memory(staged, stage);
    if (stage->memory != NULL)
        return ct_error_set(err, CT_EUNAVAILABLE, "%s does not end its copies", device->name);
    int code = ct_mem_alloc(staged->job, room, &memory, err);
    if (code != 0)
        return code;
    (void)device->pin(device->context, memory, room);
    stage->memory = memory;
    stage->bytes = room;
    return 0;
}

/* Later copies wait for the work queued on `stream`; `event` may be recorded again after this. */
static int follow(struct ct_staged *staged, void *stream, void *event)
{
    const struct ct_accel *device = staged->device;
    int code = stream == NULL ? 0 : device->record(device->context, event, stream);

    return stream == NULL || code != 0 ? code
                                       : device->wait(device->context, staged->stream, event);
}

/* ---- progress --------------------------------------------------------------------------------*/

enum { BEGIN, COPYING_IN, HOST_CALL, COPYING_OUT };

/* Record the event behind the copies that were just asked for. */
static int mark(struct ct_staged *staged, struct ct_stage *stage)
{
    const struct ct_accel *device = staged->device;

    stage->busy = true;
    return device->record(device->context, stage->event, staged->stream);
}

static int begin(struct ct_staged *staged, struct ct_stage *stage, struct ct_task *task,
                 struct ct_error *err)
{
    const struct ct_accel *device = staged->device;
    int code = reserve(staged, stage, ct_staged_bytes(staged, task), err);

    if (code != 0)
        return code;
    code = device->enter(device->context);
    if (code == 0)
        code = follow(staged, task->call.stream, stage->event);
    if (code == 0)
        code = ct_staged_copy_in(staged, stage, task);
    if (code == 0)
        code = mark(staged, stage);
    if (code != 0)
        return device_error(staged, code, "a copy to the host", err);
    task->stage = COPYING_IN;
    return 1;
}

static int is_copied(struct ct_staged *staged, struct ct_stage *stage, struct ct_error *err)
{
    const struct ct_accel *device = staged->device;
    int code = device->query(device->context, stage->event);

    if (code != 0)
        stage->busy = false;
    return code >= 0 ? code : device_error(staged, code, "a copy", err);
}

static int run_host_call(struct ct_staged *staged, struct ct_stage *stage, struct ct_task *task,
                         struct ct_error *err)
{
    const struct ct_group *host = staged->host;
    uint64_t moves = stage->task.moves;
    int code = host->backend->progress(host->state, &stage->task, err);

    task->moves += stage->task.moves - moves;
    if (code != 1)
        return code;
    task->algorithm = stage->task.algorithm;
    code = ct_staged_copy_out(staged, stage, task);
    if (code == 0)
        code = mark(staged, stage);
    if (code != 0)
        return device_error(staged, code, "a copy from the host", err);
    task->stage = COPYING_OUT;
    return 1;
}

/* A chunk is over: 1 when it was the last. */
static int next_chunk(struct ct_staged *staged, struct ct_task *task)
{
    if (ct_staged_is_chunked(task->call.kind)) {
        task->at += ct_staged_chunk_bytes(staged, task);
        task->stage = BEGIN;
    }
    return !ct_staged_is_chunked(task->call.kind) || task->at >= ct_call_bytes(&task->call);
}

int ct_staged_progress(struct ct_staged *staged, struct ct_task *task, struct ct_error *err)
{
    struct ct_stage *stage = stage_of(staged, &task->call);

    for (;; task->moves++) {
        int code = 0;

        switch (task->stage) {
        case BEGIN:
            code = begin(staged, stage, task, err);
            break;
        case COPYING_IN:
            code = is_copied(staged, stage, err);
            if (code == 1) {
                ct_staged_make_call(staged, stage, task);
                task->stage = HOST_CALL;
            }
            break;
        case HOST_CALL:
            code = run_host_call(staged, stage, task, err);
            break;
        default:
            code = is_copied(staged, stage, err);
            if (code == 1 && next_chunk(staged, task) == 1)
                return 1;
        }
        if (code != 1)
            return code;
    }
}

int ct_staged_copy(struct ct_staged *staged, void *to, const void *from, size_t bytes, void *stream)
{
    const struct ct_accel *device = staged->device;
    int code = device->enter(device->context);

    if (code == 0)
        code = follow(staged, stream, staged->copied);
    if (code == 0)
        code = ct_staged_put(staged, to, from, bytes);
    return code == 0 ? device->record(device->context, staged->copied, staged->stream) : code;
}

int ct_staged_copied(struct ct_staged *staged)
{
    return staged->device->query(staged->device->context, staged->copied);
}

/* ---- waiting and the end ---------------------------------------------------------------------*/

int ct_staged_missing(const struct ct_staged *staged, const struct ct_task *task)
{
    const struct ct_group *host = staged->host;

    if (ct_call_is_transfer(&task->call))
        return task->call.peer;
    if (task->stage != HOST_CALL)
        return -1;
    return host->backend->missing(host->state, &stage_of(staged, &task->call)->task);
}

void ct_staged_fail(struct ct_staged *staged, int code)
{
    staged->host->backend->fail(staged->host->state, code);
}

void ct_staged_wake(struct ct_staged *staged)
{
    if (staged->host->backend->wake != NULL)
        staged->host->backend->wake(staged->host->state);
}

void ct_staged_revoke(struct ct_staged *staged)
{
    if (staged->host->backend->revoke != NULL)
        staged->host->backend->revoke(staged->host->state);
}

uint32_t ct_staged_arm(struct ct_staged *staged)
{
    return staged->host->backend->arm(staged->host->state);
}

/* The device wakes no thread: while it copies, poll again soon. */
void ct_staged_park(struct ct_staged *staged, uint32_t armed, uint64_t timeout_ns)
{
    const struct ct_group *host = staged->host;
    bool busy = ct_staged_copied(staged) == 0;

    for (size_t i = 0; i < stage_count(staged) && !busy; i++)
        busy = staged->stages[i].busy;
    if (timeout_ns > LOOK_NS && busy) {
        host->backend->park(host->state, armed, 0);
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    } else {
        host->backend->park(host->state, armed, timeout_ns);
    }
}

/* ---- the backend -----------------------------------------------------------------------------*/

enum { SPINS = 200 };

static bool suits(const struct ct_setup *setup)
{
    return setup->device != NULL;
}

static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    struct ct_staged *staged = calloc(1, sizeof *staged);

    (void)ret_blob;
    if (staged == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    *ret_state = staged;
    return ct_staged_init(staged, setup, err);
}

static int connect_group(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                         struct ct_error *err)
{
    (void)blobs;
    return ct_staged_connect(state, setup, err);
}

static void finish_setup(void *state)
{
    (void)state;
}

static int progress(void *state, struct ct_task *task, struct ct_error *err)
{
    return ct_staged_progress(state, task, err);
}

static int spins(const void *state)
{
    (void)state;
    return SPINS;
}

static uint32_t arm(void *state)
{
    return ct_staged_arm(state);
}

static void park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    ct_staged_park(state, armed, timeout_ns);
}

static int missing(void *state, const struct ct_task *task)
{
    return ct_staged_missing(state, task);
}

static void fail(void *state, int code)
{
    ct_staged_fail(state, code);
}

static void wake(void *state)
{
    ct_staged_wake(state);
}

static void revoke(void *state)
{
    ct_staged_revoke(state);
}

static void close_group(void *state)
{
    ct_staged_deinit(state);
    free(state);
}

static struct ct_group *host_of(const void *state)
{
    return ((const struct ct_staged *)state)->host;
}

static int copy_within(void *state, void *to, const void *from, size_t bytes, void *stream)
{
    return ct_staged_copy(state, to, from, bytes, stream);
}

static int copied(void *state)
{
    return ct_staged_copied(state);
}

const struct ct_backend ct_backend_staged = {
    .name = "staged",
    .on_device = true,
    .suits = suits,
    .prepare = prepare,
    .connect = connect_group,
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
};
