/* The rhythm of programs that keep no record: is such a job hung, on this node? Its workers are
 * seen from outside, twice a second:
 *
 *   sign     a heartbeat in its file, a byte of output, a byte read or written (pipes and sockets
 *            by read(2) and write(2), too), by the worker or its descendants
 *   work     it uses a processor (CT_RHYTHM_WORK_PERCENT), is in turn for one, waits for a disk, or
 *            its descendants change
 *
 *   rank 0   sign . . sign . work work .  .  .  .  .  .  .      waits in a collective: silent
 *   rank 1   sign . . .  . work work work work work work ...    loops: works, gives no sign
 *            |                      |                   |
 *            the job lives          all silent but 1    BUSY: no sign from any rank for too long
 *
 * A rank that waits for others is as silent as one that hangs, so ranks are not judged one by one:
 * a rank that lives excuses all others, and who of the silent ones is at fault, their stacks show
 * (odd_rank.h). But one that is stopped by a signal is so by itself.
 *
 *   verdict   all living ranks                            for longer than
 *   STOPPED   (one rank) stopped by a signal              the floor
 *   SILENT    give no sign and do no work                 max(floor, 5 x the 99th percentile of
 *                                                         the pauses that ended)
 *   BUSY      give no sign, but work                      max(10 x floor, 5 x the 99th percentile
 *                                                         of such pauses); never before the program
 *                                                         is known for its signs: by a heartbeat,
 *                                                         or by output over as long a time
 *
 * Limits: a loop that prints, reads or writes lives; of ranks that never wait for each other, one
 * that hangs is found when the others are silent, too. Time in which the agent itself was stopped
 * does not count. Pure: no clock, no I/O. */
#ifndef CT_DIAGNOSE_RHYTHM_H
#define CT_DIAGNOSE_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_RHYTHM_POLL_MS = 500,
    CT_RHYTHM_FACTOR = 5,       /* of a pause that was seen before */
    CT_RHYTHM_BUSY_FACTOR = 10, /* of the floor: without a sign, but at work */
    CT_RHYTHM_WORK_PERCENT = 5, /* of one processor, between two polls */
    CT_RHYTHM_PAUSES = 200,     /* that are remembered */
};

enum ct_rhythm_kind {
    CT_RHYTHM_LIVES,
    CT_RHYTHM_STOPPED,
    CT_RHYTHM_SILENT,
    CT_RHYTHM_BUSY,
};

/* A worker now. */
struct ct_rhythm_sample {
    bool alive;          /* its process runs, and keeps no record of its own */
    bool excused;        /* waits for its agent, or a debugger has it */
    bool stopped;        /* by a signal */
    bool waiting;        /* for a processor or a disk */
    int pid;             /* a new one begins anew */
    uint64_t heartbeats; /* changes with each */
    uint64_t output;     /* bytes */
    uint64_t io;         /* bytes that it has read and written, with its descendants */
    uint64_t cpu_ms;     /* that it has used, likewise */
    uint64_t family;     /* changes when a descendant begins or ends */
};

struct ct_rhythm_rank {
    struct ct_rhythm_sample last;
    uint64_t signless_ms, silent_ms, stopped_ms;
};

/* Pauses that were worth remembering, and ended. */
struct ct_rhythm_pauses {
    uint32_t at_ms[CT_RHYTHM_PAUSES];
    uint32_t count, next;
};

struct ct_rhythm {
    uint32_t count;    /* workers here */
    uint64_t floor_ms; /* 0: nobody is watched */
    uint64_t checked_ms;
    bool judged;                            /* the round has its verdict */
    bool has_heartbeats;                    /* the program sends some */
    bool has_output;                        /* it has printed */
    uint64_t printing_ms;                   /* from its first output to its last, of this round */
    uint64_t since_printed_ms;              /* the last one */
    struct ct_rhythm_pauses silences, busy; /* of the job; outlive the round */
    struct ct_rhythm_rank *ranks;
};

struct ct_rhythm_verdict {
    enum ct_rhythm_kind kind;
    uint32_t worker;    /* STOPPED: which one; else the one that was silent for longest */
    uint64_t silent_ms; /* for so long no rank gave a sign; STOPPED: it was stopped */
    uint64_t patience_ms;
};

/* Begin a round of `count` workers. `ranks` is the caller's, zeroed for the first round. */
void ct_rhythm_begin(struct ct_rhythm *rhythm, struct ct_rhythm_rank *ranks, uint32_t count);

/* Check all workers. True: *ret_verdict is new. A round gets one, unless it is withdrawn. */
bool ct_rhythm_poll(struct ct_rhythm *rhythm, uint64_t now_ms,
                    const struct ct_rhythm_sample *samples, struct ct_rhythm_verdict *ret_verdict);

/* Return whether a worker has given neither sign nor work at the last poll, so that its descendants
 * are to be looked at, too. */
bool ct_rhythm_is_quiet(const struct ct_rhythm *rhythm, uint32_t worker);

/* Return whether the verdict still holds, at the last poll; its `silent_ms` is of now then. Else it
 * is withdrawn: somebody has given a sign since. */
bool ct_rhythm_stands(struct ct_rhythm *rhythm, struct ct_rhythm_verdict *verdict);

/* Return how long all may be silent. */
uint64_t ct_rhythm_silent_ms(const struct ct_rhythm *rhythm);

#endif
