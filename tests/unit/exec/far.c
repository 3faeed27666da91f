/* See far.h. Each arena is one memfd, mapped twice: where the host may not go, and where the queues
 * work. */
#include "tests/unit/exec/far.h"

#include "base/assert.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ARENAS = 8, JOBS = 64 };

struct arena {
    char *far, *near;
    size_t bytes;
};

/* Of all queues of a device. Arenas come and go while no queue works. */
struct shared {
    struct ct_accel accel;
    struct arena arenas[ARENAS];
    void *reached; /* the host's memory that ops may use */
    size_t reached_bytes;
    atomic_int breaks_at; /* enum ct_op_kind, or -1 */
    atomic_int replayed;
    atomic_int queues;
};

struct ct_mark {
    struct far *queue; /* that it was set on */
    uint64_t number;   /* jobs of it that are before */
};

enum what { RUN, COPY_IN, COPY_OUT, COPY, AWAIT, REPLAY };

struct job {
    enum what what;
    enum ct_op_kind op;
    enum ct_dtype dtype;
    struct ct_kernel_args args; /* with far addresses */
    struct ct_mark mark;
    const struct ct_recording *recording;
    void *to;
    void *from;
    size_t bytes;
};

struct ct_recording {
    int count;
    struct job *jobs;
};

struct far {
    struct ct_device device;
    struct ct_device *cpu;
    struct shared *shared;
    struct ct_recording *recording; /* while it records */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex: */
    struct job jobs[JOBS]; /* a ring */
    uint64_t put, done;
    bool broken, quit;
    enum ct_op_kind broken_by;
};

/* ---- addresses ------------------------------------------------------------------------------ */

/* The host's memory that an op may use: none, what was reached, any. */
enum host { NONE, REACHED, ANY };

static void *near_of(const struct shared *shared, void *address, enum host host)
{
    char *at = address, *reached = shared->reached;

    if (at == NULL)
        return NULL;
    for (int i = 0; i < ARENAS; i++) {
        const struct arena *arena = &shared->arenas[i];
        if (arena->far != NULL && at >= arena->far && at < arena->far + arena->bytes)
            return arena->near + (at - arena->far);
    }
    CT_ASSERT(host == ANY ||
              (host == REACHED && at >= reached && at < reached + shared->reached_bytes));
    return at;
}

/* ---- the thread of a queue ------------------------------------------------------------------ */

static void wait_done(struct far *queue, uint64_t number)
{
    pthread_mutex_lock(&queue->mutex);
    while (queue->done < number)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
}

static void run_op(struct far *queue, const struct job *job)
{
    struct ct_kernel_args args = job->args;

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        args.in[i].data = near_of(queue->shared, args.in[i].data, REACHED);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        args.out[i].data = near_of(queue->shared, args.out[i].data, REACHED);
    (void)sched_yield();
    ct_device_run(queue->cpu, job->op, job->dtype, &args);
}

static void break_queue(struct far *queue, enum ct_op_kind op)
{
    pthread_mutex_lock(&queue->mutex);
    queue->broken = true;
    queue->broken_by = op;
    pthread_mutex_unlock(&queue->mutex);
}

static void do_job(struct far *queue, const struct job *job)
{
    int breaks = (int)job->op;

    if (job->what == AWAIT && job->mark.queue != NULL) {
        wait_done(job->mark.queue, job->mark.number);
    } else if (job->what == COPY_IN) {
        memcpy(near_of(queue->shared, job->to, NONE), job->from, job->bytes);
        free(job->from);
    } else if (job->what == COPY_OUT) {
        memcpy(job->to, near_of(queue->shared, job->from, NONE), job->bytes);
    } else if (job->what == COPY) {
        memcpy(near_of(queue->shared, job->to, ANY), near_of(queue->shared, job->from, ANY),
               job->bytes);
    } else if (job->what == REPLAY) {
        for (int i = 0; i < job->recording->count; i++)
            do_job(queue, &job->recording->jobs[i]);
    } else if (job->what == RUN) {
        if (atomic_compare_exchange_strong(&queue->shared->breaks_at, &breaks, -1))
            break_queue(queue, job->op);
        run_op(queue, job);
    }
}

