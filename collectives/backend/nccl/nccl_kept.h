/* Communicators that outlive their round, to be shrunk in the next one (CTRUN_NCCL_SHRINK=1).
 *
 *     round n     the group fails as its round ends: its first communicator is revoked, and kept
 *     round n+1   a group of the same name: all its members kept it, in the order of their ranks
 *                 there, and some of its ranks are missing -> ncclCommShrink; else, and where it
 *                 fails at any member: a fresh id, as without shrinking
 *     then        the kept one is aborted
 *
 * nccl_library.c lists the versions of NCCL that support it. It is refused where NCCL's own
 * connections have noticed the death before they were told to stop (reference collectives.md 3.2):
 * hence the fresh id as a fallback. */
#ifndef CT_COLL_NCCL_KEPT_H
#define CT_COLL_NCCL_KEPT_H

#include "backend/nccl/nccl_communicator.h"

enum { CT_NCCL_NAME_BYTES = 72 };

/* The origin of a communicator, the same at all its ranks but for `rank`. */
struct ct_nccl_origin {
    char name[CT_NCCL_NAME_BYTES]; /* of its group; "": a part's, which is never kept */
    uint64_t tag;                  /* its own */
    int32_t rank, size;
};

struct ct_nccl_kept {
    struct ct_nccl_kept *next;
    struct ct_nccl_origin origin;
    struct ct_nccl_communicator communicator; /* not listed: when a round ends this one stays */
};

/* Keep NCCL's communicator of `communicator`, with its registrations. Do nothing without memory. */
void ct_nccl_keep(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                  const struct ct_nccl_origin *origin);

/* Return what is kept of the group `name`; NULL if none. */
struct ct_nccl_kept *ct_nccl_kept_find(struct ct_nccl *nccl, const char *name);

/* Abort and free it. NULL is fine. */
void ct_nccl_kept_end(struct ct_job *job, struct ct_nccl *nccl, struct ct_nccl_kept *kept);

/* Return whether the communicator that these members kept can be shrunk to them, by the origin that
 * each reports: they are some of its ranks, in its order. Pure. */
bool ct_nccl_kept_fits(const struct ct_nccl_origin *origins, int count);

/* List its ranks that are not among the members, from `count` origins that fit. Return their
 * number; `ret_ranks` has room for all but the members. Pure. */
int ct_nccl_kept_missing(const struct ct_nccl_origin *origins, int count, int *ret_ranks);

#endif
