/* Which nodes Slurm reports down, and which states prove nothing. */
#include "slurm/node_state.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(node_state, .timeout = 30);

static const char *const nodes[] = {"host1", "host12"};
static char why[256];

static bool are_down(const char *text, size_t count)
{
    why[0] = '\0';
    return ct_slurm_are_down(text, nodes, count, why, sizeof why);
}

static bool is_down(const char *state)
{
    char text[256];

    (void)snprintf(text, sizeof text,
                   "NodeName=host1 Arch=x86_64 CoresPerSocket=1 NodeHostName=host1 State=%s "
                   "ThreadsPerCore=1 Reason=State=DOWN [root@2026-11-26T21:00:00]\n",
                   state);
    return are_down(text, 1);
}

Test(node_state, the_base_down_counts_whatever_its_flags_are)
{
    cr_assert(is_down("DOWN"));
    cr_assert(is_down("DOWN*"));
    cr_assert(is_down("DOWN+DRAIN"));
    cr_assert(is_down("DOWN*+DRAIN+NOT_RESPONDING"));
    cr_assert(is_down("DOWN~"));
}

Test(node_state, no_other_state_counts)
{
    static const char *const others[] = {"IDLE",
                                         "IDLE*",
                                         "IDLE+DRAIN",
                                         "ALLOCATED+NOT_RESPONDING",
                                         "MIXED",
                                         "UNKNOWN",
                                         "UNKNOWN*",
                                         "FUTURE",
                                         "FAIL",
                                         "ERROR",
                                         "IDLE+DOWN",
                                         "DOWNED",
                                         "DOWN_",
                                         "down",
                                         ""};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_assert_not(is_down(others[i]), "%s", others[i]);
    cr_assert_not(is_down("IDLE*"));
    cr_assert_str_eq(why, "Slurm does not report node host1 down (IDLE*)");
}

Test(node_state, each_of_several_nodes_has_to_be_down)
{
    cr_assert(are_down("NodeName=host12 State=DOWN X=1\nNodeName=host1 State=DOWN*\n", 2));
    cr_assert_not(are_down("NodeName=host1 State=DOWN\nNodeName=host12 State=IDLE\n", 2));
    cr_assert_str_eq(why, "Slurm does not report node host12 down (IDLE)");
    cr_assert_not(are_down("NodeName=host12 State=DOWN\n", 2));
    cr_assert_str_eq(why, "Slurm does not say in which state node host1 is");
    cr_assert_not(are_down("", 0), "of no node nothing is known");
}

Test(node_state, an_odd_output_proves_nothing)
{
    static const char *const odd[] = {
        "",
        "\n\n",
        "slurm_load_node error: Unable to contact slurm controller (connect failure)\n",
        "Node host1 not found\n",
        "State=DOWN\n",
        "NodeName=host1\n",
        "NodeName=host1 State=",
        "NodeName=host1\nState=DOWN\n",
        "NodeName=host1 OldState=DOWN\n",
        "XNodeName=host1 State=DOWN\n",
    };

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        cr_assert_not(are_down(odd[i], 1), "%s", odd[i]);
    cr_assert(are_down("a warning\nNodeName=host1 State=DOWN", 1));
}
