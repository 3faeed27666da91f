/* The equivalence table over the configurations that ship, ranks as threads (equal.h): all rows, or
 * under sanitizers and with TEST_EQUIVALENCE=few those that say most. */
#include "equal.h"
#include "harness.h"

#include "base/assert.h"
#include "sanitized.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(equal, .init = harness_enter, .fini = harness_leave, .timeout = 120);

static void train(int world, const char *const words[])
{
    struct training training = {.world = world};

    for (int i = 0; words[i] != NULL; i++) {
        CT_ASSERT(i < HARNESS_OPTIONS - 1);
        training.options[i] = words[i];
    }
    training.is_file = true;
    (void)harness_train(&training);
}

static void check(const char *group)
{
    const char *mode = getenv("TEST_EQUIVALENCE");

    equal_check(group, harness_root(), mode == NULL ? !SANITIZED : strcmp(mode, "few") != 0, train);
}

#define EQUAL(group, shows) \
    Test(equal, shows)      \
    {                       \
        check(#group);      \
    }
#include "equal.def"
