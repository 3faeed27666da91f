/* See fake.h. A stream is a thread and a list; an event counts how often it was recorded and how
 * often the stream has come by. One lock for all: this is a fake, not a device. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct item {
    struct item *next;
    void (*work)(void *argument);
    void *argument;
};

struct stream {
    pthread_t thread;
    struct item *first, **last;
    bool ends;
};

struct event {
    uint64_t recorded, passed;
    int users; /* items that point here */
    bool freed;
};

static void *stream_main(void *argument)
{
    struct stream *stream = argument;

    (void)pthread_mutex_lock(&lock);
    for (;;) {
        struct item *item = stream->first;

        if (item == NULL && stream->ends)
            break;
        if (item == NULL) {
            (void)pthread_cond_wait(&changed, &lock);
            continue;
        }
        (void)pthread_mutex_unlock(&lock);
        item->work(item->argument);
        (void)pthread_mutex_lock(&lock);
        stream->first = item->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        free(item);
    }
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

static void push_locked(struct stream *stream, void (*work)(void *argument), void *argument)
{
    struct item *item = calloc(1, sizeof *item);

    if (item == NULL)
        abort();
    item->work = work;
    item->argument = argument;
    *stream->last = item;
    stream->last = &item->next;
    (void)pthread_cond_broadcast(&changed);
}

void fake_stream_push(void *stream, void (*work)(void *argument), void *argument)
{
    (void)pthread_mutex_lock(&lock);
    push_locked(stream, work, argument);
    (void)pthread_mutex_unlock(&lock);
}

void *fake_memory_new(size_t bytes)
{
    return aligned_alloc(CT_NCCL_WIN_ALIGN,
                         (bytes + CT_NCCL_WIN_ALIGN - 1) / CT_NCCL_WIN_ALIGN * CT_NCCL_WIN_ALIGN);
}

void fake_memory_free(void *memory)
{
    free(memory);
}

void *fake_near(const void *memory)
{
    return (void *)(uintptr_t)memory;
}

/* ---- struct ct_accel -------------------------------------------------------------------------*/

static int enter(void *context)
{
    (void)context;
    return 0;
}

static int stream_new(void *context, void **ret_stream)
{
    struct stream *stream = calloc(1, sizeof *stream);

    (void)context;
    if (stream == NULL)
        return -12;
    stream->last = &stream->first;
    if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
        free(stream);
        return -11;
    }
    *ret_stream = stream;
    return 0;
}

static void stream_free(void *context, void *handle)
{
    struct stream *stream = handle;

    (void)context;
    (void)pthread_mutex_lock(&lock);
    stream->ends = true;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
    (void)pthread_join(stream->thread, NULL);
    free(stream);
}

static int event_new(void *context, void **ret_event)
{
    (void)context;
    *ret_event = calloc(1, sizeof(struct event));
    return *ret_event != NULL ? 0 : -12;
}

static void unuse_locked(struct event *event)
{
    if (event->freed && event->users == 0)
        free(event);
}

static void event_free(void *context, void *handle)
{
    struct event *event = handle;

    (void)context;
    (void)pthread_mutex_lock(&lock);
    event->freed = true;
    unuse_locked(event);
    (void)pthread_mutex_unlock(&lock);
}

static void pass(void *argument)
{
    struct event *event = argument;

    (void)pthread_mutex_lock(&lock);
    event->passed++;
    event->users--;
    (void)pthread_cond_broadcast(&changed);
    unuse_locked(event);
    (void)pthread_mutex_unlock(&lock);
}

static int record(void *context, void *handle, void *stream)
{
    struct event *event = handle;

    (void)context;
    (void)pthread_mutex_lock(&lock);
    event->recorded++;
    event->users++;
    push_locked(stream, pass, event);
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

struct await {
    struct event *event;
    uint64_t number;
};

static void await_event(void *argument)
{
    struct await *await = argument;

    (void)pthread_mutex_lock(&lock);
    while (await->event->passed < await->number)
        (void)pthread_cond_wait(&changed, &lock);
    await->event->users--;
    unuse_locked(await->event);
    (void)pthread_mutex_unlock(&lock);
    free(await);
}

static int wait_for(void *context, void *stream, void *handle)
{
    struct event *event = handle;
    struct await *await = calloc(1, sizeof *await);

    (void)context;
    if (await == NULL)
        return -12;
    (void)pthread_mutex_lock(&lock);
    *await = (struct await){event, event->recorded};
    event->users++;
    push_locked(stream, await_event, await);
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

static int query(void *context, void *handle)
{
    const struct event *event = handle;

    (void)context;
    (void)pthread_mutex_lock(&lock);
    int over = event->passed >= event->recorded;
    (void)pthread_mutex_unlock(&lock);
    return over;
}

struct copying {
    void *to;
    const void *from;
    size_t bytes;
};

static void do_copy(void *argument)
{
    const struct copying *copying = argument;

    memmove(copying->to, copying->from, copying->bytes);
    free(argument);
}

static int copy(void *context, void *to, const void *from, size_t bytes, void *stream)
{
    struct copying *copying = calloc(1, sizeof *copying);

    (void)context;
    if (copying == NULL)
        return -12;
    *copying = (struct copying){to, from, bytes};
    fake_stream_push(stream, do_copy, copying);
    return 0;
}

static int zero(void *context, void *memory, size_t bytes)
{
    (void)context;
    memset(memory, 0, bytes);
    return 0;
}

static int pin(void *context, void *memory, size_t bytes)
{
    (void)context;
    (void)memory;
    (void)bytes;
    return 0;
}

static void unpin(void *context, void *memory)
{
    (void)context;
    (void)memory;
}

#define ACCEL(index)                                                                       \
    {                                                                                      \
        .name = "fake:" #index, .unique = {'f', 'a', 'k', 'e', index + 1}, .enter = enter, \
        .stream_new = stream_new, .stream_free = stream_free, .event_new = event_new,      \
        .event_free = event_free, .record = record, .wait = wait_for, .query = query,      \
        .copy = copy, .zero = zero, .pin = pin, .unpin = unpin                             \
    }

const struct ct_accel *fakenccl_accel(int index);
const struct ct_accel *fakenccl_accel(int index)
{
    static const struct ct_accel accels[] = {ACCEL(0), ACCEL(1), ACCEL(2), ACCEL(3),
                                             ACCEL(4), ACCEL(5), ACCEL(6), ACCEL(7)};

    return &accels[index % 8];
}
