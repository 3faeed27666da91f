/* The equivalence table over the configurations that ship, ranks as processes (tests/lib/equal.h):
 * of each group the rows that say most; with TEST_EQUIVALENCE=all, all of them. */
#include "e2e.h"
#include "equal.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(equal, .init = e2e_enter, .fini = e2e_leave, .timeout = 600);

static void train(int world, const char *const words[])
{
    const char *argv[EQUAL_WORDS + 8] = {proc_program("ctrun"), "--nproc_per_node"};
    char workers[16];
    struct proc run;
    int count = 2;

    (void)snprintf(workers, sizeof workers, "%d", world);
    argv[count++] = workers;
    for (int i = 0; words[i] != NULL; i++) {
        CT_ASSERT(count < (int)CT_COUNT(argv) - 1);
        argv[count++] = words[i];
    }
    cr_assert_eq(proc_run(&run, argv, NULL, 120), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

static void check(const char *group)
{
    const char *wish = getenv("TEST_EQUIVALENCE");

    equal_check(group, e2e_in_root("."), wish != NULL && strcmp(wish, "all") == 0, train);
}

#define EQUAL(group, shows) \
    Test(equal, shows)      \
    {                       \
        check(#group);      \
    }
#include "equal.def"
