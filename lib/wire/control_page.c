/* The control page; see control_page.h. */
#include "wire/control_page.h"

#include "wire/page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
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

/* Raise one of the generations; the bell tells only of a change. The agent is the one writer. */
static void raise_to(struct ct_control_page *page, _Atomic uint64_t *generation, uint64_t value)
{
    if (atomic_load_explicit(generation, memory_order_relaxed) >= value)
        return;
    atomic_store_explicit(generation, value, memory_order_release);
    atomic_fetch_add_explicit(&page->bell, 1, memory_order_release);
    syscall(SYS_futex, &page->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ct_control_page_revoke(struct ct_control_page *page, uint64_t generation)
{
    raise_to(page, &page->revoked_generation, generation);
}

void ct_control_page_boundary(struct ct_control_page *page, uint64_t generation)
{
    raise_to(page, &page->boundary_generation, generation);
}

void ct_control_page_wait(const struct ct_control_page *page, uint32_t seen, int timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, (timeout_ms % 1000) * 1000000L};

    syscall(SYS_futex, &page->bell, FUTEX_WAIT, seen, &timeout, NULL, 0);
}
