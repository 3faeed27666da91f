/* Two releases side by side: the programs under test, and those of the release before, in the
 * folder that TEST_PREVIOUS names (scripts/versions builds it). Without it all is skipped.
 *
 * Hosts are namespaces, with a key: what differs between two releases differs over TLS too. */
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "nodes/cluster.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 2, PEERS = 3, STEPS = 1500, FEW = 300 };

static const char *const debug[] = {"--log.level=debug", NULL};
static const struct fleet run = {.name = "run", .steps = STEPS, .words = debug};
static const struct fleet brief = {.name = "run", .steps = FEW, .words = debug};
static const struct fleet alone = {.name = "alone", .steps = FEW, .words = debug};

enum release { PREVIOUS, TODAY };

static char previous[PATH_MAX];

static void set_up(void)
{
    const char *folder = getenv("TEST_PREVIOUS");

    if (folder == NULL || realpath(folder, previous) == NULL)
        cr_skip_test("skipped: no programs of the previous release (scripts/versions builds them)");
    drill_enter();
}

TestSuite(versions, .init = set_up, .fini = drill_leave, .timeout = 120);

static void use(enum release release)
{
    drill_programs(release == PREVIOUS ? previous : NULL);
}

static struct proc *start_daemon(enum release release, int host)
{
    use(release);
    return drill_daemon(host);
}

static void start_node(enum release release, int index, int host, const struct drill_job *job)
{
    use(release);
    (void)drill_node(index, host, job);
}

static void expect_undisturbed(const pid_t workers[], int nodes)
{
    for (int i = 0; i < nodes; i++)
        cr_assert_eq(fleet_worker_now(i), workers[i], "the worker of node %d was restarted", i);
    cr_assert_eq(drill_metric("ctrun_generation"), 1, "there was a round");
    cr_assert_eq(drill_metric("ctrun_links"), nodes);
}

static void finish(const struct fleet *fleet, int first, int nodes)
{
    for (int i = first; i < nodes; i++)
        cr_assert_eq(fleet_finish(i, 90), 0, "%s", ct_buf_str(&drill_proc(i)->text));
    fleet_expect_samples(fleet);
}

/* ---- a job ----------------------------------------------------------------------------------- */

/* Both releases' operators see the job. */
static void expect_status(void)
{
    for (enum release asks = PREVIOUS; asks <= TODAY; asks++) {
        use(asks);
        cr_assert_not_null(strstr(drill_report(NULL), "\"host\":\"host"), "%s", drill_report(NULL));
    }
}

/* A training on two nodes computes what it computes in one process, whoever serves and whoever
 * joins. */
static void train(enum release daemon, enum release first, enum release second)
{
    struct drill_job job = {.nodes = "2", .lease = "5s"};

    cluster_up(NODES + 1);
    struct proc *server = start_daemon(daemon, 0);
    fleet_job(&brief, &job);
    start_node(first, 0, 1, &job);
    (void)proc_wait_text(server, "joined with 1 slot", 20);
    expect_status();
    start_node(second, 1, 2, &job);
    finish(&brief, 0, NODES);
    (void)kill(server->pid, SIGTERM);
    cr_assert_eq(proc_finish(server, 10), 0, "%s", ct_buf_str(&server->text));
    /* Where the nodes are newer than all that it knows, once. */
    cr_assert_leq(e2e_count(ct_buf_str(&server->text), "which this release does not know"), 1);
    fleet_run_alone(&alone);
    cr_assert_lt(fleet_loss_difference(&brief, &alone), 1e-6);
}

Test(versions, nodes_of_the_previous_release_train_under_a_daemon_of_this_one)
{
    train(TODAY, PREVIOUS, PREVIOUS);
}

Test(versions, nodes_of_this_release_train_under_a_daemon_of_the_previous_one)
{
    train(PREVIOUS, TODAY, TODAY);
}

Test(versions, nodes_of_both_releases_train_together_under_a_daemon_of_this_one)
{
    train(TODAY, PREVIOUS, TODAY);
}

Test(versions, nodes_of_both_releases_train_together_under_a_daemon_of_the_previous_one)
{
    train(PREVIOUS, TODAY, PREVIOUS);
}

/* ---- a worker -------------------------------------------------------------------------------- */

/* A program that was linked with the other release's library, as `worker`, under `agent`. */
static void run_worker(enum release agent, enum release worker)
{
    char ctrun[PATH_MAX + 8], ctworker[PATH_MAX + 16], now[PATH_MAX];
    struct proc proc;

    (void)snprintf(now, sizeof now, "%s", proc_program("."));
    (void)snprintf(ctrun, sizeof ctrun, "%s/ctrun", agent == PREVIOUS ? previous : now);
    (void)snprintf(ctworker, sizeof ctworker, "%s/ctworker", worker == PREVIOUS ? previous : now);
    const char *const argv[] = {ctrun,
                                "--nproc_per_node=2",
                                "--no-python",
                                ctworker,
                                e2e_in_root("configs/digits_mlp.yaml"),
                                "--train.epochs=3",
                                "--log.dir=log",
                                "--checkpoint.dir=ckpt",
                                NULL};
    cr_assert_eq(proc_run(&proc, argv, NULL, 60), 0, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "on 2 workers");
    proc_free(&proc);
}

