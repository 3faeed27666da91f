/* How workers ended badly in the newest round in which any did: those of this node and, when the
 * job has ended, those of others. Kept for the closing words, for torchrun's table and for error
 * files. */
#ifndef CT_CTRUN_AGENT_FAILURE_LIST_H
#define CT_CTRUN_AGENT_FAILURE_LIST_H

#include "base/arena.h"
#include "launch/failure/failure_report.h"
#include "rendezvous/core/core.h"

enum { FAILURES_MAX = 64 }; /* more are not kept */

struct failures {
    uint64_t generation; /* 0: none */
    struct ct_arena arena;
    struct ct_worker_failure list[FAILURES_MAX];
    size_t count;
};

void failures_init(struct failures *failures);
void failures_deinit(struct failures *failures);

/* Keep one; the first of a newer round replaces all older ones. */
void failures_add(struct failures *failures, uint64_t generation,
                  const struct ct_worker_failure *failure);

/* Add the failures of other nodes, from the job's result. */
void failures_add_others(struct failures *failures, const struct ct_rdzv_result *result);

/* Return the failure of this rank, NULL if none. */
const struct ct_worker_failure *failures_of(const struct failures *failures, uint64_t generation,
                                            int32_t rank);

/* Write the failure as an error file to `path`, atomically; on failure no file is left. */
void failures_write(const struct ct_wire_failure *failure, const char *path);

#endif
