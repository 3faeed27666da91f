/* The workers of this node, one round after the other: started, watched, stopped.
 *
 *   ct_workers_start      processes, pipes and links exist
 *        v                on_message       messages of native workers
 *   a bad exit            on_failure       the node's root failure; the others get SIGTERM
 *   or ct_workers_stop    on_waiting       it takes longer than a second
 *        v                on_casualty      each further bad exit
 *        v                                 after the grace: SIGKILL
 *   no process is left    on_finished      the next round may start
 *
 * Workers that can survive (ct_workers_keep) are not stopped for one that was lost:
 *
 *   a bad exit            on_failure, on_left
 *   ct_workers_dismiss    on_left          the agent gives one up
 *   ct_workers_refill     missing ones are started, the others belong to the new round
 *
 * supervise.h decides; this file carries out. The agent becomes the reaper of its workers' orphaned
 * descendants. One object a process (it waits for all children), on the loop's thread; no callback
 * comes from inside a call. */
#ifndef CT_LAUNCH_WORKERS_UV_H
#define CT_LAUNCH_WORKERS_UV_H

#include "hardware/affinity.h"
#include "launch/failure/worker_failure.h"
#include "launch/guard.h"
#include "launch/warm_start.h"
#include "output/console_uv.h"
#include "output/output_uv.h"
#include "wire/wire.h"
#include "wire/worker_record.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

/* How many of a worker's last lines go into a failure. */
enum { CT_WORKER_LINES = 20 };

/* The settings that differ from worker to worker. */
struct ct_worker_spec {
    uint32_t rank;
    struct ct_lines_origin origin; /* of its lines */
    char *const *envp;
    char *const *argv;          /* NULL: the round's */
    const struct ct_cpus *cpus; /* NULL: all */
    const char *error_file;     /* where it may leave an error file; NULL, "": nowhere */
    const char *folder;         /* is made before it starts; NULL, "": none */
    struct ct_output_route routes[CT_CONSOLE_STREAMS];
};

struct ct_workers_round {
    const char *path;
    char *const *argv;
    int page_fd;                /* of the control page; -1: none */
    const struct rlimit *files; /* as of ct_spawn */
    struct ct_warm_pool *warm;  /* interpreters that may become workers of it; NULL: none */
    uint32_t count;
    const struct ct_worker_spec *specs; /* of each local rank */
};

/* Failures are reported without the host and without `fatal`. Their strings live until the callback
 * returns. */
struct ct_workers_callbacks {
    void *context;
    void (*on_message)(void *context, uint32_t local_rank, const struct ct_message *message);
    /* The node's root failure: of those that are known by now, the first that happened. Its worker
     * may still run, having left an error file: it is about to end with that status, or 1. */
    void (*on_failure)(void *context, const struct ct_worker_failure *failure);
    /* Any other bad end; not of those that were dismissed. */
    void (*on_casualty)(void *context, const struct ct_worker_failure *failure);
    /* A worker has ended while others run. */
    void (*on_left)(void *context, uint32_t local_rank);
    void (*on_waiting)(void *context, const char *text);
    /* `well`: every worker ended with status 0 by itself. */
    void (*on_finished)(void *context, bool well);
    /* Another child of this process has ended, with that status of waitpid(2). */
    void (*on_other)(void *context, pid_t pid, int status);
};

struct ct_workers;

/* Watch for children; `grace_ms` from the first signal to SIGKILL. NULL without memory. */
struct ct_workers *ct_workers_new(uv_loop_t *loop, struct ct_console *console, uint64_t grace_ms,
                                  const struct ct_workers_callbacks *callbacks);

/* Return their log files: for losses so far, and to be flushed before the end. */
struct ct_log_files *ct_workers_files(const struct ct_workers *workers);

/* Return their last lines, of all rounds. */
enum { CT_WORKERS_RECENT_BYTES = 1 << 20 };
const struct ct_recent *ct_workers_recent(const struct ct_workers *workers);

/* Set the guard (NULL: none) to which every worker is reported from now on; it must outlive
 * them. */
void ct_workers_guard(struct ct_workers *workers, const struct ct_guard *guard);

/* Start a round; only when none runs. Everything in `round` is copied or used up. 0, or the error
 * of the first worker that could not be started, `*ret_failed` is its local rank; on_finished comes
 * in either case. */
