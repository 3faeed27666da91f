/* Many real ranks (tests/lib/many), few enough for the gate: they train to their accuracy; and what
 * keeps a big job from starting is one sentence with its remedy. `make many` runs large ones. */
#include "cluster.h"
#include "e2e.h"
#include "sanitized.h"

#include "base/assert.h"
#include "base/clock.h"
#include "many/many.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void leave(void)
{
    cluster_down();
    e2e_leave();
}

TestSuite(many, .init = e2e_enter, .fini = leave, .timeout = 240);

/* A sanitizer's rank takes a hundred times the memory. */
enum { PATIENCE_S = 180, RANKS = SANITIZED ? 12 : 40, NODES = SANITIZED ? 6 : 20 };

/* ---- they train ----------------------------------------------------------------------------- */

static struct many_result train(const struct hosts *hosts, const struct many_shape *shape)
{
    char programs[PATH_MAX];
    const struct many_setting setting = {.programs = programs,
                                         .config = e2e_in_root("configs/digits_mlp.yaml"),
                                         .hosts = hosts,
                                         .lease = "60s",
                                         .seconds = PATIENCE_S};
    struct many_result result;

    (void)snprintf(programs, sizeof programs, "%s", proc_program("ctrun"));
    *strrchr(programs, '/') = '\0';
    cr_assert(many_run(&setting, shape, &result), "%s\nlogs: %s", result.trouble, result.folder);
    return result;
}

/* What the census has counted is what a rank cannot do without, and what it was allowed. */
static void expect_figures(const struct many_result *result, int world)
{
    cr_assert_eq(result->looked_at, world);
    cr_assert_geq(result->connections.mean, 1);
    cr_assert_leq(result->connections.most, 2.0 * (world - 1));
    cr_assert_gt(result->descriptors.mean, result->connections.mean);
    cr_assert(result->step1_s > 0 && result->step1_s < result->whole_s);
}

Test(many, ranks_on_one_node_train_over_tcp_to_their_accuracy)
{
    struct hosts here;

    cr_assert(hosts_up(&here, "here", 1, true));
    const struct many_result result = train(&here, &(struct many_shape){1, RANKS, "tcp"});
    expect_figures(&result, RANKS);
    hosts_down(&here);
}

Test(many, nodes_of_one_rank_train_to_their_accuracy)
{
    cluster_up(NODES);
    cr_assert(hosts_introduce(cluster_hosts()));
    const struct many_result result =
        train(cluster_hosts(), &(struct many_shape){NODES, 1, "auto"});
    expect_figures(&result, NODES);
}

/* ---- they cannot start ---------------------------------------------------------------------- */

/* No step was done: rank 0 tells of the first one at once. */
static void expect_no_step(const struct proc *proc)
{
    e2e_not_said(proc, "step 1/");
}

static void expect_status(const struct proc *proc, int status)
{
    cr_assert_eq(proc->status, status, "status %d, not %d:\n%s", proc->status, status,
                 ct_buf_str(&proc->text));
}

/* Run so many ranks over TCP, started by a shell that may have so many descriptors. */
static void run_with_descriptors(struct proc *proc, const char *ranks, int soft, int hard)
{
    char limits[64];
    const char *const argv[] = {"sh",
                                "-c",
                                limits,
                                proc_program("ctrun"),
                                "--nproc_per_node",
                                ranks,
                                "--parallel.backend=tcp",
                                "--parallel.timeout=20s",
                                "--batch.global=64",
                                "--train.steps=3",
                                "--log.tensorboard=false",
                                e2e_in_root("configs/digits_mlp.yaml"),
                                NULL};

    (void)snprintf(limits, sizeof limits,
                   "ulimit -S -n %d && ulimit -H -n %d && exec \"$0\" \"$@\"", soft, hard);
    (void)proc_run(proc, argv, NULL, 60);
}

Test(many, more_ranks_than_the_launcher_has_descriptors_for_are_refused_with_the_remedy)
{
    struct proc proc;

    run_with_descriptors(&proc, "32", 64, 64);
    expect_status(&proc, 71);
    e2e_said(&proc, "Too many open files; raise `ulimit -n`");
    expect_no_step(&proc);
    proc_free(&proc);
}

