/* The control page; see control_page.h. */
#include "wire/control_page.h"

#include "wire/page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(struct ct_control_page) <= CT_PAGE_BYTES, "one page");

/* Others can only look. A kernel without these seals leaves it to good manners. */
static const struct ct_page_kind control_page = {.name = "ctrun-control",
                                                 .article = "the",
                                                 .what = "control page",
                                                 .head = {.magic = 0x43545047, .version = 1},
                                                 .bytes = CT_PAGE_BYTES,
                                                 .seals = F_SEAL_FUTURE_WRITE};

int ct_control_page_new(struct ct_control_page **ret_page, int *ret_fd, struct ct_error *err)
{
    void *page;
    int code = ct_page_new(&control_page, &page, ret_fd, err);

    if (code == 0)
        *ret_page = page;
    return code;
}

int ct_control_page_open(int fd, const struct ct_control_page **ret_page, struct ct_error *err)
{
    void *page;
    int code = ct_page_open(&control_page, fd, PROT_READ, &page, err);

    if (code == 0)
        *ret_page = page;
    return code;
}

void ct_control_page_unmap(const struct ct_control_page *page)
{
    ct_page_unmap(&control_page, page);
}

/* Raise one of the generations. The agent is the one writer. */
static void raise_to(_Atomic uint64_t *generation, uint64_t value)
{
    if (atomic_load_explicit(generation, memory_order_relaxed) >= value)
        return;
    atomic_store_explicit(generation, value, memory_order_release);
}

void ct_control_page_revoke(struct ct_control_page *page, uint64_t generation)
{
    raise_to(&page->revoked_generation, generation);
}

void ct_control_page_boundary(struct ct_control_page *page, uint64_t generation)
{
    raise_to(&page->boundary_generation, generation);
}
