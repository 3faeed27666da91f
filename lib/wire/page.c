/* See page.h. */
#include "wire/page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const struct ct_page_kind *kind, const char *verb, struct ct_error *err)
{
    int code = -errno;

    return ct_error_set(err, code, "cannot %s %s %s: %s%s", verb, kind->article, kind->what,
                        strerror(-code), code == -EMFILE ? "; raise `ulimit -n`" : "");
}

int ct_page_new(const struct ct_page_kind *kind, void **ret_page, int *ret_fd, struct ct_error *err)
{
    int fd = memfd_create(kind->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return refuse(kind, "create", err);
    void *page = MAP_FAILED;
    if (ftruncate(fd, (off_t)kind->bytes) == 0)
        page = mmap(NULL, kind->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        int code = refuse(kind, "map", err);
        (void)close(fd);
        return code;
    }
    memcpy(page, &kind->head, sizeof kind->head);
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | kind->seals);
    *ret_page = page;
    *ret_fd = fd;
    return 0;
}

int ct_page_open(const struct ct_page_kind *kind, int fd, int protection, void **ret_page,
                 struct ct_error *err)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0)
        return refuse(kind, "look at", err);
    if (stat.st_size != (off_t)kind->bytes)
        return ct_error_set(err, CT_EPROTOCOL, "descriptor %d is no %s of ctrun", fd, kind->what);
    void *page = mmap(NULL, kind->bytes, protection, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return refuse(kind, "map", err);
    if (memcmp(page, &kind->head, sizeof kind->head) != 0) {
        ct_page_unmap(kind, page);
        return ct_error_set(err, CT_EPROTOCOL, "descriptor %d is no %s of this ctrun", fd,
                            kind->what);
    }
    *ret_page = page;
    return 0;
}

void ct_page_unmap(const struct ct_page_kind *kind, const void *page)
{
    if (page != NULL)
        (void)munmap((void *)(uintptr_t)page, kind->bytes);
}
