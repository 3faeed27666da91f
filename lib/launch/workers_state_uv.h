/* The workers of a node, shared by their files:
 *
 *   workers_uv.c       started, signalled, asked
 *   workers_end_uv.c   ended: reaped, blamed, forgotten */
#ifndef CT_LAUNCH_WORKERS_STATE_UV_H
#define CT_LAUNCH_WORKERS_STATE_UV_H

#include "launch/supervise.h"
#include "launch/worker_link_uv.h"
#include "launch/workers_uv.h"

struct worker {
    uint32_t rank;
    pid_t pid; /* and process group; 0: not started */
    bool ended;
    bool reported; /* the end was told to the supervisor */
    bool gone;
    bool kept;                /* lives on without others */
    bool dismissed;           /* its end is no failure */
    bool stopped;             /* it still ran when a signal of ours ended the round */
    bool killed;              /* likewise, when SIGKILL went out */
    bool blamed;              /* on_failure has told of it */
    bool examined;            /* its end is not told before ct_workers_judge */
    struct ct_buf last_words; /* what it writes to standard error meanwhile */
    struct ct_exit end;
    int64_t ended_ms; /* since 1970 */
    struct ct_worker_link *link;
    const struct ct_worker_record *record;
    int record_fd; /* kept open, so that `ctrun flight` finds it among this process's; 0: none */
    int fault_code;
    char *fault;      /* the sentence it announced, or NULL */
    char *error_file; /* where it may say more, or NULL */
};

struct ct_workers {
    uv_loop_t *loop;
    uv_signal_t sigchld;
    uv_timer_t timer;
    struct ct_console *console;
    struct ct_workers_callbacks callbacks;
    struct ct_supervise sup;
    struct ct_outputs *outputs;
    struct ct_log_files *files; /* of all rounds */
    struct ct_recent *recent;   /* likewise */
    struct worker *all;
    uint32_t count;
    int null_fd;
    const struct ct_guard *guard; /* NULL: none */
    int stop_signal;              /* what ends them at first */
    int64_t stopped_ms;           /* when it did, since 1970 */
    bool well;                    /* no worker ended badly, none was stopped */
    bool finish_late;             /* on_finished is owed: it comes from the timer */
    int handles;
    void (*freed)(void *context);
    void *freed_context;
};

/* workers_uv.c: mark a worker of which no process runs any more. */
void ct_workers_set_gone(const struct ct_workers *workers, struct worker *worker);

/* workers_uv.c: feed the supervisor and carry out its actions. */
void ct_workers_step(struct ct_workers *workers, enum ct_sup_event event, struct worker *worker);

/* workers_end_uv.c: return the time since 1970 in ms. */
int64_t ct_workers_now_ms(void);

/* workers_end_uv.c: report the root failure of the end that this worker's was the first sign of. */
void ct_workers_blame(struct ct_workers *workers, struct worker *worker);

/* workers_end_uv.c: handle SIGCHLD. */
void ct_workers_reap(struct ct_workers *workers);

/* workers_end_uv.c: report the empty process groups to the supervisor. */
void ct_workers_count_gone(struct ct_workers *workers);

#endif