/* The launcher raises its own limit, and gives its workers back what it was. They say so while
 * their group forms, not when a call of a step finds no descriptor. */
Test(many, more_ranks_than_a_worker_has_descriptors_for_are_refused_with_the_remedy)
{
    int limit = SANITIZED ? 14 : 16;
    char remedy[80];
    struct proc proc;

    run_with_descriptors(&proc, SANITIZED ? "16" : "32", limit, 256);
    expect_status(&proc, 69);
    (void)snprintf(remedy, sizeof remedy, "Too many open files: raise the limit of %d (ulimit -n)",
                   limit);
    e2e_said(&proc, "connections that it needs in group world/1");
    e2e_said(&proc, remedy);
    expect_no_step(&proc);
    proc_free(&proc);
}

Test(many, a_launcher_that_has_hardly_any_descriptors_says_so)
{
    static const int limits[] = {8, 11}; /* no event loop, no control page */

    for (size_t i = 0; i < CT_COUNT(limits); i++) {
        struct proc proc;
        run_with_descriptors(&proc, "2", limits[i], 4096);
        expect_status(&proc, 71);
        e2e_said(&proc, "Too many open files; raise `ulimit -n`");
        proc_free(&proc);
    }
}

/* It could not reach the rendezvous that it hosts itself, and would try for ever. */
Test(many, a_launcher_without_descriptors_for_a_job_says_so_at_once)
{
    for (int limit = 14; limit <= 24; limit += limit < 18 ? 1 : 2) {
        struct proc proc;
        uint64_t start_ms = ct_clock_mono_ms(&ct_clock_system);

        run_with_descriptors(&proc, "1", limit, limit);
        uint64_t elapsed_ms = ct_clock_mono_ms(&ct_clock_system) - start_ms;
        expect_status(&proc, 71);
        e2e_said(&proc, "Too many open files; raise `ulimit -n`");
        expect_no_step(&proc);
        cr_assert_lt(elapsed_ms, SANITIZED ? 20000 : 5000, "limit %d", limit);
        proc_free(&proc);
    }
}

/* Three nodes, of which the middle one tells the others an address that they do not reach. */
static void run_hidden(enum hosts_hole hole, int status)
{
    static const char hidden[] = "10.79.0.9";
    const char *config = e2e_in_root("configs/digits_mlp.yaml"), *key = e2e_in_folder("key");
    char rank[3][24], folder[3][24], endpoint[64];
    struct proc nodes[3];
    int named = 0;

    cluster_up(3);
    cr_assert(hosts_hide(cluster_hosts(), 1, hidden, hole));
    cr_assert_eq(e2e_run(&nodes[0], "key", "new", key, NULL), 0);
    proc_free(&nodes[0]);
    (void)snprintf(endpoint, sizeof endpoint, "--rdzv_endpoint=%s:29400", cluster_address(0));
    for (int i = 0; i < 3; i++) {
        const char *argv[] = {proc_program("ctrun"),
                              "--nnodes=3",
                              rank[i],
                              endpoint,
                              "--key_file",
                              key,
                              folder[i],
                              "--batch.global=36",
                              "--train.steps=3",
                              "--parallel.timeout=8s",
                              "--join_timeout=20s",
                              config,
                              i == 1 ? "--local_addr=10.79.0.9" : NULL,
                              NULL};
        (void)snprintf(rank[i], sizeof rank[i], "--node_rank=%d", i);
        (void)snprintf(folder[i], sizeof folder[i], "--log.dir=log%d", i);
        cluster_start(&nodes[i], i, argv);
    }
    for (int i = 0; i < 3; i++)
        cr_assert_eq(proc_finish(&nodes[i], 60), status, "%s", ct_buf_str(&nodes[i].text));
    for (int i = 0; i < 3; i++) {
        named += strstr(ct_buf_str(&nodes[i].text), "to rank 1 at 10.79.0.9 port ") != NULL &&
                 strstr(ct_buf_str(&nodes[i].text), "with --local_addr") != NULL;
        expect_no_step(&nodes[i]);
        proc_free(&nodes[i]);
    }
    cr_assert_geq(named, 1, "nobody names the rank that is not reached, and the remedy");
}

