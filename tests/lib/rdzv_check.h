/* The invariants of a job's core in one state, checked after every step. Invariants between steps
 * (generations only grow, CLOSED is final, survivors keep their order) are checked by callers that
 * keep a history. */
#ifndef TESTS_LIB_RDZV_CHECK_H
#define TESTS_LIB_RDZV_CHECK_H

#include "rendezvous/core/core.h"
#include "rendezvous/service/service.h"

/* 0, or CT_EBUG with the sentence. O(members), and O(members^2) up to 256 of them. */
int rdzv_check(const struct ct_rdzv *job, struct ct_error *err);

/* Return the core of the service's job `index` (in no particular order), NULL beyond the last. */
const struct ct_rdzv *rdzv_job(const struct ct_service *service, size_t index);

#endif
