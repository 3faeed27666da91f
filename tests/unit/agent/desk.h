/* A test bench of a node agent's core: a test feeds events and compares the lines of
 * agent_step_print. The state of workers is set by the test. */
#ifndef CT_TEST_AGENT_DESK_H
#define CT_TEST_AGENT_DESK_H

#include "cmd/ctrun/agent/core/agent_core.h"

enum { DESK_SLOTS = 2, DESK_GRACE_MS = 10000 };

struct desk {
    struct agent_core core;
    struct agent_view view;
    struct ct_survivor survivors[DESK_SLOTS];
    bool dismissed[DESK_SLOTS], alive[DESK_SLOTS];
    char printed[512]; /* the last step's line */
};

/* A job of two workers a node that end by SIGTERM and SIGINT; SIGUSR1 (10) is passed on, SIGUSR2
 * (12) requeues. `native`: they are the trainer's. The link is there. */
void desk_open(struct desk *desk, bool native);
void desk_open_with(struct desk *desk, const struct agent_settings *settings);

/* One event; its line. BEGIN brings the workers to life, FINISHED leaves none. */
const char *desk_step(struct desk *desk, struct agent_event event);

/* Shorthands for the most frequent ones. */
const char *desk_prepare(struct desk *desk, uint64_t generation, bool at_boundary);
const char *desk_round(struct desk *desk, uint64_t generation);
const char *desk_ready(struct desk *desk, uint32_t local_rank, uint64_t generation, uint64_t step);
const char *desk_left(struct desk *desk, uint32_t local_rank);
const char *desk_finished(struct desk *desk, bool well);
const char *desk_failure(struct desk *desk, uint32_t local_rank, int status);
const char *desk_signal(struct desk *desk, int signal);

/* Advance the clock to the core's deadline, which must be `ms` away, and feed a tick. */
const char *desk_wait(struct desk *desk, uint64_t ms);

/* The node runs round 1: prepared, promised, begun. Native workers are able to live on. */
void desk_run(struct desk *desk);

#define desk_expect(printed, words) cr_assert_str_eq(printed, words)

#endif
