/* Goodput: what the time of a job goes to (time_use.def), from its phases and rank 0's progress.
 *
 *     LOBBY, PAUSED           idle
 *     from LAST_CALL to the   start (no step was made yet) or restart; of it, what the worker has
 *     first progress of a     spent in its loop by then is taken apart as below
 *     round
 *     progress -> progress    checkpoint and straggler: as the worker measured; of the rest as many
 *                             parts are recompute as steps were made before, the others productive
 *     last progress -> the    restart: the step in flight is lost
 *     round is over
 *     last progress -> end    productive, of a job that ends well
 *
 * Ranks compare their waiting a few steps later. What is told of more waiting than the time since
 * the last progress has room for is taken from the progress that follows: no part gets smaller.
 *
 * The parts add up to the time since ct_goodput_begin, exactly, at any moment. Time comes from the
 * caller; it never goes back. Pure. */
#ifndef CT_RENDEZVOUS_GOODPUT_H
#define CT_RENDEZVOUS_GOODPUT_H

#include <stdbool.h>
#include <stdint.h>

enum ct_time_use {
#define CT_TIME_USE(name, label, help) CT_TIME_##name,
#include "rendezvous/history/time_use.def"
#undef CT_TIME_USE
    CT_TIME_USES,
};

/* What the job is at, as its phase says. */
enum ct_goodput_state {
    CT_GOODPUT_IDLE,  /* waits for MIN nodes */
    CT_GOODPUT_FORMS, /* a round is made, or its workers recover */
    CT_GOODPUT_RUNS,
    CT_GOODPUT_OVER,     /* ended badly, or by a stop */
    CT_GOODPUT_FINISHED, /* ended well */
};

/* Rank 0's clock in the loop of its round, in seconds since the loop began; 0: it has none. */
struct ct_goodput_progress {
    uint64_t step;
    double trained_s;
    double saving_s;    /* of trained_s: steps waited for a checkpoint */
    double straggler_s; /* of trained_s: ranks waited for the slowest one */
};

struct ct_goodput {
    double seconds[CT_TIME_USES]; /* up to `counted_ms` */
    uint64_t counted_ms;
    enum ct_goodput_state state;
    bool reports;     /* its workers tell progress, as the caller knows */
    uint64_t highest; /* step that was made */
    bool stepped;     /* in this round */
    struct ct_goodput_progress last;
    double owed[CT_TIME_USES]; /* seconds that were told of a use and found no room yet */
};

/* Begin to count, with a job that is idle. Until `reports` is set or progress comes, all time in a
 * round is productive: its workers may be strangers' that tell none. */
void ct_goodput_begin(struct ct_goodput *goodput, uint64_t now_ms);

/* The job is in this state from now on. */
void ct_goodput_state(struct ct_goodput *goodput, uint64_t now_ms, enum ct_goodput_state state);

/* Rank 0 has told its progress. */
void ct_goodput_progress(struct ct_goodput *goodput, uint64_t now_ms,
                         const struct ct_goodput_progress *progress);

/* The parts up to now, in seconds, of what is not known to be lost: their sum is the job's time. */
void ct_goodput_read(const struct ct_goodput *goodput, uint64_t now_ms,
                     double ret_seconds[CT_TIME_USES]);

/* "productive", and what it is. */
const char *ct_time_use_label(enum ct_time_use use);
const char *ct_time_use_help(enum ct_time_use use);

#endif