static void *work(void *context)
{
    struct far *queue = context;

    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (!queue->quit && queue->done == queue->put)
            pthread_cond_wait(&queue->changed, &queue->mutex);
        if (queue->done == queue->put)
            break;
        struct job job = queue->jobs[queue->done % JOBS];
        pthread_mutex_unlock(&queue->mutex);
        do_job(queue, &job);
        pthread_mutex_lock(&queue->mutex);
        queue->done++;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static void put_job(struct far *queue, const struct job *job)
{
    pthread_mutex_lock(&queue->mutex);
    while (queue->put - queue->done == JOBS)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    queue->jobs[queue->put++ % JOBS] = *job;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

/* ---- the table ------------------------------------------------------------------------------ */

static void *far_alloc(struct ct_device *device, size_t bytes)
{
    struct shared *shared = ((struct far *)device)->shared;
    int fd = memfd_create("far", MFD_CLOEXEC), i = 0;

    while (i < ARENAS && shared->arenas[i].far != NULL)
        i++;
    CT_ASSERT(i < ARENAS && fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    void *near = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *far = device->table->on_host ? near : mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    CT_ASSERT(far != MAP_FAILED && near != MAP_FAILED);
    (void)close(fd);
    shared->arenas[i] = (struct arena){far, near, bytes};
    return far;
}

static void far_release(struct ct_device *device, void *memory, size_t bytes)
{
    struct shared *shared = ((struct far *)device)->shared;

    for (int i = 0; i < ARENAS; i++)
        if (shared->arenas[i].far == memory) {
            CT_ASSERT(shared->arenas[i].bytes == bytes);
            if (memory != shared->arenas[i].near)
                (void)munmap(memory, bytes);
            (void)munmap(shared->arenas[i].near, bytes);
            shared->arenas[i] = (struct arena){NULL, NULL, 0};
            return;
        }
    CT_ASSERT(false);
}

static void far_copy_in(struct ct_device *device, void *to, const void *from, size_t bytes)
{
    struct job job = {.what = COPY_IN, .to = to, .from = malloc(bytes + 1), .bytes = bytes};

    CT_ASSERT(job.from != NULL);
    memcpy(job.from, from, bytes);
    put_job((struct far *)device, &job);
}

static void far_copy_out(struct ct_device *device, void *to, const void *from, size_t bytes)
{
    struct far *queue = (struct far *)device;
    const struct job job = {.what = COPY_OUT, .to = to, .from = (void *)from, .bytes = bytes};

    put_job(queue, &job);
    wait_done(queue, queue->put);
}

static bool far_has(const struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype)
{
    return ct_device_has(((const struct far *)device)->cpu, op, dtype);
}

static void far_run(struct ct_device *device, enum ct_op_kind op, enum ct_dtype dtype,
                    const struct ct_kernel_args *args)
{
    struct far *queue = (struct far *)device;
    const struct job job = {.what = RUN, .op = op, .dtype = dtype, .args = *args};
    struct ct_recording *recording = queue->recording;

    if (recording == NULL) {
        put_job(queue, &job);
        return;
    }
    recording->jobs =
        realloc(recording->jobs, (size_t)(recording->count + 1) * sizeof *recording->jobs);
    CT_ASSERT(recording->jobs != NULL);
    recording->jobs[recording->count++] = job;
}

static int far_reach(struct ct_device *device, void *memory, size_t bytes, struct ct_error *err)
{
    struct shared *shared = ((struct far *)device)->shared;

    (void)err;
    CT_ASSERT(shared->reached == NULL);
    shared->reached = memory;
    shared->reached_bytes = bytes;
    return 0;
}

static void far_unreach(struct ct_device *device, void *memory)
{
    struct shared *shared = ((struct far *)device)->shared;

    CT_ASSERT(shared->reached == memory);
    shared->reached = NULL;
    shared->reached_bytes = 0;
}

static int far_finish(struct ct_device *device, struct ct_error *err)
{
    struct far *queue = (struct far *)device;

    CT_ASSERT(queue->recording == NULL);
    wait_done(queue, queue->put);
    return queue->broken ? ct_error_set(err, CT_EDEVICE, "%s broke the device",
                                        ct_op_info(queue->broken_by)->name)
                         : 0;
}

static struct ct_device *make(struct shared *shared, bool on_host);

/* ---- what collectives need ------------------------------------------------------------------- */

static int accel_enter(void *context)
{
    (void)context;
    return 0;
}

static int accel_stream_new(void *context, void **ret_stream)
{
    *ret_stream = make(context, false);
    return 0;
}

static void accel_stream_free(void *context, void *stream)
{
    (void)context;
    ct_device_free(stream);
}

static int accel_event_new(void *context, void **ret_event)
{
    (void)context;
    *ret_event = calloc(1, sizeof(struct ct_mark));
    return *ret_event != NULL ? 0 : CT_ENOMEM;
}

static void accel_event_free(void *context, void *event)
{
    (void)context;
    free(event);
}

static int accel_record(void *context, void *event, void *stream)
{
    (void)context;
    *(struct ct_mark *)event = (struct ct_mark){stream, ((struct far *)stream)->put};
    return 0;
}

static int accel_wait(void *context, void *stream, void *event)
{
    const struct job job = {.what = AWAIT, .mark = *(struct ct_mark *)event};

    (void)context;
    put_job(stream, &job);
    return 0;
}

static int accel_query(void *context, void *event)
{
    const struct ct_mark *mark = event;

    (void)context;
    if (mark->queue == NULL)
        return 1;
    pthread_mutex_lock(&mark->queue->mutex);
    bool over = mark->queue->done >= mark->number;
    pthread_mutex_unlock(&mark->queue->mutex);
    return over;
}

static int accel_copy(void *context, void *to, const void *from, size_t bytes, void *stream)
{
    const struct job job = {.what = COPY, .to = to, .from = (void *)from, .bytes = bytes};

    (void)context;
    put_job(stream, &job);
    return 0;
}

static int accel_pin(void *context, void *memory, size_t bytes)
{
    (void)context;
    (void)memory;
    (void)bytes;
    return 0;
}

static void accel_unpin(void *context, void *memory)
{
    (void)context;
    (void)memory;
}

static void *far_stream(struct ct_device *device)
{
    return device->table->on_host ? NULL : device;
}

static const struct ct_accel *far_accel(struct ct_device *device)
{
    return device->table->on_host ? NULL : &((struct far *)device)->shared->accel;
}

/* ---- marks and recordings -------------------------------------------------------------------- */

static struct ct_mark *far_mark_new(struct ct_device *device)
{
    (void)device;
    return calloc(1, sizeof(struct ct_mark));
}

static void far_mark_free(struct ct_mark *mark)
{
    free(mark);
}

static void far_mark(struct ct_device *device, struct ct_mark *mark)
{
    struct far *queue = (struct far *)device;

    *mark = (struct ct_mark){queue, queue->put};
}

static void far_await(struct ct_device *device, const struct ct_mark *mark)
{
    const struct job job = {.what = AWAIT, .mark = *mark};

    put_job((struct far *)device, &job);
}

static int far_record(struct ct_device *device, struct ct_error *err)
{
    struct far *queue = (struct far *)device;

    (void)err;
    CT_ASSERT(queue->recording == NULL);
    queue->recording = calloc(1, sizeof *queue->recording);
    CT_ASSERT(queue->recording != NULL);
    return 0;
}

static int far_record_end(struct ct_device *device, struct ct_recording **ret_recording,
                          struct ct_error *err)
{
    struct far *queue = (struct far *)device;

    (void)err;
    *ret_recording = queue->recording;
    queue->recording = NULL;
    return 0;
}

static void far_replay(struct ct_device *device, struct ct_recording *recording)
{
    struct far *queue = (struct far *)device;
    const struct job job = {.what = REPLAY, .recording = recording};

    atomic_fetch_add(&queue->shared->replayed, 1);
    put_job(queue, &job);
}

static void far_recording_free(struct ct_recording *recording)
{
    free(recording->jobs);
    free(recording);
}

static void far_free(struct ct_device *device)
{
    struct far *queue = (struct far *)device;

    pthread_mutex_lock(&queue->mutex);
    queue->quit = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    (void)pthread_join(queue->thread, NULL);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    if (atomic_fetch_sub(&queue->shared->queues, 1) == 1) {
        for (int i = 0; i < ARENAS; i++)
            CT_ASSERT(queue->shared->arenas[i].far == NULL);
        free(queue->shared);
    }
    ct_device_free(queue->cpu);
    free(queue);
}

static int far_beside(struct ct_device *device, struct ct_device **ret_device, struct ct_error *err)
{
    (void)err;
    *ret_device = make(((struct far *)device)->shared, device->table->on_host);
    return 0;
}

#define TABLE(host)                                                                               \
    {                                                                                             \
        .name = "far", .on_host = host, .free = far_free, .alloc = far_alloc,                     \
        .release = far_release, .copy_in = far_copy_in, .copy_out = far_copy_out, .has = far_has, \
        .run = far_run, .reach = far_reach, .unreach = far_unreach, .beside = far_beside,         \
        .finish = far_finish, .mark_new = far_mark_new, .mark_free = far_mark_free,               \
        .mark = far_mark, .await = far_await, .record = far_record, .record_end = far_record_end, \
        .replay = far_replay, .recording_free = far_recording_free, .stream = far_stream,         \
        .accel = far_accel,                                                                       \
    }
static const struct ct_device_table tables[] = {TABLE(false), TABLE(true)};

static struct ct_device *make(struct shared *shared, bool on_host)
{
    struct far *queue = calloc(1, sizeof *queue);

    CT_ASSERT(queue != NULL &&
              ct_device_cpu_new(&(struct ct_cpu_options){.threads = 1}, &queue->cpu, NULL) == 0);
    queue->device.table = &tables[on_host];
    queue->shared = shared;
    atomic_fetch_add(&shared->queues, 1);
    CT_ASSERT(pthread_mutex_init(&queue->mutex, NULL) == 0 &&
              pthread_cond_init(&queue->changed, NULL) == 0 &&
              pthread_create(&queue->thread, NULL, work, queue) == 0);
    return &queue->device;
}

struct ct_device *far_new(bool on_host)
{
    struct shared *shared = calloc(1, sizeof *shared);

    CT_ASSERT(shared != NULL);
    atomic_store(&shared->breaks_at, -1);
    shared->accel = (struct ct_accel){.name = "far",
                                      .unique = "far",
                                      .context = shared,
                                      .enter = accel_enter,
                                      .stream_new = accel_stream_new,
                                      .stream_free = accel_stream_free,
                                      .event_new = accel_event_new,
                                      .event_free = accel_event_free,
                                      .record = accel_record,
                                      .wait = accel_wait,
                                      .query = accel_query,
                                      .copy = accel_copy,
                                      .pin = accel_pin,
                                      .unpin = accel_unpin};
    return make(shared, on_host);
}

void far_break_at(struct ct_device *device, enum ct_op_kind op)
{
    atomic_store(&((struct far *)device)->shared->breaks_at, (int)op);
}

int far_replayed(struct ct_device *device)
{
    return atomic_load(&((struct far *)device)->shared->replayed);
}