Test(versions, a_worker_with_the_previous_library_works_under_an_agent_of_this_release)
{
    run_worker(TODAY, PREVIOUS);
}

Test(versions, a_worker_with_this_library_works_under_an_agent_of_the_previous_release)
{
    run_worker(PREVIOUS, TODAY);
}

/* ---- a daemon is replaced -------------------------------------------------------------------- */

static void start_training(struct drill_job *job, int nodes, int first_host, pid_t workers[])
{
    fleet_job(&run, job);
    fleet_disk_slow();
    for (int i = 0; i < nodes; i++)
        start_node(i % 2 == 0 ? PREVIOUS : TODAY, i, first_host + i, job);
    fleet_wait_step(&run, 60, 40);
    for (int i = 0; i < nodes; i++)
        workers[i] = fleet_worker_now(i);
}

Test(versions,
     a_daemon_that_takes_the_journal_of_the_previous_release_over_disturbs_no_node_of_either)
{
    struct drill_job job = {.nodes = "2", .lease = "5s"};
    char endpoints[64];
    struct proc old;
    pid_t workers[NODES];

    cluster_up(NODES + 2);
    (void)snprintf(endpoints, sizeof endpoints, "%s:29400,%s:29400", cluster_address(0),
                   cluster_address(NODES + 1));
    job.endpoints = endpoints;
    (void)start_daemon(PREVIOUS, 0);
    start_training(&job, NODES, 1, workers);
    use(TODAY);
    (void)drill_takeover(NODES + 1, &old);
    cr_assert_eq(proc_finish(&old, 10), 76, "%s", ct_buf_str(&old.text));
    proc_free(&old);
    drill_wait_metric("ctrun_links", NODES, 15);
    cr_assert_eq(drill_metric("ctrun_epoch"), 2);
    fleet_wait_step(&run, fleet_step(&run) + 40, 20);
    expect_undisturbed(workers, NODES);
    fleet_disk_fast();
    finish(&run, 0, NODES);
}

/* ---- three daemons --------------------------------------------------------------------------- */

static bool serves(int peer)
{
    drill_ask_peer(peer);
    return drill_metric("ctrun_links") >= NODES;
}

/* One of the peers has all nodes; it is asked from now on. */
static bool one_serves(void *context)
{
    (void)context;
    for (int i = 0; i < PEERS; i++)
        if (serves(i))
            return true;
    return false;
}

Test(versions, three_daemons_are_upgraded_one_after_the_other_under_a_running_job)
{
    struct drill_job job = {.nodes = "2", .lease = "5s"};
    struct proc *peers[PEERS];
    pid_t workers[NODES];

    cluster_up(PEERS + NODES);
    use(PREVIOUS);
    for (int i = 0; i < PEERS; i++)
        peers[i] = drill_peer(i, PEERS);
    job.endpoints = drill_peers();
    start_training(&job, NODES, PEERS, workers);
    for (int i = 0; i < PEERS; i++) {
        proc_until(one_serves, NULL, 20, "a ctrund that serves both nodes");
        drill_signal(peers[i], SIGTERM);
        cr_assert_eq(proc_finish(peers[i], 10), 0, "%s", ct_buf_str(&peers[i]->text));
        use(TODAY);
        peers[i] = drill_peer(i, PEERS);
        (void)proc_wait_text(peers[i], "the one at", 20);
    }
    proc_until(one_serves, NULL, 20, "a ctrund that serves both nodes");
    fleet_wait_step(&run, fleet_step(&run) + 40, 20);
    expect_undisturbed(workers, NODES);
    expect_status();
    fleet_disk_fast();
    finish(&run, 0, NODES);
}

/* ---- without a daemon ------------------------------------------------------------------------ */

Test(versions, nodes_of_both_releases_hold_the_record_together_and_go_on_without_the_one_that_led)
{
    struct drill_job job = {
        .nodes = "2:3", .lease = "5s", .restarts = 3, .endpoints = "10.78.0.1:29400"};
    pid_t workers[PEERS];

    cluster_up(PEERS);
    start_training(&job, PEERS, 0, workers);
    (void)proc_wait_text(drill_proc(0), "is held by 3 hosts", 20);
    drill_signal(drill_proc(0), SIGKILL);
    fleet_wait_step(&run, fleet_step(&run) + 40, 20);
    for (int i = 1; i < PEERS; i++)
        cr_assert_eq(fleet_worker_now(i), workers[i], "the worker of node %d was restarted", i);
    fleet_disk_fast();
    finish(&run, 1, PEERS);
}
