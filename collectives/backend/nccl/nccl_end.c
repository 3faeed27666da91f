/* See nccl_communicator.h, "the end".
 *
 * In order: finalize, poll until the communicator is at rest, destroy. Otherwise: raise the flags
 * of all (revoke, where NCCL has it) and wait until that is through, then abort all in one group.
 * NCCL's abort waits for the device, and hangs have been seen in many versions: hence the thread.
 */
#include "backend/nccl/nccl_communicator.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ABORT_MS = 10000, FINISH_MS = 2000, REVOKE_MS = 1000, POLL_NS = 200000, COMMS_MAX = 256 };

/* The thread's data, shared with the thread that waits for it; the last of the two frees it. */
struct ending {
    struct ct_nccl *nccl;
    const struct ct_accel *device;
    const struct ct_nccl_communicator *communicators;    /* whose these were */
    struct ct_nccl_comm *comms[COMMS_MAX];               /* NULL: destroyed */
    struct ct_nccl_view views[COMMS_MAX][CT_NCCL_VIEWS]; /* of each */
    int view_counts[COMMS_MAX];
    bool leaves[COMMS_MAX]; /* was revoked: at rest it has no kernel any more */
    int count;
    bool healthy;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over, left; /* the thread is through; nobody waits any more */
};

static void pause_a_while(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

bool ct_nccl_wait_idle(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm,
                       uint64_t abort_timeout_ms)
{
    uint64_t deadline = ct_clock_mono_ns(&ct_clock_system) + abort_timeout_ms * 1000000u;
    int state = CT_NCCL_IN_PROGRESS;

    for (;;) {
        if (lib->ncclCommGetAsyncError(comm, &state) != CT_NCCL_SUCCESS)
            return false;
        if (state != CT_NCCL_IN_PROGRESS)
            return state == CT_NCCL_SUCCESS;
        if (ct_clock_mono_ns(&ct_clock_system) >= deadline)
            return false;
        pause_a_while();
    }
}

static void close_views(struct ending *ending, int i, bool at_rest)
{
    ct_nccl_views_close(&ending->nccl->lib, ending->comms[i], ending->views[i],
                        ending->view_counts[i], at_rest);
}

/* Those that come to rest are destroyed; the others stay. Nothing is under way there: windows go
 * first. One that nobody has used may still be in the making, and NCCL finalizes none that is. */
static void finish(struct ending *ending)
{
    const struct ct_nccl_library *lib = &ending->nccl->lib;
    bool polled[COMMS_MAX];

    for (int i = 0; i < ending->count; i++) {
        bool made = ct_nccl_wait_idle(lib, ending->comms[i], FINISH_MS);
        int result = CT_NCCL_INVALID_USAGE;

        if (made) {
            close_views(ending, i, true);
            result = lib->ncclCommFinalize(ending->comms[i]);
        }
        polled[i] = result == CT_NCCL_SUCCESS || result == CT_NCCL_IN_PROGRESS;
    }
    for (int i = 0; i < ending->count; i++)
        if (polled[i] && ct_nccl_wait_idle(lib, ending->comms[i], FINISH_MS)) {
            (void)lib->ncclCommDestroy(ending->comms[i]);
            ending->comms[i] = NULL;
        }
}

static void abort_all(struct ending *ending)
{
    const struct ct_nccl_library *lib = &ending->nccl->lib;
    bool any = false;

    for (int i = 0; i < ending->count; i++) {
        if (ending->comms[i] == NULL)
            continue;
        any = true;
        if (ending->leaves[i])
            close_views(ending, i, ct_nccl_wait_idle(lib, ending->comms[i], REVOKE_MS));
    }
    if (!any)
        return;
    (void)lib->ncclGroupStart();
    for (int i = 0; i < ending->count; i++)
        if (ending->comms[i] != NULL)
            (void)lib->ncclCommAbort(ending->comms[i]);
    (void)lib->ncclGroupEnd();
}

static void ending_free(struct ending *ending)
{
    (void)pthread_cond_destroy(&ending->changed);
    (void)pthread_mutex_destroy(&ending->lock);
    free(ending);
}

static void end_all(struct ending *ending)
{
    (void)ending->device->enter(ending->device->context);
    if (ending->healthy)
        finish(ending);
    abort_all(ending);
}

static void *ending_main(void *argument)
{
    struct ending *ending = argument;

    end_all(ending);
    (void)pthread_mutex_lock(&ending->lock);
    bool left = ending->left;
    ending->over = true;
    (void)pthread_cond_signal(&ending->changed);
    (void)pthread_mutex_unlock(&ending->lock);
    if (left)
        ending_free(ending);
    return NULL;
}

/* ---- waiting for the thread ------------------------------------------------------------------*/

static uint64_t abort_timeout_ms(void)
{
    const char *text = getenv("CTRUN_NCCL_ABORT_MS");
    uint64_t ms;

    return text != NULL && ct_parse_u64(text, &ms) == 0 && ms > 0 ? ms : ABORT_MS;
}

/* False when the thread is not through in time. It keeps `ending` then. */
static bool wait_for(struct ending *ending, uint64_t timeout_ms)
{
    struct timespec until;
    int waited = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ms / 1000);
    until.tv_nsec += (long)(timeout_ms % 1000 * 1000000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_mutex_lock(&ending->lock);
    while (!ending->over && waited == 0)
        waited = pthread_cond_timedwait(&ending->changed, &ending->lock, &until);
    bool over = ending->over;
    ending->left = true;
    (void)pthread_mutex_unlock(&ending->lock);
    return over;
}

static struct ending *ending_new(const struct ct_nccl_end *how)
{
    struct ending *ending = calloc(1, sizeof *ending);
    pthread_condattr_t clock;

    CT_ASSERT(ending != NULL); /* a few bytes, at an end that cannot be put off */
    ending->nccl = how->nccl;
    ending->communicators = how->communicators;
    ending->device = how->communicators[0].device;
    ending->healthy = how->healthy;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&ending->changed, &clock);
    (void)pthread_condattr_destroy(&clock);
    (void)pthread_mutex_init(&ending->lock, NULL);
    return ending;
}

