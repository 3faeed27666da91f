/* Rounds and recovery, predicted. */
#include "collectives/planner/job_time.h"

#include <criterion/criterion.h>

TestSuite(job_time, .timeout = 10);

static struct ct_job_times of(int nodes, bool tls)
{
    struct ct_machine machine = {.nodes = nodes, .per_node = 8};

    cr_assert_eq(ct_machine_device("h100", &machine.device, NULL), 0);
    return ct_job_times(&machine, tls, 1);
}

Test(job_time, rounds_grow_with_the_nodes_and_a_key_costs_its_handshakes)
{
    struct ct_job_times small = of(8, false), large = of(100000, false);

    cr_assert_gt(large.round_s, 100 * small.round_s);
    cr_assert_gt(of(100000, true).round_s, 3 * large.round_s);
    cr_assert_gt(small.start_s, small.round_s);
    /* whole rosters are sent up to 1,024 nodes */
    cr_assert_lt(of(1025, false).round_s, of(1024, false).round_s);
}

Test(job_time, a_lost_node_costs_a_round_and_a_step_and_a_silent_one_a_lease_on_top)
{
    struct ct_job_times times = of(8, false), large = of(100000, false);

    cr_assert_float_eq(times.silent_s - times.recovery_s, 5, 1e-9);
    cr_assert(times.recovery_s > 1.3 && times.recovery_s < 1.4, "%g", times.recovery_s);
    cr_assert_float_eq(large.lease_s, 100, 1e-9); /* as rendezvous/core demands of so many */
}

/* The daemon's CPU for a round that scripts/bench/swarm measured on two idle cores, which bounds
 * the round of agents with machines of their own: within a fifth. */
Test(job_time, rounds_take_what_the_daemon_was_measured_to_need)
{
    static const struct {
        int nodes;
        bool tls;
        double measured_s;
    } rows[] = {{1000, false, 0.30}, {3000, false, 0.17}, {10000, false, 0.69},
                {1000, true, 0.57},  {3000, true, 0.71},  {10000, true, 2.47}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_assert_float_eq(of(rows[i].nodes, rows[i].tls).round_s / rows[i].measured_s, 1, 0.2);
}

/* From the loss of 30 % of the agents, whose connections close, to the round of all others: as
 * measured there, agents and daemon on two cores. */
Test(job_time, rounds_after_a_loss_take_what_was_measured)
{
    static const struct {
        int survivors;
        bool tls;
        double measured_s;
    } rows[] = {{700, false, 0.41}, {2100, false, 0.37}, {7000, false, 0.57},
                {700, true, 0.45},  {2100, true, 0.41},  {7000, true, 0.68}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ct_job_times times = of(rows[i].survivors, rows[i].tls);

        cr_assert_float_eq((times.recovery_s - times.groups_s - 1) / rows[i].measured_s, 1, 0.2);
    }
}
