/* Where the group of a process is, out of files as the kernel writes them; and a real one where
 * this machine allows it. */
#include "launch/cgroup.h"

#include "tree.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

static struct tree tree;

static void set_up(void)
{
    tree_init(&tree);
}

static void tear_down(void)
{
    tree_deinit(&tree);
}

TestSuite(cgroup, .init = set_up, .fini = tear_down, .timeout = 30);

#define MOUNT "36 25 0:32 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
#define HYBRID                                                    \
    "35 25 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" \
    "36 25 0:32 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n"

Test(cgroup, it_is_found_in_a_pure_and_in_a_mixed_tree)
{
    static const struct {
        const char *mounts, *groups, *path;
    } rows[] = {
        {MOUNT, "0::/user.slice/s.scope\n", "/sys/fs/cgroup/user.slice/s.scope"},
        {MOUNT, "0::/\n", "/sys/fs/cgroup"},
        {HYBRID, "2:cpu:/a\n0::/b\n", "/sys/fs/cgroup/unified/b"},
        {HYBRID, "2:cpu:/a\n", NULL},
        {"35 25 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw\n", "0::/b\n", NULL},
        {"", "", NULL},
    };
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tree_file(&tree, "/proc/self/mountinfo", rows[i].mounts);
        tree_file(&tree, "/proc/self/cgroup", rows[i].groups);
        bool found = ct_cgroup_own(tree.root, path);
        cr_assert_eq(found, rows[i].path != NULL, "row %zu", i);
        if (found)
            cr_assert_str_eq(path, rows[i].path);
    }
}

Test(cgroup, where_no_group_can_be_made_there_is_none)
{
    struct ct_cgroup group;

    cr_assert_not(ct_cgroup_make(&group, tree_path(&tree, "/absent")));
    cr_assert_str_eq(group.path, "");
    cr_assert_not(ct_cgroup_make(&group, tree.root), "a folder that is no control group");
    cr_assert_str_eq(group.path, "");
    cr_assert_not(ct_cgroup_add(&group, getpid()));
    ct_cgroup_kill(&group);
    cr_assert(ct_cgroup_remove(&group));
}

Test(cgroup, a_real_one_comes_and_goes)
{
    struct ct_cgroup group;
    char own[PATH_MAX];

    if (!ct_cgroup_own("", own) || !ct_cgroup_make(&group, own))
        cr_skip_test("skipped: no control group can be made here");
    cr_assert_eq(strncmp(group.path, own, strlen(own)), 0);
    cr_assert(ct_cgroup_remove(&group));
    cr_assert_neq(access(own, F_OK), -1);
}
