/* See page.h. */
#include "wire/page.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

static int refuse_other(const struct ct_page_kind *kind, int fd, struct ct_error *err)
{
    return ct_error_set(err, CT_EPROTOCOL, "descriptor %d is no %s of ctrun", fd, kind->what);
}

/* A page of this kind, but of another release: its layout is another one. */
static int refuse_version(const struct ct_page_kind *kind, int fd, uint32_t version,
                          struct ct_error *err)
{
    return ct_error_set(err, CT_EPROTOCOL,
                        "the %s in descriptor %d has version %" PRIu32 ", this program's libctrun "
                        "knows version %" PRIu32
                        ": ctrun is of %s release; start it with the ctrun "
                        "of its own release, or link it with that of this ctrun",
                        kind->what, fd, version, kind->head.version,
                        version > kind->head.version ? "a newer" : "an older");
}

/* Judge what lies behind the descriptor before it is mapped: the head first, as the size is another
 * in another version. */
static int judge(const struct ct_page_kind *kind, int fd, struct ct_error *err)
{
    struct ct_page_head head;
    struct stat stat;

    if (fstat(fd, &stat) != 0)
        return refuse(kind, "look at", err);
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || head.magic != kind->head.magic)
        return refuse_other(kind, fd, err);
    if (head.version != kind->head.version)
        return refuse_version(kind, fd, head.version, err);
    return stat.st_size == (off_t)kind->bytes ? 0 : refuse_other(kind, fd, err);
}

int ct_page_open(const struct ct_page_kind *kind, int fd, int protection, void **ret_page,
                 struct ct_error *err)
{
    int code = judge(kind, fd, err);

    if (code != 0)
        return code;
    void *page = mmap(NULL, kind->bytes, protection, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return refuse(kind, "map", err);
    *ret_page = page;
    return 0;
}

void ct_page_unmap(const struct ct_page_kind *kind, const void *page)
{
    if (page != NULL)
        (void)munmap((void *)(uintptr_t)page, kind->bytes);
}
