/* Pipeline schedules: the order in which stages run the parts of the model for each micro-batch.
 *
 * The model is split into stages * chunks parts, 0 .. parts - 1; part c is run by stage c % stages.
 * With one chunk a stage, 3 stages and 4 micro-batches (F forward, B backward, time to the right):
 *
 *     gpipe     stage 0  F0 F1 F2 F3                   B0    B1    B2    B3
 *               stage 1     F0 F1 F2 F3          B0    B1    B2    B3
 *               stage 2        F0 F1 F2 F3 B0    B1    B2    B3
 *
 *     1f1b      stage 0  F0 F1 F2          B0    F3 B1       B2       B3
 *               stage 1     F0 F1    B0    F2 B1    F3 B2       B3
 *               stage 2        F0 B0    F1 B1    F2 B2    F3 B3
 *
 *     eager     stage 0  F0 F1 F2 F3 F4    B0    F5 B1       B2 ..
 *               stage 1     F0 F1 F2 B0    F3 B1    F4 B2       B3 ..
 *               stage 2        F0 B0    F1 B1    F2 B2    F3 B3
 *
 * eager (1f1b) has twice as many forward passes ahead, so that a message may take as long as a
 * forward and half a backward pass before anybody waits for it; in 1f1b each waits for the last
 * one's. interleaved is eager 1f1b with several chunks a stage, each part as much shorter: a
 * micro-batch passes each stage once per chunk, and the pipeline fills in a fraction of the time.
 * In every order the backward passes of a part run in the order of the micro-batches, so gradients
 * are summed as in one process.
 *
 * Messages. The output of part c goes to part c + 1 (forward) or c - 1 (backward). When it passes
 * is the moment at which it is made, where stages compute meanwhile (`beside`), and that at which
 * it is needed where they do not, by a timeline on which a backward pass takes twice the time of a
 * forward pass (and a message beside them as long as one). Messages of a stage at one moment are
 * one exchange, in front of the first run that is not over by then, and all stages have their
 * exchanges in the order of the timeline: the earliest open one can always be completed, so there
 * is no deadlock, even without buffered messages.
 *
 * Pure: no device, no clock. See Narayanan et al. 2021 (Megatron-LM) for orders and bubbles, and
 * Zhuang et al. 2022 (arXiv 2211.05322) for the eager one. */
#ifndef CT_COLL_PLAN_PIPELINE_SCHEDULE_H
#define CT_COLL_PLAN_PIPELINE_SCHEDULE_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>

enum ct_plan_order {
    CT_PLAN_GPIPE,       /* all forward passes, then all backward passes: keeps all micro-batches */
    CT_PLAN_1F1B,        /* a backward pass as soon as there is one: keeps at most `stages` */
    CT_PLAN_INTERLEAVED, /* eager with chunks >= 2; micro-batches a multiple of stages */
    CT_PLAN_EAGER /* 1f1b with forward passes ahead, so that messages have time: keeps up to twice
                     as many */
};

struct ct_pipe {
    enum ct_plan_order order;
    int stages;  /* >= 1 */
    int chunks;  /* parts of a stage; 1 unless interleaved */
    int micros;  /* micro-batches of a step */
    bool beside; /* stages compute while messages pass */
};

/* A pass of a micro-batch through a part of the model. */
struct ct_pipe_task {
    bool backward;
    int part, micro;
};

/* The output of `task`, sent to or received from stage `peer`. */
struct ct_pipe_message {
    struct ct_pipe_task task;
    int peer;
};

enum { CT_PIPE_MAX_MESSAGES = 2 };

/* The next action of a stage: run a task, or exchange messages, all of them at once. */
struct ct_pipe_turn {
    bool runs;
    struct ct_pipe_task task; /* if it runs */
    int send_count;           /* else: at most one message to and one from each neighbour */
    struct ct_pipe_message send[CT_PIPE_MAX_MESSAGES];
    int receive_count;
    struct ct_pipe_message receive[CT_PIPE_MAX_MESSAGES];
};

struct ct_pipe_turns {
    struct ct_pipe_turn *turn;
    int count;
};

enum { CT_PIPE_MAX_STAGES = 1024, CT_PIPE_MAX_CHUNKS = 64 };

/* Check a schedule's parameters. 0, or CT_ECONFIG with the sentence: chunks without interleaving or
 * the reverse, micro-batches that cannot be interleaved, sizes out of range. */
int ct_pipe_check(const struct ct_pipe *pipe, struct ct_error *err);

/* List the actions of `stage`, in the arena. `pipe` is one that ct_pipe_check accepts, of two
 * stages or more. 0 or CT_ENOMEM. */
int ct_pipe_turns(const struct ct_pipe *pipe, int stage, struct ct_arena *arena,
                  struct ct_pipe_turns *ret_turns, struct ct_error *err);

#endif