Test(many, a_node_behind_a_firewall_ends_the_job_before_its_first_step)
{
    run_hidden(HOSTS_FIREWALL, 75);
}

Test(many, a_node_without_a_route_to_it_ends_the_job_before_its_first_step)
{
    run_hidden(HOSTS_BLACKHOLE, 69);
}

Test(many, nodes_of_different_backends_are_refused_with_both_and_the_remedy)
{
    static const char sentence[] = "--parallel.backend shm here, tcp on the nodes before; all "
                                   "nodes must be started alike";
    const char *config = e2e_in_root("configs/digits_mlp.yaml");
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);

    e2e_start(&nodes[0], "--nnodes=2", "--node_rank=0", "--rdzv_endpoint", endpoint,
              "--parallel.backend=tcp", "--log.dir=0", "--join_timeout=5s", config, NULL);
    (void)proc_wait_text(&nodes[0], "waiting for 1 more node", 20);
    e2e_start(&nodes[1], "--nnodes=2", "--node_rank=1", "--rdzv_endpoint", endpoint,
              "--parallel.backend=shm", "--log.dir=1", "--join_timeout=5s", config, NULL);
    cr_assert_eq(proc_finish(&nodes[1], 20), 2, "%s", ct_buf_str(&nodes[1].text));
    e2e_said(&nodes[1], sentence);
    cr_assert_eq(proc_finish(&nodes[0], 30), 75, "%s", ct_buf_str(&nodes[0].text));
    for (int i = 0; i < 2; i++) {
        expect_no_step(&nodes[i]);
        proc_free(&nodes[i]);
    }
    proc_free(&daemon);
}

/* ---- more nodes than are named to each other ------------------------------------------------- */

/* A round of more than 1,024 nodes: most know few others, and all know where all ranks live. */
Test(many, each_of_1030_nodes_knows_its_ranks_among_all)
{
    enum { LARGE = 1030, DOUBLE = 4, WORLD = LARGE + DOUBLE };
    struct proc daemon, all;
    bool seen[WORLD] = {false};

    if (SANITIZED)
        cr_skip_test("skipped: 1,030 processes of a sanitizer are more than this machine holds");
    const char *endpoint = e2e_daemon(&daemon);
    const char *tell = e2e_script("tell", "#!/bin/sh\necho \"$RANK $WORLD_SIZE $ROLE_RANK "
                                          "$ROLE_WORLD_SIZE $GROUP_WORLD_SIZE\" >> ranks\n");
    const char *start =
        e2e_script("start", "#!/bin/sh\nfor i in $(seq $1); do\n"
                            "  \"$2\" --nnodes $1 --nproc_per_node $((1 + (i <= $3))) "
                            "--rdzv_endpoint $4 --join_timeout 100s --lease 60s \"$5\" &\ndone\n"
                            "for i in $(seq $1); do wait -n || exit 1; done\n");
    const char *const argv[] = {"bash", start,    "1030", proc_program("ctrun"),
                                "4",    endpoint, tell,   NULL};
    cr_assert_eq(proc_run(&all, argv, NULL, 150), 0, "%s", ct_buf_str(&all.text));
    const char *text = e2e_read("ranks");
    for (int i = 0, used = 0; i < WORLD; i++, text += used) {
        int rank, world, role_rank, role_world, nodes;
        cr_assert_eq(sscanf(text, "%d %d %d %d %d\n%n", &rank, &world, &role_rank, &role_world,
                            &nodes, &used),
                     5, "%d of %d ranks have told theirs", i, WORLD);
        cr_assert(rank >= 0 && rank < WORLD && !seen[rank] && role_rank == rank, "%.60s", text);
        cr_assert(world == WORLD && role_world == WORLD && nodes == LARGE, "%.60s", text);
        seen[rank] = true;
    }
    cr_assert_eq(*text, '\0', "more ranks than there are: %.60s", text);
    proc_free(&all);
    proc_free(&daemon);
}