static bool is_own(const struct ct_nccl_end *how, const struct ct_nccl_communicator *communicator)
{
    return communicator >= how->communicators && communicator < how->communicators + how->count;
}

/* Take NCCL's communicators that are to be ended out of ours, and unlist the group's. */
static void collect(const struct ct_nccl_end *how, struct ending *ending)
{
    struct ct_nccl *nccl = how->nccl;

    for (struct ct_nccl_communicator **at = &nccl->communicators; *at != NULL;) {
        struct ct_nccl_communicator *communicator = *at;
        bool own = is_own(how, communicator);

        if ((own || how->all) && communicator->comm != NULL && ending->count < COMMS_MAX) {
            if (!how->healthy)
                ct_nccl_communicator_revoke(nccl, communicator);
            memcpy(ending->views[ending->count], communicator->views, sizeof communicator->views);
            ending->view_counts[ending->count] = communicator->view_count;
            ending->leaves[ending->count] = communicator->leaves;
            ending->comms[ending->count++] = communicator->comm;
            communicator->comm = NULL;
            communicator->view_count = 0;
            communicator->aborted = true;
        }
        if (own)
            *at = communicator->next;
        else
            at = &communicator->next;
    }
}

static void free_communicator(struct ct_nccl_communicator *communicator)
{
    const struct ct_accel *device = communicator->device;

    for (int i = 0; i < CT_NCCL_RING; i++)
        if (communicator->events[i] != NULL)
            device->event_free(device->context, communicator->events[i]);
    if (communicator->before != NULL)
        device->event_free(device->context, communicator->before);
    if (communicator->stream != NULL)
        device->stream_free(device->context, communicator->stream);
}

bool ct_nccl_communicators_end(struct ct_job *job, const struct ct_nccl_end *how)
{
    struct ending *ending = ending_new(how);
    uint64_t timeout_ms = abort_timeout_ms();
    struct ct_error err = {0};
    pthread_t thread;

    (void)pthread_mutex_lock(&how->nccl->lock);
    collect(how, ending);
    bool over = ending->count == 0;
    if (!over && pthread_create(&thread, NULL, ending_main, ending) == 0) {
        over = wait_for(ending, timeout_ms);
        (void)(over ? pthread_join(thread, NULL) : pthread_detach(thread));
    } else if (!over) {
        end_all(ending);
        over = true;
    }
    how->nccl->hung = how->nccl->hung || !over;
    for (int i = 0; i < ending->count && over; i++)
        ct_nccl_views_leave(how->nccl, ending->views[i], ending->view_counts[i]);
    ct_nccl_unlock(how->nccl);
    if (!over) {
        ct_error_set(&err, CT_EHUNG,
                     "NCCL does not give its communicators back within %llu ms: this process can "
                     "neither go on nor exit, and is ended",
                     (unsigned long long)timeout_ms);
        ct_job_give_up(job, &err);
        return false; /* `ending` is the thread's */
    }
    for (int i = 0; i < how->count; i++)
        free_communicator(&how->communicators[i]);
    ending_free(ending);
    return true;
}
