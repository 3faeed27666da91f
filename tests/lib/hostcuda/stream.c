/* Streams and events (runtime.h). A stream is a thread and a list; an event counts how often it was
 * recorded and how often a stream has come by. One lock for all: this is a fake, not a device. */
#include "runtime.h"

#include "base/assert.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct item {
    struct item *next;
    struct hostcuda_work work;
};

struct CUstream_st {
    pthread_t thread;
    struct item *first, **last;
    uint64_t put, done;
    bool ends;
    struct CUstream_st *next; /* of all */

    struct CUgraph_st *capture; /* that it takes part in */
    bool origin;                /* of the capture */
    size_t captured,
        joined; /* nodes of the graph up to its last one, and up to what was waited for */
};

static struct CUstream_st *streams;

struct CUevent_st {
    uint64_t recorded, passed;
    int users; /* items that point here */
    bool freed;
    struct CUgraph_st *capture; /* it was recorded in one, at: */
    struct CUstream_st *stream;
    size_t node;
};

void hostcuda_lock(void)
{
    (void)pthread_mutex_lock(&lock);
}

void hostcuda_unlock(void)
{
    (void)pthread_mutex_unlock(&lock);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void *stream_main(void *argument)
{
    struct CUstream_st *stream = argument;

    hostcuda_lock();
    for (;;) {
        struct item *item = stream->first;

        if (item == NULL && stream->ends)
            break;
        if (item == NULL) {
            (void)pthread_cond_wait(&changed, &lock);
            continue;
        }
        hostcuda_unlock();
        if (item->work.run != NULL && hostcuda_state() == cudaSuccess)
            item->work.run(item->work.context);
        if (item->work.release != NULL)
            item->work.release(item->work.context);
        hostcuda_lock();
        stream->first = item->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        stream->done++;
        (void)pthread_cond_broadcast(&changed);
        free(item);
    }
    hostcuda_unlock();
    return NULL;
}

static void push_locked(struct CUstream_st *stream, struct hostcuda_work work)
{
    struct item *item = calloc(1, sizeof *item);

    CT_ASSERT(item != NULL);
    item->work = work;
    *stream->last = item;
    stream->last = &item->next;
    stream->put++;
    (void)pthread_cond_broadcast(&changed);
}

cudaError_t hostcuda_push(cudaStream_t stream, struct hostcuda_work work)
{
    cudaError_t state = hostcuda_state();

    if (stream == NULL || state != cudaSuccess) {
        if (state == cudaSuccess)
            work.run(work.context);
        if (work.release != NULL)
            work.release(work.context);
        return hostcuda_error(state);
    }
    hostcuda_lock();
    if (stream->capture != NULL) {
        hostcuda_graph_add(stream->capture, work);
        stream->captured = hostcuda_graph_count(stream->capture);
    } else {
        push_locked(stream, work);
    }
    hostcuda_unlock();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    sigset_t all, old;

    if (flags != cudaStreamNonBlocking)
        return hostcuda_error(cudaErrorInvalidValue);
    CT_ASSERT(stream != NULL);
    stream->last = &stream->first;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
    CT_ASSERT(pthread_create(&stream->thread, NULL, stream_main, stream) == 0);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    hostcuda_lock();
    stream->next = streams;
    streams = stream;
    hostcuda_unlock();
    *ret_stream = stream;
    return cudaSuccess;
}

/* What it still has to do is done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    hostcuda_lock();
    for (struct CUstream_st **at = &streams; *at != NULL; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    stream->ends = true;
    (void)pthread_cond_broadcast(&changed);
    hostcuda_unlock();
    CT_ASSERT(pthread_join(stream->thread, NULL) == 0);
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (hostcuda_forbidden())
        return hostcuda_error(cudaErrorStreamCaptureUnsupported);
    if (stream == NULL) /* has done what it was given */
        return hostcuda_error(hostcuda_state());
    hostcuda_lock();
    uint64_t number = stream->put;
    while (stream->done < number)
        (void)pthread_cond_wait(&changed, &lock);
    hostcuda_unlock();
    return hostcuda_error(hostcuda_state());
}

void hostcuda_wait_all(void)
{
    bool busy;

    hostcuda_lock();
    do {
        busy = false;
        for (struct CUstream_st *stream = streams; stream != NULL && !busy; stream = stream->next)
            busy = stream->done < stream->put;
        if (busy)
            (void)pthread_cond_wait(&changed, &lock);
    } while (busy);
    hostcuda_unlock();
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags)
{
    if (flags != cudaEventDisableTiming)
        return hostcuda_error(cudaErrorInvalidValue);
    *ret_event = calloc(1, sizeof **ret_event);
    CT_ASSERT(*ret_event != NULL);
    return cudaSuccess;
}

