/* The state of the node agent, shared by its files:
 *
 *   node_uv.c      birth, stopping, the end
 *   signals_uv.c   signals
 *   member_uv.c    what the rendezvous asks for, what workers do
 *   worker_messages_uv.c  what workers say
 *   console_messages_uv.c     what the user is told
 *   training_messages_uv.c  what the user sees of a training
 *   final_report_uv.c what the user is told at the end */
#ifndef CT_CTRUN_AGENT_NODE_STATE_UV_H
#define CT_CTRUN_AGENT_NODE_STATE_UV_H

#include "base/log.h"
#include "failure_list.h"
#include "gpu_health_uv.h"
#include "host_uv.h"
#include "inquiry_uv.h"
#include "launch/calls.h"
#include "launch/survivors.h"
#include "launch/workers_uv.h"
#include "launch_job.h"
#include "output/console_uv.h"
#include "output/progress.h"
#include "rendezvous/client/agent_uv.h"
#include "signals_uv.h"
#include "store_uv.h"
#include "watch_uv.h"
#include "wire/control_page.h"

#include <limits.h>

enum { NODE_SIGNALS = 64 }; /* more than there are */

/* The last root failure on this node. */
struct node_failure {
    uint64_t generation; /* 0: none */
    struct ct_buf who;   /* "rank 1 (...) exited with status 3" */
};

/* Sets are those of base/signals.h. */
struct signals {
    uint64_t ends, forwards, requeue;  /* what they do */
    uint64_t held;                     /* they take effect when `hold` ends */
    uint64_t reached;                  /* ends that who sent them sent to the workers, too */
    uv_timer_t hold;                   /* under Slurm */
    uv_signal_t handles[NODE_SIGNALS]; /* that this node listens to */
    int count;
};

struct node {
    const struct job *job;
    uv_loop_t loop;
    struct ct_log log;
    struct ct_log server_log; /* of the rendezvous, when it is hosted here */
    struct ct_console *console;
    bool output_lost; /* not all that was to go to standard output got there */
    struct ct_workers *workers;
    struct ct_guard guard;
    uv_poll_t guard_end; /* when guard_is_watched */
    bool guard_is_watched;
    struct ct_agent *agent; /* NULL once it was told to stop */
    struct host host;
    struct ct_control_page *page;
    int page_fd;
    struct store *store;   /* PyTorch's */
    uint16_t offered_port; /* with the last promise */
    struct ct_calls calls;

    int place;                    /* of this node in the last round, for the log */
    const struct ct_round *round; /* the last one committed, the agent's */
    uint32_t restarts;            /* up to it */
    bool took_part;               /* in any */
    struct ct_arena round_arena;
    uint64_t running;           /* generation that workers act in; 0: none */
    uint64_t preparing;         /* generation that waits for this node's promise; 0: none */
    bool at_boundary;           /* meanwhile the workers act on, up to a step boundary */
    enum ct_rdzv_reason reason; /* why the last round ended */
    uint64_t promised;          /* generation that was promised and has not begun; 0: none */
    bool round_waits; /* `round` begins when the workers that are being stopped are gone */
    struct ct_survivor *survivors; /* of each slot */
    uv_timer_t quiesce;            /* limits how long workers may take to leave a round */
    struct watch *watch;           /* who hangs? */
    struct inquiry *inquiry;       /* and why? */
    struct health *health;         /* of the GPUs; NULL: not asked for */
    struct ct_rdzv_failure held;   /* told when an inquiry has its answer; generation 0: none */
    struct node_failure failure;
    struct failures failures;          /* all that are known here, of the newest round with any */
    struct ct_msg_publish publication; /* the last one that a worker asked for */
    uint32_t publisher;                /* its local rank */
    bool publication_open;             /* not answered yet */
    uint64_t closed_generation;        /* the job's last round; 0: not closed */

    uint64_t started_ms;         /* of the loop's time */
    struct ct_progress progress; /* the last that is known of the training */
    char run_folder[PATH_MAX];   /* that the training writes to; "": no worker has said so */
    struct ct_progress_pace pace;
    uv_timer_t notice; /* a wait gets long */
    char waiting[512]; /* what for; "" for nothing */
    uint64_t waiting_since_ms;
    uint64_t waiting_said_ms; /* when something was last said about waiting */

