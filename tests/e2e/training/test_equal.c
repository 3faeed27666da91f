/* The equivalence table over the configurations that ship, ranks as processes (tests/lib/equal.h):
 * of each group the rows that say most; with TEST_EQUIVALENCE=all, all of them. */
#include "e2e.h"
#include "equal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(equal, .init = e2e_enter, .fini = e2e_leave, .timeout = 600);

static void train(int world, const char *const words[])
{
    equal_run(proc_program("ctrun"), NULL, world, words);
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
