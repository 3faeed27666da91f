/* The tuning table of a machine (collectives/algorithm/tuning.h), from `--tune` to the ranks of a
 * job. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(tuning, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

/* Let what is started from now on read a table of this machine: one line below its name. */
static void use_table(const char *name, const char *line)
{
    char text[512];
    const char *machine;
    int length;

    cr_assert_eq(setenv("CTRUN_TUNING", e2e_in_folder("measured"), 1), 0);
    if (!e2e_exists(e2e_in_folder("measured"))) {
        struct proc tune;

        cr_assert_eq(e2e_run(&tune, "bench", "collectives", "--tune", "--max=256", NULL), 0, "%s",
                     ct_buf_str(&tune.text));
        e2e_said(&tune, "# written to ");
        proc_free(&tune);
    }
    machine = strstr(e2e_read(e2e_in_folder("measured")), "machine ");
    cr_assert_not_null(machine);
    length = (int)strcspn(machine, "\n");
    (void)snprintf(text, sizeof text, "version 1\n%.*s\n%s\n", length, machine, line);
    cr_assert_eq(setenv("CTRUN_TUNING", e2e_write(name, text), 1), 0);
}

Test(tuning, ranks_go_the_way_that_their_machine_has_measured)
{
    struct proc bench;

    use_table("table", "shm 2 local_flat_bytes 512");
    cr_assert_eq(e2e_run(&bench, "bench", "collectives", "--min=512", "--max=1KiB", NULL), 0, "%s",
                 ct_buf_str(&bench.text));
    e2e_said(&bench, "# of the tuning table: local_flat_bytes 512\n");
    e2e_said(&bench, "  flat\n");
    e2e_said(&bench, "  pipeline\n");
    e2e_said(&bench, "# Out of bounds values : 0 OK\n");
    proc_free(&bench);
}

static void start_node(struct proc *node, const char *endpoint, const char *rank)
{
    e2e_start(node, "bench", "collectives", "--nnodes=2", "--nproc_per_node=1", "--rdzv_endpoint",
              endpoint, "--node_rank", rank, "--join_timeout=20s", "--backend=tcp", "--min=256",
              "--max=256", NULL);
}

/* By its own table node 1 would send all of it to everyone, and node 0 the half of it. */
Test(tuning, nodes_with_different_tables_use_that_of_rank_0)
{
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);

    use_table("first", "tcp 2 tcp_flat_bytes 128");
    start_node(&nodes[0], endpoint, "0");
    use_table("second", "tcp 2 tcp_flat_bytes 1KiB");
    start_node(&nodes[1], endpoint, "1");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
    e2e_said(&nodes[0], "# of the tuning table: tcp_flat_bytes 128\n");
    e2e_said(&nodes[0], "  direct\n");
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon, 10), 0);
    proc_free(&daemon);
}

Test(tuning, a_file_that_is_no_table_is_refused_in_one_sentence)
{
    struct proc bench;

    cr_assert_eq(setenv("CTRUN_TUNING", e2e_write("table", "dear diary\n"), 1), 0);
    cr_assert_eq(e2e_run(&bench, "bench", "collectives", "--max=8", NULL), 2);
    e2e_said(&bench, "/table (CTRUN_TUNING=none does without): 1: \"dear\" is no line of a tuning "
                     "table");
    proc_free(&bench);
    cr_assert_eq(
        e2e_run(&bench, "bench", "collectives", "--max=8", "--collectives.tuning=none", NULL), 0,
        "what is configured counts more than the variable");
    proc_free(&bench);
    cr_assert_eq(setenv("CTRUN_TUNING", "none", 1), 0);
    cr_assert_eq(e2e_run(&bench, "bench", "collectives", "--max=8", NULL), 0);
    proc_free(&bench);
}
