/* Files that a thread writes: order, failures, and disks that do not answer, for which a FIFO
 * stands whose reader does not read, or that has none. */
#include "output/file_writer.h"

#include "base/clock.h"
#include "base/fs.h"
#include "tree.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ct_file_writer *writer;
static struct tree tree;
static int wakes; /* an eventfd */

static void on_wake(void *context)
{
    (void)context;
    cr_assert_eq(eventfd_write(wakes, 1), 0);
}

/* Until the next wake, or fail. */
static void await_wake(void)
{
    eventfd_t count;

    cr_assert_eq(poll(&(struct pollfd){.fd = wakes, .events = POLLIN}, 1, 10000), 1, "no wake");
    cr_assert_eq(eventfd_read(wakes, &count), 0);
}

static void await_idle(void)
{
    while (!ct_file_writer_await_idle(writer))
        await_wake();
}

static void set_up(void)
{
    tree_init(&tree);
    wakes = eventfd(0, EFD_CLOEXEC);
    writer = ct_file_writer_new(on_wake, NULL);
    cr_assert(wakes >= 0 && writer != NULL);
}

static void tear_down(void)
{
    ct_file_writer_free(writer, 10000);
    cr_assert_eq(close(wakes), 0);
    tree_deinit(&tree);
}

TestSuite(file_writer, .timeout = 60, .init = set_up, .fini = tear_down);

static struct ct_written *opened(const char *path, uint32_t owner)
{
    struct ct_written *file = NULL;
    struct ct_error err = {0};

    cr_assert_eq(ct_file_writer_open(writer, path, owner, &file, &err), 0, "%s", err.text);
    return file;
}

/* A FIFO, and its reader if it is to have one. */
static int fifo(const char *name, bool has_reader)
{
    const char *path = tree_path(&tree, name);

    cr_assert_eq(mkfifo(path, 0600), 0);
    return has_reader ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
}

static void flood(struct ct_written *file, size_t size)
{
    char *bytes = calloc(1, 16384);

    for (size_t i = 0; i < size; i += 16384)
        ct_written_append(file, bytes, 16384);
    free(bytes);
}

Test(file_writer, bytes_of_several_streams_keep_their_order_in_one_file)
{
    const char *path = tree_path(&tree, "/a");
    struct ct_written *one = opened(path, 0), *two = opened(path, 1);
    struct ct_buf expected, found;
    char line[32];

    ct_buf_init(&expected, 0);
    ct_buf_init(&found, 0);
    for (int i = 0; i < 10000; i++) {
        int size = snprintf(line, sizeof line, "line %d\n", i);
        ct_written_append(i % 7 < 3 ? one : two, line, (size_t)size);
        (void)ct_buf_append(&expected, line, (size_t)size);
    }
    ct_written_close(one);
    ct_written_close(two);
    await_idle();
    cr_assert_eq(ct_fs_read(path, 1 << 20, &found, NULL), 0);
    cr_assert(found.size == expected.size && memcmp(found.data, expected.data, found.size) == 0);
    ct_buf_deinit(&expected);
    ct_buf_deinit(&found);
}

Test(file_writer, a_file_that_cannot_be_opened_is_an_error_at_once)
{
    struct ct_writer_report report;
    struct ct_written *file = NULL;
    struct ct_error err = {0};

    cr_assert_eq(ct_file_writer_open(writer, tree_path(&tree, "/none/a"), 0, &file, &err),
                 CT_ECANTCREAT);
    cr_assert_not_null(strstr(err.text, "/none/a cannot be opened: No such file"), "%s", err.text);
    cr_assert_null(file);
    cr_assert_eq(ct_file_writer_make_dirs(writer, tree_path(&tree, "/none"), &err), 0);
    file = opened(tree_path(&tree, "/none/a"), 0);
    ct_written_close(file);
    await_idle();
    cr_assert_not(ct_file_writer_report(writer, &report), "who opened it has been told");
}

