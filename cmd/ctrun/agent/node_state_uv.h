/* The node agent's shell, shared by its files:
 *
 *     callbacks ---> events_uv.c ---> agent_core.h, which decides ---> actions_uv.c ---> calls
 *
 *   node_uv.c             birth, a step, death
 *   events_uv.c           reports of the rendezvous and the workers, as events
 *   worker_messages_uv.c  messages of workers, as events and to the store
 *   signals_uv.c          signals, as events
 *   actions_uv.c          the core's actions, carried out
 *   console_messages_uv.c, training_messages_uv.c, final_report_uv.c   lines for the user */
#ifndef CT_CTRUN_AGENT_NODE_STATE_UV_H
#define CT_CTRUN_AGENT_NODE_STATE_UV_H

#include "all_lines_uv.h"
#include "base/log/log.h"
#include "core/agent_core.h"
#include "gpu_health_uv.h"
#include "host/host_uv.h"
#include "inquiry_uv.h"
#include "job/failure_list.h"
#include "job/launch_job.h"
#include "job_events_uv.h"
#include "launch/calls.h"
#include "launch/workers_uv.h"
#include "lines_uv.h"
#include "output/console_uv.h"
#include "output/progress.h"
#include "rendezvous/client/agent_uv.h"
#include "script_watch_uv.h"
#include "signals_uv.h"
#include "store_uv.h"
#include "wandb_uv.h"
#include "warm_start_uv.h"
#include "watch_uv.h"
#include "wire/control_page.h"
#include "wire/failure.h"

#include <limits.h>

/* For the strings of a failure that is kept (wire/failure.h). */
enum { FAILURE_ROOM = CT_FAILURE_ROOM(CT_FAILURE_TEXT_BYTES) };

/* The failures of this node and the job's end, for the final report. */
struct report {
    uint64_t generation;              /* of the last root failure on this node; 0: none */
    struct ct_buf who;                /* "rank 1 (...) exited with status 3": that failure */
    struct failures failures;         /* all that are known here, of the newest round with any */
    struct ct_wire_failure unstopped; /* the first that was to stop and failed instead */
    char unstopped_room[FAILURE_ROOM];
    struct ct_rdzv_result result; /* of the job, when `error.code` is 0; without `others` */
    char cause_room[FAILURE_ROOM];
    struct ct_error error; /* why this node had no way on */
    int32_t cause_node;    /* the root cause's node, -1: unknown */
    bool first_node;       /* this was node 0 of the last round */
    bool has_part;         /* in its failure */
    bool named_file;       /* the closing words name an error file */
};

/* The training messages on the console. */
struct training_view {
    struct ct_progress progress; /* the last that is known */
    struct ct_progress_pace pace;
    char run_folder[PATH_MAX]; /* that the training writes to; "": no worker has sent it */
};

/* A wait that gets long is named. */
struct wait_notice {
    uv_timer_t timer;
    char text[512]; /* what for; "" for nothing */
    uint64_t since_ms;
    uint64_t waiting_shown_ms; /* when something was last said about waiting */
};

struct node {
    const struct job *job;
    uv_loop_t loop;
    uint64_t started_ms; /* of the loop's time */

    struct agent_core core;
    struct ct_survivor *survivors; /* of each slot, the core's */
    bool *dismissed;               /* likewise */
    bool *alive;                   /* of each slot, for the core's view */
    uv_timer_t timer;              /* of the core's deadline */

    struct ct_console *console;
    struct ct_log log;
    struct ct_log server_log; /* of the rendezvous, when it is hosted here */
    int place;                /* of this node in the last round, for the logs */
    bool output_lost;         /* not all that was to go to standard output got there */

    struct ct_agent
        *agent; /* the link to the rendezvous; NULL before it is made, and once it closes */
    struct host host;
    const struct ct_round
        *round; /* the last one, the agent's; NULL before the first, and at the end */
    enum ct_rdzv_reason reason;        /* why the one before it ended */
    struct ct_calls calls;             /* store operations under way */
    struct ct_msg_publish publication; /* the last one that a worker asked for */
    struct ct_wire_failure held;       /* that waits for its inquiry */
    uint64_t held_generation;          /* its round */
    char held_room[FAILURE_ROOM];

    struct ct_workers *workers;
    struct ct_warm_pool warm;         /* interpreters that may become workers */
    struct ct_worker_failure failing; /* while an event is about it */
    uint32_t restarts;                /* of the job, up to the last round */
    bool took_part;                   /* in any */
    uint64_t awaited_generation; /* the round whose workers start when the GPUs' memory is free */
    struct ct_arena round_arena;
    struct ct_guard guard;
    uv_poll_t guard_end; /* when guard_is_watched */
    bool guard_is_watched;
    struct ct_control_page *page;
    int page_fd;
    struct store *store;          /* PyTorch's */
    uint16_t offered_port;        /* with the last promise */
    struct watch *watch;          /* who hangs? */
    struct script_watch *scripts; /* likewise, of programs without a record; NULL: not asked for */
    struct inquiry *inquiry;      /* and why? */
    struct lines *lines;          /* who reads the workers' lines */
    struct all_lines *all_lines;  /* those of the other nodes, on this one's console */
    struct health *health;        /* of the GPUs; NULL: not asked for */
    struct job_events *events;    /* of the job, for files and hooks; NULL: not asked for */
    struct wandb *wandb;          /* takes the metrics of a worker here; NULL: not asked for */
    struct signals signals;

    struct report report;
    struct training_view training;
    struct wait_notice waiting;
};

/* ---- node_uv.c ---- */

/* Feed one event to the core and carry out its actions. */
void node_feed(struct node *node, const struct agent_event *event);

/* Handle an error after which the node cannot continue. */
void node_fail(struct node *node, const struct ct_error *error);

/* ---- events_uv.c ---- */
extern const struct ct_agent_callbacks node_agent_callbacks;     /* context: the node */
extern const struct ct_workers_callbacks node_workers_callbacks; /* context: the node */

/* ---- actions_uv.c ---- */
void node_carry_out(struct node *node, enum agent_action action, const struct agent_event *event);

/* ---- worker_messages_uv.c ---- */
void messages_receive(void *context, uint32_t local_rank, const struct ct_message *message);
void messages_store_reply(void *context, const struct ct_msg_store_reply *answer);

/* ---- console_messages_uv.c ---- */

/* Show what the job waits for, after a second and at most once a second; NULL: it waits no more. */
void show_waiting(struct node *node, const char *text);
void show_failure(struct node *node, const struct ct_worker_failure *failure);
/* Show a bad end of a worker, the root failure or not. */
void show_casualty(struct node *node, const struct ct_worker_failure *failure);
/* Show that the rendezvous is gone. */
void show_unlinked(struct node *node, const char *why);
/* Show the begin of this node's first round. */
void show_joined(struct node *node);
/* Show the begin of a round in which `survivors` workers of this node live on. */
void show_restart(struct node *node, uint32_t survivors);
void show_regroup(struct node *node, uint32_t survivors);

/* ---- training_messages_uv.c ---- */
void show_progress(struct node *node, const struct ct_msg_progress *message);
void show_evaluation(struct node *node, const struct ct_msg_evaluation *message);
void show_summary(struct node *node, const char *text);

/* ---- final_report_uv.c ---- */
void keep_failure_cause(struct node *node); /* while the round is still known */
void show_end(struct node *node);
/* Show that ctrun stays as the rendezvous of a job that continues. */
void show_staying(struct node *node);
/* Show that a signal has arrived meanwhile. */
void show_still_needed(struct node *node, int signal);

#endif