int ct_workers_start(struct ct_workers *workers, const struct ct_workers_round *round,
                     uint32_t *ret_failed, struct ct_error *err);

/* Start another round for the workers that live on; missing ones are started. Only while a worker
 * runs and none is being stopped. Otherwise as ct_workers_start. */
int ct_workers_refill(struct ct_workers *workers, const struct ct_workers_round *round,
                      uint32_t *ret_failed, struct ct_error *err);

/* Mark a worker as able to survive the loss of others: while it runs, no worker is stopped for a
 * lost one. */
void ct_workers_keep(struct ct_workers *workers, uint32_t local_rank);

/* Check at once whether a worker has ended. The callbacks are called from inside. */
void ct_workers_poll(struct ct_workers *workers);

/* Send SIGKILL to one worker, whose end is no failure. A no-op when it has ended. */
void ct_workers_dismiss(struct ct_workers *workers, uint32_t local_rank);

/* Send SIGKILL to one worker, whose end is a failure with this error (a hang, for example). A no-op
 * when it has ended. */
void ct_workers_condemn(struct ct_workers *workers, uint32_t local_rank,
                        const struct ct_error *error);

/* Examine a worker that may hang, when nothing else shows where it is: SIGABRT, after which
 * Python's faulthandler prints its stacks, and no core file. Its end is told to nobody before
 * ct_workers_judge. */
void ct_workers_examine(struct ct_workers *workers, uint32_t local_rank);

/* Return whether an examined worker has ended. */
bool ct_workers_examined(const struct ct_workers *workers, uint32_t local_rank);

/* Return what it has written to standard error since; "" before the examination. Until it is
 * judged. */
const char *ct_workers_last_words(const struct ct_workers *workers, uint32_t local_rank);

/* End the examination of all: the end of worker `culprit` is a failure with this error, that of the
 * others is none; those that still run get SIGKILL. The callbacks are called from inside. */
void ct_workers_judge(struct ct_workers *workers, uint32_t culprit, const struct ct_error *error);

/* Return how many bytes of its output have been read; 0 when it has ended. */
uint64_t ct_workers_output_bytes(const struct ct_workers *workers, uint32_t local_rank);

/* Return the worker's record, NULL when it has ended. */
const struct ct_worker_record *ct_workers_record(const struct ct_workers *workers,
                                                 uint32_t local_rank);

/* A worker, also one that has ended, until its place is taken or the round is over. */
struct ct_worker_trace {
    const struct ct_worker_record *record;
    pid_t pid;
    bool ended;
    bool stopped; /* by a signal of ours */
    struct ct_exit end;
};

/* Return a worker's trace; false if none. */
bool ct_workers_trace(const struct ct_workers *workers, uint32_t local_rank,
                      struct ct_worker_trace *ret_trace);

/* Return its process, 0 when it has ended. */
pid_t ct_workers_pid(const struct ct_workers *workers, uint32_t local_rank);

/* Return whether its output is held up by a slow console or disk, so that it waits in write(2). */
bool ct_workers_held(const struct ct_workers *workers, uint32_t local_rank);

/* Return whether this worker's process runs. */
bool ct_workers_alive(const struct ct_workers *workers, uint32_t local_rank);

/* Return whether they are being stopped. */
bool ct_workers_stopping(const struct ct_workers *workers);

/* Return whether a process of the round is alive, or on_finished still to come. */
bool ct_workers_running(const struct ct_workers *workers);

/* Stop the workers: a message to native ones, `signal` (mostly SIGTERM; 0: they have received one
 * already), and SIGKILL after the grace period. A no-op without a round, or when they are being
 * stopped already. */
void ct_workers_stop(struct ct_workers *workers, int signal);

/* Forward a signal to each worker's own process; its children get none, since they might not handle
 * it and die. Returns the number of workers that received it. */
uint32_t ct_workers_signal(struct ct_workers *workers, int signal);

/* Send SIGKILL to all at once. */
void ct_workers_kill(struct ct_workers *workers);

/* Send a message to one worker; dropped when it has ended. */
void ct_workers_send(struct ct_workers *workers, uint32_t local_rank,
                     const struct ct_message *message);

/* Resume reading, since the console has room again. */
void ct_workers_room(struct ct_workers *workers);

/* Free it; only when no round runs. `freed` (may be NULL) is the last callback. */
void ct_workers_free(struct ct_workers *workers, void (*freed)(void *context), void *context);

#endif
