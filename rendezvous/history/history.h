/* The history of a job, as its daemon saw it: what happened, how the training went, and what its
 * time went to. Kept in memory alone, within fixed bounds: a daemon that is started again begins
 * anew.
 *
 *     announcements of the core --> events    the last CT_HISTORY_EVENTS, numbered over all jobs
 *     progress of rank 0 ---------> curve     at most CT_HISTORY_POINTS, evenly thinned out
 *     phases, progress -----------> goodput.h
 *
 * Time is the caller's monotonic clock; those who print get its distance to the wall clock. No
 * allocation after ct_history_new. Pure. */
#ifndef CT_RENDEZVOUS_HISTORY_H
#define CT_RENDEZVOUS_HISTORY_H

#include "base/bytes.h"
#include "rendezvous/core/core.h"
#include "rendezvous/history/goodput.h"

enum {
    CT_HISTORY_EVENTS = 128,
    CT_HISTORY_TEXT = 256, /* of an event, with terminator */
    CT_HISTORY_POINTS = 256,
    CT_HISTORY_NO_STEP_MS = 60 * 1000, /* without a step for so long, and ... */
    CT_HISTORY_BUCKETS = 12,           /* of step times */
    CT_HISTORY_NO_STEP_TIMES = 20,     /* ... so many times the usual pause: NO_STEP */
};

struct ct_history_event {
    uint64_t number; /* from 1 on, over all jobs of the daemon */
    uint64_t ms;
    uint64_t generation;
    enum ct_announcement kind;
    char text[CT_HISTORY_TEXT];
};

struct ct_history_point {
    uint64_t ms, step;
    double loss, learning_rate, samples_per_s;
};

struct ct_history {
    struct ct_history_event *events; /* a ring */
    uint64_t event_count;            /* that were ever noted */
    struct ct_history_point *points;
    size_t point_count;
    uint64_t stride, skipped; /* one of so many progress reports is a point */
    struct ct_goodput goodput;
    uint64_t begun_ms;
    uint64_t counts[CT_ANNOUNCEMENTS]; /* of events of each kind */
    uint64_t progress_ms;              /* when `times` were told, or the round began */
    double pause_ms;                   /* between steps, as a rule */
    bool stalled;                      /* NO_STEP was noted, no step has come since */
    bool has_loss; /* one was told that is a number: NaN is no news of a program that tells none */
    bool not_finite;                         /* the loss, as last told */
    struct ct_goodput_progress times;        /* as last told */
    uint64_t step_times[CT_HISTORY_BUCKETS]; /* steps that took up to ct_history_bounds */
    double step_seconds;                     /* of all of them */
    uint64_t published_step;                 /* of the last checkpoint that came on record */
    uint64_t published_bytes;                /* of it; 0: not told */
    uint64_t all_bytes;                      /* of all of them */
};

/* Upper bounds in seconds; the last is infinity. */
extern const double ct_history_bounds[CT_HISTORY_BUCKETS];

/* Create the history of a job that begins now. NULL without memory. */
struct ct_history *ct_history_new(uint64_t now_ms);
void ct_history_free(struct ct_history *history);

/* Note an event; `*number`, the daemon's, is raised. A checkpoint that follows another takes its
 * place: there are many, and the newest is what counts. */
void ct_history_note(struct ct_history *history, uint64_t now_ms, uint64_t *number,
                     const struct ct_history_event *event);

/* Its workers report their progress, unlike a stranger's script. */
void ct_history_reports(struct ct_history *history);

/* The job's phase is this now; `code`, of one that is over: 0, it ended well. */
void ct_history_phase(struct ct_history *history, uint64_t now_ms, enum ct_rdzv_phase phase,
                      int code);

/* Rank 0 has told its progress: an event to note, if `ret_event` is filled (kind and text); its
 * `number` is 0 when there is none. */
void ct_history_progress(struct ct_history *history, uint64_t now_ms,
                         const struct ct_msg_progress *progress,
                         struct ct_history_event *ret_event);

/* Time passes: as ct_history_progress, of a job that runs. */
void ct_history_tick(struct ct_history *history, uint64_t now_ms,
                     struct ct_history_event *ret_event);

/* The checkpoint of a step, of so many bytes, has come on record. What is told again counts once.
 */
void ct_history_published(struct ct_history *history, uint64_t step, uint64_t bytes);

/* When ct_history_tick has something to do; UINT64_MAX: never. */
uint64_t ct_history_deadline(const struct ct_history *history);

/* The oldest event that is still here with a number above `after`; NULL: there is none. */
const struct ct_history_event *ct_history_next(const struct ct_history *history, uint64_t after);

/* Return the kind of that name; -1: there is none. */
int ct_announcement_find(const char *name);

/* Read names of kinds, as a set of bits: all for none. `key` is for the sentence. CT_EUSAGE names a
 * wrong one, and the nearest. */
int ct_announcements_read(const char *const *names, size_t count, const char *key,
                          uint64_t *ret_set, struct ct_error *err);

/* "node_lost", and the level. */
const char *ct_announcement_name(enum ct_announcement kind);
const char *ct_announcement_level(enum ct_announcement kind);

#endif
