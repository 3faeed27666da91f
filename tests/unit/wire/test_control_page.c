/* The control page: the agent writes, workers see it at once and cannot write. */
#include "wire/control_page.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct ct_control_page *page; /* the agent's */
static const struct ct_control_page *view;
static int page_fd;
static struct ct_error err;

static void set_up(void)
{
    err = (struct ct_error){0};
    cr_assert_eq(ct_control_page_new(&page, &page_fd, &err), 0, "%s", err.text);
    cr_assert_eq(ct_control_page_open(page_fd, &view, &err), 0, "%s", err.text);
}

static void tear_down(void)
{
    ct_control_page_unmap(page);
    ct_control_page_unmap(view);
    close(page_fd);
}

TestSuite(control_page, .init = set_up, .fini = tear_down, .timeout = 30);

Test(control_page, a_revocation_covers_its_generation_and_older_ones)
{
    cr_assert_not(ct_control_page_revoked(view, 1));
    ct_control_page_revoke(page, 7);
    cr_assert(ct_control_page_revoked(view, 6));
    cr_assert(ct_control_page_revoked(view, 7));
    cr_assert_not(ct_control_page_revoked(view, 8));
    cr_assert_not(ct_control_page_revoked(NULL, 1), "no page, never revoked");
}

Test(control_page, generations_only_grow)
{
    ct_control_page_revoke(page, 7);
    ct_control_page_revoke(page, 3);
    cr_assert(ct_control_page_revoked(view, 7));
}

Test(control_page, a_boundary_revokes_nothing)
{
    ct_control_page_boundary(page, 9);
    cr_assert_eq(atomic_load(&view->boundary_generation), 9);
    cr_assert_not(ct_control_page_revoked(view, 1));
}

Test(control_page, a_worker_cannot_make_it_writable)
{
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);

    cr_assert_eq(map, MAP_FAILED);
    cr_assert_lt(write(page_fd, "x", 1), 0);
    cr_assert_neq(ftruncate(page_fd, 0), 0);
}

Test(control_page, another_file_is_no_page)
{
    int fd = memfd_create("other", MFD_CLOEXEC);
    const struct ct_control_page *other = NULL;

    cr_assert_eq(ct_control_page_open(fd, &other, &err), CT_EPROTOCOL);
    cr_assert_eq(ftruncate(fd, 4096), 0);
    cr_assert_eq(ct_control_page_open(fd, &other, &err), CT_EPROTOCOL);
    cr_assert_null(other);
    close(fd);
}

/* A program that was linked with another release's library: its user is told what to do. */
Test(control_page, that_of_another_release_is_told_from_other_files)
{
    static const struct {
        uint32_t version;
        off_t bytes;
        const char *words;
    } rows[] = {{2, 4096, "has version 2, this program's libctrun knows version 1"},
                {2, 8192, "ctrun is of a newer release"},
                {0, 4096, "ctrun is of an older release"},
                {1, 8192, "is no control page of ctrun"}};
    const struct ct_control_page *other = NULL;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint32_t head[] = {0x43545047, rows[i].version};
        int fd = memfd_create("other", MFD_CLOEXEC);

        cr_assert_eq(ftruncate(fd, rows[i].bytes), 0);
        cr_assert_eq(pwrite(fd, head, sizeof head, 0), (ssize_t)sizeof head);
        cr_assert_eq(ct_control_page_open(fd, &other, &err), CT_EPROTOCOL);
        cr_assert_not_null(strstr(err.text, rows[i].words), "%s", err.text);
        cr_assert_null(other);
        close(fd);
    }
}
