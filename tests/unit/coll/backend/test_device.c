/* Groups on the memory of a device: backends staged and nccl, over tests/lib/fakenccl. */
#include "conform.h"
#include "rig.h"
#include "shuffle.h"

#include "base/accel.h"
#include "base/assert.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

TestSuite(device, .timeout = 60);

static const struct {
    const char *backend;
    int world, nodes;
} cases[] = {{"staged", 1, 1}, {"staged", 2, 1}, {"staged", 4, 1}, {"staged", 4, 2},
             {"nccl", 2, 1},   {"nccl", 3, 1},   {"nccl", 4, 2}};

static struct criterion_test_params all_cases(void)
{
    static int numbers[CT_COUNT(cases)];

    for (size_t i = 0; i < CT_COUNT(cases); i++)
        numbers[i] = (int)i;
    return cr_make_param_array(int, numbers, CT_COUNT(cases));
}

static struct rig case_of(int index)
{
    return (struct rig){.backend = cases[index].backend,
                        .world = cases[index].world,
                        .nodes = cases[index].nodes,
                        .device = true};
}

static int check_everything(struct ct_group *group, struct rig *rig)
{
    int line = strcmp(ct_group_backend(group), rig->backend) == 0 ? 0 : __LINE__;

    line = line != 0 ? line : conform_reductions(group);
    line = line != 0 ? line : conform_moves(group);
    return line != 0 ? line : conform_parts(group);
}

static int check_large(struct ct_group *group, struct rig *rig)
{
    (void)rig;
    return conform_large(group);
}

ParameterizedTestParameters(device, calls_equal_the_reference)
{
    return all_cases();
}
ParameterizedTest(int *index, device, calls_equal_the_reference)
{
    struct rig rig = case_of(*index);

    rig.tuning = tiny;
    cr_assert_eq(rig_run(&rig, check_everything), 0);
    rig.tuning = (struct ct_tuning){0};
    cr_assert_eq(rig_run(&rig, check_large), 0);
}
