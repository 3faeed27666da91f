/* The watch: detects hanging workers of this node.
 *
 * A rank that waits for others in a collective sends heartbeats (wire/worker_record.h), a rank that
 * computes makes step after step. So a rank without a heartbeat for longer than its hang timeout is
 * the one that the others wait for, and each agent finds the hanging rank among its own, for any
 * number of nodes:
 *
 *      rank 0   enter all_reduce 7   beat  beat  beat  beat  beat      waits: healthy
 *      rank 1   enter all_reduce 7   (stopped)                         STUCK in it
 *      rank 2   leave all_reduce 6   (reads a dead disk)               MISSING, rank 0 waits for it
 *      rank 3   leave all_reduce 6   computes   enter all_reduce 7     healthy
 *
 *   verdict             the rank                                   evidence
 *   MISSING             has not entered the collective of others   no heartbeat
 *   NOT_IN_COLLECTIVE   is in none, and nobody here waits for it   no heartbeat
 *   STUCK               is in a collective, does not return        no heartbeat; or nobody of the
 *                                                                  job makes progress: then it is
 *                                                                  the one most others wait for
 *   WAITS               (only reported) is on another node, whose  all ranks here wait for one of
 *                       agent finds it                             another node
 *
 * Hang timeout: max(floor, 5 x the usual time), which is, for a process that has completed a step,
 * the 99th percentile of its last 200 steps, and for one that has not, the longest start of a
 * process here. 30 minutes without any history, and while it reads or writes a checkpoint; none
 * once it has left the round and while its output is held up. Other long waits (a group that forms,
 * an evaluation, a wait until a checkpoint is published) send heartbeats. Time in which the agent
 * itself was stopped does not count.
 *
 * Pure: no clock, no I/O. */
#ifndef CT_DIAGNOSE_WATCH_H
#define CT_DIAGNOSE_WATCH_H

#include "base/bytes.h"
#include "wire/worker_record.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_WATCH_POLL_MS = 500,            /* how often to look, at most */
    CT_WATCH_STEPS = 200,              /* whose durations count */
    CT_WATCH_FACTOR = 5,               /* of what it took before */
    CT_WATCH_SILENT_MS = 1000,         /* a waiting rank sends heartbeats more often */
    CT_WATCH_LONG_MS = 30 * 60 * 1000, /* the patience with the unknown and with disks */
    CT_WATCH_STRAGGLER_MS = 60 * 1000, /* between two lines on stragglers */
};

enum ct_watch_kind {
    CT_WATCH_NOTHING,
    CT_WATCH_MISSING,
    CT_WATCH_NOT_IN_COLLECTIVE,
    CT_WATCH_STUCK,
    CT_WATCH_WAITS,
};

/* A worker now. */
struct ct_watch_sample {
    bool alive; /* its process runs */
    int pid;
    bool excused; /* waits for its agent: its output is not taken, or it has left the round */
    struct ct_record_view view;
    const uint32_t *durations_us; /* of its last steps, any order */
    uint32_t duration_count;
};

struct ct_watch_rank {
    uint64_t signs, progress;       /* as last seen */
    uint64_t silent_ms, stalled_ms; /* no sign of life; only waiting */
    int pid;
    uint64_t starting_ms; /* how long this process had completed no step */
};

struct ct_watch {
    uint32_t count;      /* workers here, ranks first_rank ... */
    uint32_t first_rank; /* of the job */
    uint32_t world;
    uint64_t floor_ms;   /* 0: nobody is watched */
    uint64_t start_ms;   /* the longest start so far; 0: none is known. Outlives the round */
    uint64_t checked_ms; /* 0: not yet in this round */
    bool judged;         /* the round has its verdict */
    bool reported;       /* that all wait for another node */
    struct ct_watch_rank *ranks;
};

struct ct_watch_verdict {
    enum ct_watch_kind kind;
    uint32_t worker;            /* local rank */
    int64_t healthy;            /* another one to compare it with; -1: none */
    uint64_t silent_ms;         /* how long it gave no sign, or nobody got on */
    struct ct_record_call call; /* the one that it is in, or lacks; id 0: none is known */
    uint64_t number;            /* of this call in its group; CT_RECORD_TRANSFER: a send or recv */
    uint32_t waiting;           /* others here that wait for it */
    bool all_wait;              /* STUCK: nobody is silent, nobody gets on */
    int awaited;                /* WAITS: a rank of another node; -1: unknown */
};

/* Begin a round with workers first_rank .. first_rank + count - 1 of `world`. `ranks` has room for
 * all of them; it is owned by the caller, zeroed for the first round and the same in each. */
void ct_watch_begin(struct ct_watch *watch, struct ct_watch_rank *ranks, uint32_t count,
                    uint32_t first_rank, uint32_t world);

/* Check all workers. True: *ret_verdict is new. A round gets one verdict on a rank, and WAITS at
 * most once before it. */
bool ct_watch_poll(struct ct_watch *watch, uint64_t now_ms, const struct ct_watch_sample *samples,
                   struct ct_watch_verdict *ret_verdict);

/* Return how long a worker in this state may send no heartbeat; UINT64_MAX: for ever. */
uint64_t ct_watch_patience_ms(const struct ct_watch *watch, const struct ct_watch_sample *sample);

/* The context of a verdict for a person. */
struct ct_watch_names {
    uint32_t rank; /* of the verdict's worker */
    const char *host;
    int pid;
    enum ct_record_section section; /* where it is */
    uint64_t step;                  /* it has completed */
    const char *awaited_host;       /* WAITS: of `awaited`; "" when unknown */
};

/* Append "rank 3 (host b, pid 4711) hangs: it has not entered all_reduce of 650 F32 (number 7 of
 * group world/1), where 2 ranks of this node wait for it; no sign of life for 31.2 s, in step
 * 18" */
void ct_watch_print(const struct ct_watch_verdict *verdict, const struct ct_watch_names *names,
                    struct ct_buf *to);

#endif
