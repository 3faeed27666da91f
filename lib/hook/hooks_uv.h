/* Hooks on a loop: each event is given to a program, or posted to a URL, beside the job, which
 * never waits for it.
 *
 *   ct_hooks_put -> hook_queue.h -> a process: the record as standard input, variables
 *                     ^   |           |
 *                     |   `- SIGKILL -| its time is over
 *                     `-- again ------'-- status 0: taken
 *
 * The program has kind and job of the event in its environment: CTRUN_EVENT, CTRUN_EVENT_JOB,
 * CTRUN_EVENT_LEVEL, CTRUN_EVENT_NUMBER, CTRUN_EVENT_GENERATION. Its standard output goes nowhere;
 * the last line of its standard error is told when it fails. It gets SIGKILL when this process
 * dies.
 *
 * Bounds: those of hook_queue.h, and 16 KiB of a record. What is given up or dropped is a warning.
 * All on the loop's thread. */
#ifndef CT_HOOK_HOOKS_UV_H
#define CT_HOOK_HOOKS_UV_H

#include "base/log/log.h"
#include "hook/hook_target.h"

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct ct_hooks;

struct ct_hooks_options {
    uv_loop_t *loop;
    const struct ct_hook_target *target; /* outlives the hooks, like all that is pointed to here */
    uint64_t timeout_ms;                 /* of one try */
    char *const *env;                    /* of its processes */
    const struct ct_log *log;
    bool reaps; /* wait for its processes; else another part of this one waits for all children, and
                   calls ct_hooks_reaped */
};

/* An event; copied. */
struct ct_hook_event {
    const char *job, *kind, *level;
    uint64_t number, generation;
    const char *record; /* JSON, on a line */
    size_t size;
};

/* Create. 0; CT_ENOMEM, CT_EOS with the sentence. */
int ct_hooks_new(const struct ct_hooks_options *options, struct ct_hooks **ret_hooks,
                 struct ct_error *err);

/* Give an event to the hook, when those before it are done. */
void ct_hooks_put(struct ct_hooks *hooks, const struct ct_hook_event *event);

/* A child of this process has ended, with a status of waitpid(2). Others than the hooks' change
 * nothing. */
void ct_hooks_reaped(struct ct_hooks *hooks, pid_t pid, int status);

/* Return how many events are not given yet. */
size_t ct_hooks_left(const struct ct_hooks *hooks);

/* No event will come any more: go on for at most `patience_ms` with those that are left, tell of
 * what was not taken, then free all and call `finished` (may be NULL), from the loop. A second call
 * only shortens the patience. */
void ct_hooks_finish(struct ct_hooks *hooks, uint64_t patience_ms, void (*finished)(void *context),
                     void *context);

#endif