Test(file_writer, a_file_that_fails_is_reported_once_with_its_owner_and_the_others_go_on)
{
    struct ct_written *full = opened("/dev/full", 7), *good = opened(tree_path(&tree, "/a"), 8);
    struct ct_writer_report report;

    ct_written_append(full, "x", 1);
    await_wake();
    cr_assert(ct_written_lost(full) && !ct_written_lost(good));
    ct_written_append(full, "y", 1);
    ct_written_append(good, "z", 1);
    ct_written_close(full);
    ct_written_close(good);
    await_idle();
    cr_assert(ct_file_writer_report(writer, &report));
    cr_assert_eq(report.owner, 7u);
    cr_assert_str_eq(report.path, "/dev/full");
    cr_assert_str_eq(report.why, "No space left on device");
    cr_assert_not(ct_file_writer_report(writer, &report));
}

Test(file_writer, a_full_queue_is_told_and_so_is_the_room_that_comes)
{
    int reader = fifo("/fifo", true);
    struct ct_written *file = opened(tree_path(&tree, "/fifo"), 0);
    static char bytes[1 << 16];
    size_t got = 0;

    cr_assert_not(ct_file_writer_full(writer));
    flood(file, CT_WRITER_FULL + (1 << 20));
    cr_assert(ct_file_writer_full(writer));
    ct_written_close(file);
    cr_assert_eq(fcntl(reader, F_SETFL, 0), 0);
    for (ssize_t size; (size = read(reader, bytes, sizeof bytes)) > 0;)
        got += (size_t)size;
    cr_assert_eq(got, (size_t)CT_WRITER_FULL + (1 << 20));
    await_wake();
    cr_assert_not(ct_file_writer_full(writer));
    cr_assert_eq(close(reader), 0);
}

Test(file_writer, more_than_the_most_is_not_kept_and_the_file_is_given_up)
{
    int reader = fifo("/fifo", true);
    struct ct_written *file = opened(tree_path(&tree, "/fifo"), 3);
    struct ct_writer_report report;
    struct ct_writer_view view;

    flood(file, 2 * CT_WRITER_MOST);
    ct_file_writer_view(writer, &view);
    cr_assert_leq(view.queued, (size_t)CT_WRITER_MOST + (1 << 16));
    cr_assert(ct_file_writer_report(writer, &report));
    cr_assert_eq(report.owner, 3u);
    cr_assert_not_null(strstr(report.why, "does not answer"), "%s", report.why);
    ct_written_close(file);
    cr_assert_eq(close(reader), 0); /* which ends the write */
}

Test(file_writer, nobody_waits_long_for_a_disk_that_opens_nothing)
{
    uint64_t since_ms = ct_clock_mono_ms(&ct_clock_system);
    char name[32], first[512];

    for (int i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof name, "/fifo%d", i);
        (void)fifo(name, false);
        struct ct_written *file = opened(tree_path(&tree, name), 0);
        ct_written_append(file, "x", 1);
        ct_written_close(file);
    }
    cr_assert_lt(ct_clock_mono_ms(&ct_clock_system) - since_ms, 8ull * CT_WRITER_OPEN_MS,
                 "the first one's time, not that of all");
    cr_assert_eq(ct_file_writer_abandon(writer, first), 20u);
    cr_assert_str_eq(first, tree_path(&tree, "/fifo0"));
    cr_assert_eq(ct_file_writer_abandon(writer, first), 0u);
    ct_file_writer_free(writer, 0); /* while the thread is in open(2) */
    writer = NULL;
    /* Let it go, for who looks for leaks. */
    int reader = open(tree_path(&tree, "/fifo0"), O_RDONLY | O_CLOEXEC);
    char byte;
    cr_assert_eq(read(reader, &byte, 1), 0, "nothing of what was abandoned is written");
    cr_assert_eq(close(reader), 0);
}
