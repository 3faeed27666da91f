/* The digest of ct_exec_digest, of tensors that lie on the host: what was collected is what ranks
 * hold. */
#ifndef CT_TEST_DIGEST_H
#define CT_TEST_DIGEST_H

#include "base/assert.h"
#include "base/number/hash.h"
#include "collectives/plan/plan.h"

static inline uint64_t digest_of_tensors(const struct ct_plan *plan, void *const *data)
{
    enum { CHUNK = 1 << 16 };
    uint64_t digest = 0;

    for (int i = 0; i < plan->tensor_count; i++)
        for (size_t at = 0; at < plan->tensors[i].bytes; at += CHUNK)
            digest = ct_hash64((const char *)data[i] + at,
                               CT_MIN(plan->tensors[i].bytes - at, (size_t)CHUNK), digest);
    return digest;
}

#endif