    struct signals signals;
    int stopped_by; /* the first signal, 0 for none */
    bool requeue;   /* that stopped the job to be queued again */
    uint64_t stopped_at_ms;
    uint32_t stopped_count; /* workers that ran then */
    uint64_t gone_at_ms;    /* none runs any more, and the agent has said good-bye; 0: not yet */
    bool asked;             /* somebody has asked for the end of this node's workers */
    uint32_t killed;        /* workers that took longer for it than launch.grace */
    uint32_t unstopped;     /* workers that failed meanwhile */
    struct ct_rdzv_failure unstopped_first; /* the first of them */
    bool hurry;                             /* a second signal: nothing is waited for */
    bool released;                          /* it has left a job that goes on */
    bool was_alone;                         /* in its last round before that */
    bool stays;         /* that job's rendezvous is here, so ctrun stays without workers */
    bool warned;        /* somebody who wants to end it meanwhile has been told what that costs */
    bool cut_off;       /* the rendezvous does not answer now */
    bool draining;      /* the workers go on up to the step boundary at which the node leaves */
    uv_timer_t drain;   /* limits that */
    uv_timer_t parting; /* they are stopping; when it ends, so does their round */

    bool ending; /* the outcome is known */
    bool agent_stopped;
    bool server_stopping;
    bool flushed; /* the workers' log files are written, or given up */
    bool told;    /* the closing words are said */
    bool closed;  /* all handles are being closed */
    uint64_t ending_at_ms;
    uv_timer_t linger;            /* looks again while other nodes leave, or limits a wait */
    struct ct_rdzv_result result; /* when `error.code` is 0 */
    int32_t cause_node;           /* the root cause's node, -1: unknown */
    bool first_node;              /* in the last round */
    bool has_part;                /* in its failure */
    bool named_file;              /* the closing words name an error file */
    struct ct_error error;
    int status;
};

/* A line of the transcript: "> " and an event, "< " and what is done. */
#define node_trace(node, ...) ct_log_event(&(node)->log, CT_LOG_DEBUG, "agent", __VA_ARGS__)

/* member_uv.c */
extern const struct ct_agent_callbacks member_agent_callbacks;     /* context: the node */
extern const struct ct_workers_callbacks member_workers_callbacks; /* context: the node */

/* A worker has left its round. */
void member_ready(struct node *node);
/* Do workers run that can live on without this round? */
bool member_lives_on(const struct node *node);

/* worker_messages_uv.c */
void messages_take(void *context, uint32_t local_rank, const struct ct_message *message);
void messages_store_reply(void *context, const struct ct_msg_store_reply *answer);
void messages_published(void *context, const struct ct_msg_published *answer);
/* Ask the rendezvous for what is not answered, or say why nobody will. */
void messages_publication_due(struct node *node);

/* node_uv.c: is this node being stopped, whatever its workers are at? */
bool node_is_stopped(const struct node *node);

/* Stop, because of this signal: the job, or this node alone (CT_RDZV_LEAVE_DRAIN). */
void node_stop(struct node *node, int signal, enum ct_rdzv_leave how);

/* A signal would end the rendezvous of a job that goes on: say so, the first time. False: there is
 * nothing to warn of, or it has been said. */
bool node_warn_stay(struct node *node, int signal);

/* Nothing is waited for any more. */
void node_hurry(struct node *node);

/* Stop the job on all nodes, to go on when it is queued again. */
void node_requeue(struct node *node, int signal);

/* Leave at the next step boundary; the workers go on until then. */
void node_drain(struct node *node);

/* A worker has ended while others run. */
void node_left(struct node *node);

/* The outcome is known (error: this node has no way on; else node->result). */
void node_end(struct node *node, const struct ct_error *error);

/* Do the next step of the end that is possible now. */
void node_advance(struct node *node);

/* console_messages_uv.c */
/* Say what is waited for once that takes a second, changes once a second; NULL: nothing more. */
void words_waiting(struct node *node, const char *text);
void words_failure(struct node *node, const struct ct_worker_failure *failure);
/* A bad end of a worker, the root failure or not. */
void words_casualty(struct node *node, const struct ct_worker_failure *failure);
/* A round begins in which `survivors` workers of this node live on. */
/* This node's first round begins. */
void words_joined(struct node *node);
void words_restart(struct node *node, uint32_t survivors);
void words_regroup(struct node *node, uint32_t survivors);

/* training_messages_uv.c */
void words_progress(struct node *node, const struct ct_msg_progress *message);
void words_evaluation(struct node *node, const struct ct_msg_evaluation *message);
void words_summary(struct node *node, const char *text);

/* final_report_uv.c */
void words_keep_cause(struct node *node); /* while the round is still known */
void words_closing(struct node *node);
/* ctrun stays as the rendezvous of a job that goes on. */
void words_stay(struct node *node);
/* A signal has come meanwhile. */
void words_still_needed(struct node *node, int signal);

#endif