static void unuse_locked(struct CUevent_st *event)
{
    if (event->freed && event->users == 0)
        free(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    hostcuda_lock();
    event->freed = true;
    unuse_locked(event);
    hostcuda_unlock();
    return cudaSuccess;
}

static void pass(void *context)
{
    struct CUevent_st *event = context;

    hostcuda_lock();
    event->passed++;
    event->users--;
    (void)pthread_cond_broadcast(&changed);
    unuse_locked(event);
    hostcuda_unlock();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (hostcuda_state() != cudaSuccess)
        return hostcuda_error(hostcuda_state());
    hostcuda_lock();
    event->capture = stream->capture;
    if (stream->capture != NULL) {
        event->stream = stream;
        event->node = stream->captured;
    } else {
        event->recorded++;
        event->users++;
        push_locked(stream, (struct hostcuda_work){NULL, pass, event});
    }
    hostcuda_unlock();
    return cudaSuccess;
}

struct await {
    struct CUevent_st *event;
    uint64_t number;
};

static void await_event(void *context)
{
    struct await *await = context;

    hostcuda_lock();
    while (await->event->passed < await->number)
        (void)pthread_cond_wait(&changed, &lock);
    await->event->users--;
    unuse_locked(await->event);
    hostcuda_unlock();
    free(await);
}

static bool is_open(const struct CUgraph_st *capture)
{
    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
        if (stream->capture == capture)
            return true;
    return false;
}

/* A stream that waits for an event of a capture becomes part of it. */
static cudaError_t wait_in_capture(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (event->capture == NULL || (stream->capture != NULL && stream->capture != event->capture))
        return cudaErrorStreamCaptureIsolation;
    if (!is_open(event->capture))
        return cudaErrorCapturedEvent;
    if (stream->capture == NULL) {
        stream->capture = event->capture;
        stream->origin = false;
        stream->captured = stream->joined = hostcuda_graph_count(event->capture);
    }
    event->stream->joined = CT_MAX(event->stream->joined, event->node);
    if (!stream->origin)
        stream->captured = CT_MAX(stream->captured, hostcuda_graph_count(stream->capture));
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t error = flags == 0 ? hostcuda_state() : cudaErrorInvalidValue;

    if (error != cudaSuccess)
        return hostcuda_error(error);
    hostcuda_lock();
    if (stream->capture != NULL || event->capture != NULL) {
        error = wait_in_capture(stream, event);
    } else {
        struct await *await = calloc(1, sizeof *await);

        CT_ASSERT(await != NULL);
        *await = (struct await){event, event->recorded};
        event->users++;
        push_locked(stream, (struct hostcuda_work){NULL, await_event, await});
    }
    hostcuda_unlock();
    return hostcuda_error(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (hostcuda_forbidden())
        return hostcuda_error(cudaErrorStreamCaptureUnsupported);
    if (hostcuda_state() != cudaSuccess)
        return hostcuda_error(hostcuda_state());
    hostcuda_lock();
    cudaError_t error = event->capture != NULL             ? cudaErrorCapturedEvent
                        : event->passed >= event->recorded ? cudaSuccess
                                                           : cudaErrorNotReady;
    hostcuda_unlock();
    return hostcuda_error(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (hostcuda_forbidden())
        return hostcuda_error(cudaErrorStreamCaptureUnsupported);
    hostcuda_lock();
    bool captured = event->capture != NULL;
    uint64_t number = event->recorded;
    while (!captured && event->passed < number)
        (void)pthread_cond_wait(&changed, &lock);
    hostcuda_unlock();
    return hostcuda_error(captured ? cudaErrorCapturedEvent : hostcuda_state());
}

/* ---- captures -------------------------------------------------------------------------------- */

struct CUgraph_st *hostcuda_capture_of(cudaStream_t stream)
{
    return stream->capture;
}

void hostcuda_capture_begin(cudaStream_t stream, struct CUgraph_st *graph)
{
    stream->capture = graph;
    stream->origin = true;
    stream->captured = stream->joined = 0;
}

bool hostcuda_capture_end(cudaStream_t origin, struct CUgraph_st *graph)
{
    bool joined = true;

    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next) {
        if (stream->capture != graph)
            continue;
        joined = joined && (stream == origin || stream->captured <= stream->joined);
        stream->capture = NULL;
    }
    return joined;
}
