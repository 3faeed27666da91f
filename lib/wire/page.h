/* Pages of memory shared by two processes: one makes them and passes the descriptor on, the other
 * opens it. control_page.h and worker_record.h define the contents; each begins with struct
 * ct_page_head. */
#ifndef CT_WIRE_PAGE_H
#define CT_WIRE_PAGE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { CT_PAGE_BYTES = 4096 };

struct ct_page_head {
    uint32_t magic, version;
};

struct ct_page_kind {
    const char *name;           /* of the memfd, as /proc shows it */
    const char *article, *what; /* for sentences: "the", "control page" */
    struct ct_page_head head;
    size_t bytes; /* of all of it: a page, or more */
    int seals;    /* put on beside those against shrinking, growing and other seals */
};

/* Make one: zero but for its head, mapped for reading and writing, then sealed as far as the kernel
 * can, since truncating it would end its reader by SIGBUS. 0, or a negative code with its
 * sentence. */
int ct_page_new(const struct ct_page_kind *kind, void **ret_page, int *ret_fd,
                struct ct_error *err);

/* Map the one behind `fd` with `protection` (PROT_...). CT_EPROTOCOL when it is not of this kind.
 * The descriptor stays the caller's. */
int ct_page_open(const struct ct_page_kind *kind, int fd, int protection, void **ret_page,
                 struct ct_error *err);

/* Unmap a page of this kind; NULL is ignored. */
void ct_page_unmap(const struct ct_page_kind *kind, const void *page);

#endif
