/* Files: whole reads within a limit, replacement that is all or nothing. */
#include "base/fs.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[32];

static void make_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/ct-fs-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void drop_folder(void)
{
    (void)ct_fs_remove_tree(folder);
}

TestSuite(fs, .init = make_folder, .fini = drop_folder, .timeout = 30);

static const char *inside(const char *name)
{
    static char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

Test(fs, what_was_replaced_reads_back_whole)
{
    struct ct_error err = {0};
    struct ct_buf buf;
    static char big[200000];

    memset(big, 'z', sizeof big);
    ct_buf_init(&buf, 0);
    cr_assert_eq(ct_fs_replace(inside("a"), "one", 3, &err), 0);
    cr_assert_eq(ct_fs_replace(inside("a"), big, sizeof big, &err), 0);
    cr_assert_eq(ct_fs_read(inside("a"), sizeof big, &buf, &err), 0, "%s", err.text);
    cr_assert_eq(buf.size, sizeof big);
    ct_buf_deinit(&buf);
}

Test(fs, a_file_over_the_limit_is_refused)
{
    struct ct_error err = {0};
    struct ct_buf buf;

    ct_buf_init(&buf, 0);
    cr_assert_eq(ct_fs_replace(inside("a"), "12345", 5, &err), 0);
    cr_assert_eq(ct_fs_read(inside("a"), 4, &buf, &err), CT_ELIMIT);
    cr_assert_not_null(strstr(err.text, "limit of 4 bytes"));
    ct_buf_deinit(&buf);
}

Test(fs, missing_files_and_directories_are_no_input)
{
    struct ct_error err = {0};
    struct ct_buf buf;

    ct_buf_init(&buf, 0);
    cr_assert_eq(ct_fs_read(inside("none"), 10, &buf, &err), CT_ENOINPUT);
    cr_assert_not_null(strstr(err.text, "No such file"));
    cr_assert_eq(ct_fs_read(folder, 10, &buf, &err), CT_ENOINPUT);
    cr_assert_not_null(strstr(err.text, "directory"));
    ct_buf_deinit(&buf);
}

Test(fs, a_failed_replacement_leaves_the_old_file)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_fs_replace(inside("no/such/place"), "x", 1, &err), CT_ECANTCREAT);
    cr_assert_eq(ct_fs_make_dirs(inside("d/x"), &err), 0);
    cr_assert_eq(ct_fs_replace(inside("d"), "x", 1, &err), CT_EIO, "a directory is in the way");
    cr_assert_eq(access(inside("d/x"), F_OK), 0);
}

Test(fs, full_disk_is_an_io_error_without_leftovers)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

    cr_assert_geq(fd, 0);
    cr_assert_lt(ct_fs_write_all(fd, "x", 1), 0);
    (void)close(fd);
}

Test(fs, directories_are_made_with_their_parents_and_removed_with_their_content)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_fs_make_dirs(inside("a/b/c"), &err), 0);
    cr_assert_eq(ct_fs_make_dirs(inside("a/b/c"), &err), 0, "twice is fine");
    cr_assert_eq(ct_fs_replace(inside("a/b/file"), "x", 1, &err), 0);
    cr_assert_eq(ct_fs_make_dirs(inside("a/b/file/d"), &err), CT_ECANTCREAT);
    cr_assert_eq(ct_fs_make_dirs("", &err), CT_ECANTCREAT);
    cr_assert_eq(ct_fs_remove_tree(inside("a")), 0);
    cr_assert_neq(access(inside("a"), F_OK), 0);
    cr_assert_lt(ct_fs_remove_tree(inside("a")), 0);
}

static unsigned mode_of(const char *path)
{
    struct stat status;

    cr_assert_eq(stat(path, &status), 0);
    return status.st_mode & 07777;
}

Test(fs, a_private_file_stays_private_and_others_follow_the_umask)
{
    struct ct_error err = {0};

    (void)umask(0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(ct_fs_replace_private(inside("private"), "x", 1, &err), 0, "%s", err.text);
        cr_assert_eq(mode_of(inside("private")), 0600, "%o", mode_of(inside("private")));
    }
    cr_assert_eq(ct_fs_replace(inside("open"), "x", 1, &err), 0);
    cr_assert_eq(mode_of(inside("open")), 0666);
    (void)umask(027);
    cr_assert_eq(ct_fs_replace(inside("group"), "x", 1, &err), 0);
    cr_assert_eq(mode_of(inside("group")), 0640);
    (void)umask(077);
    cr_assert_eq(ct_fs_replace(inside("open"), "x", 1, &err), 0);
    cr_assert_eq(mode_of(inside("open")), 0600, "the umask of now");
}
