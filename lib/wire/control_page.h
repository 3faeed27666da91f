/* The control page: an agent's signals to busy workers.
 *
 * One page of a memfd, written by the agent, mapped read-only by every worker of its node
 * (descriptor CTRUN_PAGE_FD). Workers poll it in each wait loop:
 *
 *     agent                                   worker in a collective
 *     ct_control_page_revoke(page, 7)         while (!done)
 *       revoked_generation = 7                    if (ct_control_page_revoked(page, mine))
 *                                                     return CT_EREVOKED;
 *
 * Both generations only grow. A worker that finds no page (page NULL) is never revoked. */
#ifndef CT_WIRE_CONTROL_PAGE_H
#define CT_WIRE_CONTROL_PAGE_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_control_page {
    uint32_t magic;
    uint32_t version;
    _Atomic uint64_t revoked_generation;  /* every operation of a generation <= this is over */
    _Atomic uint64_t boundary_generation; /* this membership change waits for the step boundary */
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "the page is shared between processes");

/* ---- agent ---- */
/* Create a new page, mapped for writing; `*ret_fd` is its memfd (close-on-exec), of which others
 * can map only a read-only view. 0, or a negative errno. */
int ct_control_page_new(struct ct_control_page **ret_page, int *ret_fd, struct ct_error *err);

/* Raise the generation (a lower or equal one changes nothing). */
void ct_control_page_revoke(struct ct_control_page *page, uint64_t generation);
void ct_control_page_boundary(struct ct_control_page *page, uint64_t generation);

/* ---- worker ---- */
/* Map the page behind `fd` (which may be closed then). 0; CT_EPROTOCOL when it is no control page;
 * a negative errno. */
int ct_control_page_open(int fd, const struct ct_control_page **ret_page, struct ct_error *err);

/* Is everything of `generation` over? One atomic load; false for NULL. */
static inline bool ct_control_page_revoked(const struct ct_control_page *page, uint64_t generation)
{
    return page != NULL &&
           atomic_load_explicit(&page->revoked_generation, memory_order_acquire) >= generation;
}

/* Does a newer round than `generation` wait for the step boundary? One relaxed load. */
static inline bool ct_control_page_boundary_due(const struct ct_control_page *page,
                                                uint64_t generation)
{
    return page != NULL &&
           atomic_load_explicit(&page->boundary_generation, memory_order_relaxed) > generation;
}

/* ---- both ---- */
void ct_control_page_unmap(const struct ct_control_page *page);

#endif
