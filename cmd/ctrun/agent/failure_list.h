/* How workers ended badly in the newest round in which any did: those of this node and, when the
 * job has ended, those of others. Kept for the closing words, for torchrun's table and for error
 * files. */
#ifndef CT_CTRUN_AGENT_FAILURE_LIST_H
#define CT_CTRUN_AGENT_FAILURE_LIST_H

#include "base/arena.h"
#include "launch/failure_report.h"
#include "launch/workers_uv.h"
#include "rendezvous/core/core.h"

enum { FAILURES_MAX = 64 }; /* more are not kept */

struct failures {
    uint64_t generation; /* 0: none */
    struct ct_arena arena;
    struct ct_failure list[FAILURES_MAX];
    size_t count;
};

void failures_init(struct failures *failures);
void failures_deinit(struct failures *failures);

/* The most telling text about it: where it happened, what it was, or the last lines. */
const char *failures_text(const struct ct_worker_failure *failure);

/* A failure whose text ends with a note; the rest is another's. */
struct failures_noted {
    struct ct_worker_failure failure;
    struct ct_error_file file; /* when the failure has one */
    struct ct_buf text;
};

/* `note`: lines with an end, "" for none. */
void failures_note(struct failures_noted *noted, const struct ct_worker_failure *failure,
                   const char *note);
void failures_noted_deinit(struct failures_noted *noted);

/* Keep one; the first of a newer round replaces all older ones. */
void failures_add(struct failures *failures, uint64_t generation, const char *host,
                  const struct ct_worker_failure *failure);

/* Those of other nodes, as the rendezvous tells them when the job has ended. */
void failures_add_others(struct failures *failures, const struct ct_rdzv_result *result);

/* The one of this rank, NULL for none. */
const struct ct_failure *failures_of(const struct failures *failures, uint64_t generation,
                                     int32_t rank);

/* Write what an error file says of this failure to `path`, in one piece or not at all. */
void failures_write(const struct ct_failure *failure, const char *path);

#endif
