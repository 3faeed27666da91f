/* Key files: made closed to others, and taken only when they are. */
#include "keys/key.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64], path[80];
static struct ct_error err;
static struct ct_key key;

static void set_up(void)
{
    snprintf(directory, sizeof(directory), "/tmp/ct-key-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/k", directory);
    err = (struct ct_error){0};
    cr_assert_eq(ct_net_key_new(path, &err), 0, "%s", err.text);
}

static void tear_down(void)
{
    ct_fs_remove_tree(directory);
}

TestSuite(key, .init = set_up, .fini = tear_down, .timeout = 10);

Test(key, a_new_key_is_closed_to_others_and_reads_back)
{
    static const struct ct_key zero;
    struct stat info;

    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(info.st_mode & 07777, 0600);
    cr_assert_eq(info.st_size, CT_KEY_BYTES);
    cr_assert_eq(ct_net_key_load(path, &key, &err), 0, "%s", err.text);
    cr_assert_neq(memcmp(&key, &zero, sizeof(key)), 0);
}

Test(key, two_keys_differ)
{
    struct ct_key other;
    char second[96];

    snprintf(second, sizeof(second), "%s2", path);
    cr_assert_eq(ct_net_key_new(second, &err), 0, "%s", err.text);
    cr_assert_eq(ct_net_key_load(path, &key, &err), 0);
    cr_assert_eq(ct_net_key_load(second, &other, &err), 0);
    cr_assert_neq(memcmp(&key, &other, sizeof(key)), 0);
}

Test(key, an_existing_file_is_never_overwritten)
{
    cr_assert_eq(ct_net_key_new(path, &err), CT_ECANTCREAT);
    cr_assert(strstr(err.text, "exists already") != NULL, "%s", err.text);
}

Test(key, a_file_open_to_group_or_others_is_refused_with_the_remedy)
{
    if (geteuid() == 0) { /* root's own may be read by a group; this is a user's */
        cr_assert_eq(chown(directory, 65534, 65534), 0);
        cr_assert_eq(chown(path, 65534, 65534), 0);
        cr_assert_eq(seteuid(65534), 0);
    }
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert_eq(ct_net_key_load(path, &key, &err), CT_EAUTH);
    cr_assert(strstr(err.text, "(mode 0640): chmod 600") != NULL, "%s", err.text);
    cr_assert_eq(chmod(path, 0604), 0);
    cr_assert_eq(ct_net_key_load(path, &key, &err), CT_EAUTH);
    if (getuid() == 0)
        cr_assert_eq(seteuid(0), 0); /* who looks for leaks at the end needs it */
}

Test(key, roots_file_may_be_read_by_its_group_and_by_nobody_else)
{
    if (geteuid() != 0)
        cr_skip_test("this test needs root");
    cr_assert_eq(chmod(directory, 0711), 0);
    cr_assert_eq(chown(path, 0, 65534), 0);
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert_eq(ct_net_key_load(path, &key, &err), 0, "%s", err.text);
    cr_assert_eq(setegid(65534), 0);
    cr_assert_eq(seteuid(65534), 0);
    cr_assert_eq(ct_net_key_load(path, &key, &err), 0, "a service in the group: %s", err.text);
    cr_assert_eq(seteuid(0), 0);
    for (mode_t mode = 0620; mode != 0; mode = mode == 0620 ? 0644 : 0) {
        cr_assert_eq(chmod(path, mode), 0);
        cr_assert_eq(ct_net_key_load(path, &key, &err), CT_EAUTH, "mode %o", (unsigned)mode);
    }
}

Test(key, a_file_of_another_size_is_refused)
{
    cr_assert_eq(truncate(path, CT_KEY_BYTES - 1), 0);
    cr_assert_eq(ct_net_key_load(path, &key, &err), CT_EAUTH);
    cr_assert(strstr(err.text, "has 31 bytes, a key has 32") != NULL, "%s", err.text);
    cr_assert_eq(truncate(path, CT_KEY_BYTES + 1), 0);
    cr_assert_eq(ct_net_key_load(path, &key, &err), CT_EAUTH);
}

Test(key, a_missing_file_a_directory_and_a_fifo_are_refused)
{
    char other[96];

    snprintf(other, sizeof(other), "%s/none", directory);
    cr_assert_eq(ct_net_key_load(other, &key, &err), CT_ENOINPUT);
    cr_assert_eq(ct_net_key_load(directory, &key, &err), CT_EAUTH);
    cr_assert_eq(mkfifo(other, 0600), 0);
    cr_assert_eq(ct_net_key_load(other, &key, &err), CT_EAUTH);
}

Test(key, a_wiped_key_is_gone)
{
    static const struct ct_key zero;

    cr_assert_eq(ct_net_key_load(path, &key, &err), 0);
    ct_net_key_wipe(&key);
    cr_assert_eq(memcmp(&key, &zero, sizeof(key)), 0);
}
