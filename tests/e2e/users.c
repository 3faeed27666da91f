/* See users.h. */
#include "users.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "e2e.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256]; /* the test's, kept: words of the caller may be results of e2e_in_folder */

void users_begin(void)
{
    const char *to = e2e_in_folder("ctrun");
    struct ct_error err = {0};
    struct ct_buf text;

    cr_assert(ct_str_copy(folder, sizeof folder, e2e_in_folder("")));
    cr_assert_eq(chmod(folder, 0711), 0);
    ct_buf_init(&text, 0);
    cr_assert_eq(ct_fs_read(proc_program("ctrun"), 256 << 20, &text, &err), 0, "%s", err.text);
    cr_assert_eq(ct_fs_replace(to, text.data, text.size, &err), 0, "%s", err.text);
    cr_assert_eq(chmod(to, 0755), 0);
    ct_buf_deinit(&text);
}

void users_make_home(unsigned uid)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s%u", folder, uid);
    if (mkdir(path, 0700) == 0)
        cr_assert_eq(chown(path, uid, uid), 0);
}

void users_start(struct proc *proc, unsigned uid, const char *const *words)
{
    char id[16], program[PATH_MAX], home[PATH_MAX];
    const char *argv[32] = {"/usr/bin/setpriv", "--reuid", id,  "--regid", id,
                            "--clear-groups",   program,   NULL};
    const char *const env[] = {home, NULL};
    size_t count = 7;

    (void)snprintf(id, sizeof id, "%u", uid);
    (void)snprintf(program, sizeof program, "%sctrun", folder);
    (void)snprintf(home, sizeof home, "HOME=%s%u", folder, uid);
    users_make_home(uid);
    for (; *words != NULL && count < CT_COUNT(argv) - 1; words++)
        argv[count++] = *words;
    proc_start(proc, argv, env);
}

int users_run(struct proc *proc, unsigned uid, const char *const *words)
{
    users_start(proc, uid, words);
    return proc_finish(proc, 30);
}
