/* The control page; see control_page.h. */
#include "wire/control_page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_MAGIC = 0x43545047, PAGE_VERSION = 1, PAGE_BYTES = 4096 };

static int refuse(struct ct_error *err, const char *what)
{
    int code = -errno;

    return ct_error_set(err, code, "cannot %s the control page: %s", what, strerror(-code));
}

int ct_control_page_new(struct ct_control_page **ret_page, int *ret_fd, struct ct_error *err)
{
    int fd = memfd_create("ctrun-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return refuse(err, "create");
    struct ct_control_page *page = MAP_FAILED;
    if (ftruncate(fd, PAGE_BYTES) == 0)
        page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        int code = refuse(err, "map");
        close(fd);
        return code;
    }
    page->magic = PAGE_MAGIC;
    page->version = PAGE_VERSION;
    /* From here on others can only look. A kernel without these seals leaves it to good manners. */
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    *ret_page = page;
    *ret_fd = fd;
    return 0;
}

int ct_control_page_open(int fd, const struct ct_control_page **ret_page, struct ct_error *err)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0)
        return refuse(err, "look at");
    if (stat.st_size != PAGE_BYTES)
        return ct_error_set(err, CT_EPROTOCOL, "descriptor %d is no control page of ctrun", fd);
    struct ct_control_page *page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return refuse(err, "map");
    if (page->magic != PAGE_MAGIC || page->version != PAGE_VERSION) {
        munmap(page, PAGE_BYTES);
        return ct_error_set(err, CT_EPROTOCOL, "descriptor %d is no control page of this ctrun",
                            fd);
    }
    *ret_page = page;
    return 0;
}

void ct_control_page_unmap(const struct ct_control_page *page)
{
    if (page != NULL)
        munmap((void *)(uintptr_t)page, PAGE_BYTES);
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
