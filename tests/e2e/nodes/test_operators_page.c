/* The operators' page (cmd/ctrund/OPERATORS.md): its commands are what they say. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(operators_page, .init = e2e_enter, .fini = e2e_leave, .timeout = 240);

Test(operators_page, each_of_its_commands_works_as_it_stands)
{
    char programs[4096];
    struct proc run;

    if (geteuid() != 0)
        cr_skip_test("skipped: hosts with folders of their own need root");
    cr_assert_not_null(realpath(proc_program("ctrun"), programs));
    *strrchr(programs, '/') = '\0';
    const char *const argv[] = {"/usr/bin/unshare",
                                "--net",
                                "--pid",
                                "--fork",
                                "--kill-child",
                                "--mount-proc",
                                "/usr/bin/python3",
                                e2e_in_root("tests/e2e/nodes/operators_page.py"),
                                e2e_in_root("cmd/ctrund/OPERATORS.md"),
                                programs,
                                e2e_in_folder("hosts"),
                                NULL};
    cr_assert_eq(proc_run(&run, argv, NULL, 200), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, " lines of commands were run");
    proc_free(&run);
}
