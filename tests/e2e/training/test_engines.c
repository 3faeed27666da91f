/* Engines that are not ours: a training under the site's own mpirun, and one over UCX, give the
 * bits of any other; MPI's ranks conform to the API as ranks of ctrun do; wrong use is a sentence.
 *
 * Each test of MPI runs with Open MPI and with MPICH, where they are installed. */
#include "e2e.h"
#include "nodes/cluster.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void leave(void);

TestSuite(engines, .init = e2e_enter, .fini = leave, .timeout = 180);

enum { ARGUMENTS = 24, STEPS = 60, OPEN_MPI = 0 };

/* ---- the two MPIs ----------------------------------------------------------------------------*/

/* Open MPI leaves memory behind, which is not for us to report. */
static const struct mpi {
    const char *mpirun, *option, *asan, *library, *other_library;
    const char *killed; /* what mpirun says of a rank that was killed */
} mpis[] = {
    [OPEN_MPI] = {"mpirun.openmpi", "--oversubscribe",
                  "ASAN_OPTIONS=abort_on_error=1:detect_leaks=0", "Open MPI v", "libmpich.so.12",
                  "signal 9"},
    {"mpirun.mpich", NULL, "ASAN_OPTIONS=abort_on_error=1:detect_leaks=1", "MPICH ", "libmpi.so.40",
     "signal 9"},
};

static struct criterion_test_params both(void)
{
    static int indices[] = {0, 1};

    return cr_make_param_array(int, indices, CT_COUNT(indices));
}

static bool is_installed(const char *program)
{
    char command[128];

    (void)snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    return system(command) == 0;
}

static const struct mpi *need(int index)
{
    if (!is_installed(mpis[index].mpirun))
        cr_skip_test("skipped: there is no %s (scripts/deps --test)", mpis[index].mpirun);
    return &mpis[index];
}

/* Start `words` (NULL at the end) on so many ranks; `variable`: one more of the environment, or
 * NULL. */
static void start(struct proc *proc, const struct mpi *mpi, const char *ranks,
                  const char *const words[], const char *variable)
{
    const char *env[] = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", mpi->asan,
                         variable, NULL};
    const char *argv[ARGUMENTS] = {mpi->mpirun, "-np", ranks};
    int argc = 3;

    if (mpi->option != NULL)
        argv[argc++] = mpi->option;
    for (int i = 0; words[i] != NULL; i++)
        argv[argc++] = words[i];
    cr_assert_lt(argc, ARGUMENTS);
    proc_start(proc, argv, env);
}

static int run(struct proc *proc, const struct mpi *mpi, const char *ranks,
               const char *const words[], const char *variable)
{
    start(proc, mpi, ranks, words, variable);
    return proc_finish(proc, 120);
}

/* ---- a training ------------------------------------------------------------------------------*/

/* The words of a training whose checkpoints lie in `name`, behind those that are there. */
static void add_training(const char *words[], const char *name, int steps)
{
    static char places[3][64];
    int count = 0;

    while (words[count] != NULL)
        count++;
    cr_assert_lt(count + 7, ARGUMENTS);
    (void)snprintf(places[0], sizeof places[0], "--checkpoint.dir=%s", name);
    (void)snprintf(places[1], sizeof places[1], "--log.dir=%s.log", name);
    (void)snprintf(places[2], sizeof places[2], "--train.steps=%d", steps);
    for (size_t i = 0; i < CT_COUNT(places); i++)
        words[count++] = places[i];
    words[count++] = "--batch.micro=4";
    words[count++] = "--schedule.type=constant";
    words[count++] = "--parallel.reduce=invariant";
    words[count] = e2e_in_root("configs/digits_mlp.yaml");
}

static void expect_equal(const char *a, const char *b, int step)
{
    static const char *const files[] = {"model", "optim"};
    char command[256];

    for (size_t i = 0; i < CT_COUNT(files); i++) {
        (void)snprintf(command, sizeof command,
                       "cmp %s/step_%08d/%s.safetensors %s/step_%08d/%s.safetensors", a, step,
                       files[i], b, step, files[i]);
        cr_assert_eq(system(command), 0, "%s of %s and %s", files[i], a, b);
    }
}

/* False where `backend` is ucx and there is no UCX. */
static bool train_with_ctrun(const char *name, const char *backend, int steps)
{
    const char *words[ARGUMENTS] = {proc_program("ctrun"), "--nproc_per_node=2", backend};
    struct proc proc;

    add_training(words, name, steps);
    int status = proc_run(&proc, words, NULL, 60);
    bool absent = status != 0 && strstr(ct_buf_str(&proc.text), "backend ucx") != NULL;
    cr_assert(absent || status == 0, "%s", ct_buf_str(&proc.text));
    proc_free(&proc);
    return !absent;
}

static void train_with_mpi(const struct mpi *mpi, const char *ranks, const char *name)
{
    const char *words[ARGUMENTS] = {proc_program("ctworker")};
    struct proc proc;

    add_training(words, name, STEPS);
    cr_assert_eq(run(&proc, mpi, ranks, words, NULL), 0, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, mpi->library);
    e2e_said(&proc, "such a job cannot shrink");
    cr_assert_eq(e2e_count(ct_buf_str(&proc.text), "throughput"), 1, "one rank tells");
    proc_free(&proc);
}

ParameterizedTestParameters(engines, mpirun_trains_to_the_bits_of_ctrun)
{
    return both();
}
ParameterizedTest(int *index, engines, mpirun_trains_to_the_bits_of_ctrun)
{
    const struct mpi *mpi = need(*index);

    (void)train_with_ctrun("shm", "--parallel.backend=shm", STEPS);
    train_with_mpi(mpi, "2", "two");
    expect_equal("shm", "two", STEPS);
    train_with_mpi(mpi, "4", "four");
    expect_equal("shm", "four", STEPS);
}

/* ---- several nodes ---------------------------------------------------------------------------*/

/* Two network namespaces, a wire between them. */
/* The kernel says a little later that a device is up, and libraries leave out what is not. */
static bool is_wired(void *context)
{
    bool up = true;

    (void)context;
    for (int i = 0; i < 2; i++) {
        char command[256];

        (void)snprintf(command, sizeof command,
                       "ip netns exec %s grep -qx up /sys/class/net/eth0/operstate",
                       hosts_space(cluster_hosts(), i));
        up = up && system(command) == 0;
    }
    return up;
}

static void make_nodes(void)
{
    cluster_up(2);
    proc_until(is_wired, NULL, 30, "a wire that is up");
}

/* Whatever became of the test. */
static void leave(void)
{
    cluster_down();
    e2e_leave();
}

/* What came over the wire to the first node. */
static long wire_bytes(void)
{
    char command[256];

    (void)snprintf(command, sizeof command,
                   "ip netns exec %s cat /sys/class/net/eth0/statistics/rx_bytes >bytes",
                   hosts_space(cluster_hosts(), 0));
    cr_assert_eq(system(command), 0);
    return strtol(e2e_read(e2e_in_folder("bytes")), NULL, 10);
}

/* Open MPI with a script in the place of mpirun, which starts two ranks on each node: in the place
 * of ssh it has one that enters the other namespace, under a name of its own, as a host has.
 *
 * MPICH, over UCX and TCP, now and then waits forever in MPI_Finalize (4.0.2): some ranks flush
 * their endpoints while others sleep in a barrier of the launcher. */
static struct mpi mpirun_on_nodes(void)
{
    static char script[PATH_MAX];
    char text[1024];
    struct mpi across = mpis[OPEN_MPI];

    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\nshift\n"
                   "exec ip netns exec %s unshare --uts sh -c \"hostname other-node; $*\"\n",
                   hosts_space(cluster_hosts(), 1));
    const char *shell = e2e_script("shell", text);
    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\nexec ip netns exec %s %s --mca btl tcp,vader,self --mca pml ob1 "
                   "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --bind-to none "
                   "--host 10.78.0.1:2,10.78.0.2:2 --mca plm_rsh_agent %s \"$@\"\n",
                   hosts_space(cluster_hosts(), 0), across.mpirun, shell);
    (void)snprintf(script, sizeof script, "%s", e2e_script("mpirun", text));
    across.mpirun = script;
    across.option = NULL;
    return across;
}

static void expect_equal_losses(const char *a, const char *b)
{
    char command[512];

    (void)snprintf(
        command, sizeof command,
        "for i in %s %s; do grep -oE '\"(step|loss)\":[^,]*' $i.log/metrics.jsonl >$i.losses || "
        "exit 1; done; cmp %s.losses %s.losses",
        a, b, a, b);
    cr_assert_eq(system(command), 0, "losses of %s and %s", a, b);
}

Test(engines, mpirun_on_two_nodes_trains_to_the_bits_of_tcp)
{
    enum { GRADIENTS = 60 * 4 * 4000 }; /* bytes: the wire carried them at each step, at least */

    (void)need(OPEN_MPI);
    make_nodes();
    struct mpi across = mpirun_on_nodes();
    (void)train_with_ctrun("tcp", "--parallel.backend=tcp", STEPS);
    train_with_mpi(&across, "4", "across");
    long carried = wire_bytes();
    cr_assert_gt(carried, GRADIENTS, "%ld bytes", carried);
    expect_equal("tcp", "across", STEPS);
    expect_equal_losses("tcp", "across");
}

/* ---- a death ---------------------------------------------------------------------------------*/

/* Each rank writes its pid, then becomes a trainer. */
static const char *pid_writer(void)
{
    return e2e_script("rank", "#!/bin/sh\n"
                              "echo $$ >pid_${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n"
                              "exec \"$@\"\n");
}

static pid_t pid_of(int rank)
{
    char name[32];

    (void)snprintf(name, sizeof name, "pid_%d", rank);
    pid_t pid = (pid_t)atoi(e2e_read(e2e_in_folder(name)));
    cr_assert_gt(pid, 1);
    return pid;
}

ParameterizedTestParameters(engines, a_killed_rank_ends_the_job_and_a_checkpoint_is_left_to_go_on)
{
    return both();
}
ParameterizedTest(int *index, engines, a_killed_rank_ends_the_job_and_a_checkpoint_is_left_to_go_on)
{
    const struct mpi *mpi = need(*index);
    const char *words[ARGUMENTS] = {pid_writer(), proc_program("ctworker"),
                                    "--checkpoint.every=10"};
    const char *again[ARGUMENTS] = {proc_program("ctworker"), "--checkpoint.resume=auto"};
    struct proc proc;
    int step = 0;

    add_training(words, "ckpt", 1000000);
    start(&proc, mpi, "2", words, NULL);
    (void)e2e_wait_file("ckpt/latest", 60);
    cr_assert_eq(kill(pid_of(1), SIGKILL), 0);
    cr_assert_neq(proc_finish(&proc, 60), 0);
    e2e_said(&proc, "such a job cannot shrink");
    e2e_said(&proc, mpi->killed);
    e2e_wait_gone(pid_of(0), 20);
    proc_free(&proc);

    cr_assert_eq(sscanf(e2e_read("ckpt/latest"), "step_%d", &step), 1);
    add_training(again, "ckpt", step + 10);
    cr_assert_eq(run(&proc, mpi, "2", again, NULL), 0, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "10 steps on 2 workers");
    proc_free(&proc);
}

/* ---- the API ---------------------------------------------------------------------------------*/

ParameterizedTestParameters(engines, ranks_of_mpi_conform)
{
    return both();
}
ParameterizedTest(int *index, engines, ranks_of_mpi_conform)
{
    static const char *const worlds[] = {"2", "3"};
    const struct mpi *mpi = need(*index);
    const char *words[] = {proc_program("../tests/programs/conformance"), "mpi", NULL};

    for (size_t i = 0; i < CT_COUNT(worlds); i++) {
        struct proc proc;

        cr_assert_eq(run(&proc, mpi, worlds[i], words, NULL), 0, "%s", ct_buf_str(&proc.text));
        e2e_said(&proc, "ranks on mpi conform");
        proc_free(&proc);
    }
}

ParameterizedTestParameters(engines, a_rank_of_mpi_that_is_silent_is_named_in_time)
{
    return both();
}
ParameterizedTest(int *index, engines, a_rank_of_mpi_that_is_silent_is_named_in_time)
{
    const struct mpi *mpi = need(*index);
    const char *words[] = {proc_program("../tests/programs/conformance"), "mpi", "silent", NULL};
    struct proc proc;

    cr_assert_neq(run(&proc, mpi, "3", words, NULL), 0);
    e2e_said(&proc, "no sign of rank 1 within 300 ms");
    proc_free(&proc);
}

/* ---- wrong use -------------------------------------------------------------------------------*/

ParameterizedTestParameters(engines, the_library_of_another_mpi_is_told_from_the_right_one)
{
    return both();
}
ParameterizedTest(int *index, engines, the_library_of_another_mpi_is_told_from_the_right_one)
{
    const struct mpi *mpi = need(*index);
    const char *words[ARGUMENTS] = {proc_program("ctworker")};
    char variable[64];
    struct proc proc;

    (void)need(1 - *index);
    add_training(words, "none", STEPS);
    (void)snprintf(variable, sizeof variable, "CTRUN_MPI=%s", mpi->other_library);
    cr_assert_neq(run(&proc, mpi, "2", words, variable), 0);
    e2e_said(&proc, "says rank 0 of 2, but");
    e2e_said(&proc, "name the right one in CTRUN_MPI");
    proc_free(&proc);
}

ParameterizedTestParameters(engines, an_mpi_library_that_is_not_there_is_a_sentence)
{
    return both();
}
ParameterizedTest(int *index, engines, an_mpi_library_that_is_not_there_is_a_sentence)
{
    const struct mpi *mpi = need(*index);
    const char *words[ARGUMENTS] = {proc_program("ctworker")};
    struct proc proc;

    add_training(words, "none", STEPS);
    cr_assert_neq(run(&proc, mpi, "2", words, "CTRUN_MPI=/nowhere/libmpi.so"), 0);
    e2e_said(&proc, "CTRUN_MPI names /nowhere/libmpi.so, which cannot be loaded");
    cr_assert_eq(e2e_count(ct_buf_str(&proc.text), "CTRUN_MPI names"), 1, "one rank tells");
    proc_free(&proc);
}

Test(engines, backend_mpi_without_mpirun_is_a_sentence)
{
    const char *alone[ARGUMENTS] = {proc_program("ctworker"), "--parallel.backend=mpi"};
    const char *agent[ARGUMENTS] = {proc_program("ctrun"), "--nproc_per_node=2",
                                    "--parallel.backend=mpi"};
    const char *const *const both_ways[] = {alone, agent};

    add_training(alone, "none", STEPS);
    add_training(agent, "none", STEPS);
    for (size_t i = 0; i < CT_COUNT(both_ways); i++) {
        struct proc proc;

        cr_assert_eq(proc_run(&proc, both_ways[i], NULL, 30), 2, "%s", ct_buf_str(&proc.text));
        e2e_said(&proc, "mpirun has not started this process");
        proc_free(&proc);
    }
}

/* ---- UCX -------------------------------------------------------------------------------------*/

struct pair {
    const struct proc *agent;
    pid_t lost, now[2];
};

static bool is_whole_again(void *context)
{
    struct pair *pair = context;

    return e2e_workers(pair->agent, pair->now, 2) == 2 && pair->now[0] != pair->lost &&
           pair->now[1] != pair->lost;
}

/* The survivor keeps its UCX worker and makes an endpoint to the newcomer's. */
Test(engines, over_ucx_a_killed_worker_is_replaced_and_the_bits_stay)
{
    enum { LONG = 1500 };
    const char *words[ARGUMENTS] = {proc_program("ctrun"), "--nproc_per_node=2",
                                    "--parallel.backend=ucx", "--max_restarts=1",
                                    "--checkpoint.every=100"};
    struct proc proc;
    struct pair pair = {.agent = &proc};
    pid_t before[2];

    if (!train_with_ctrun("short", "--parallel.backend=ucx", STEPS))
        cr_skip_test("skipped: there is no UCX here");
    (void)train_with_ctrun("whole", "--parallel.backend=shm", LONG);
    add_training(words, "ucx", LONG);
    proc_start(&proc, words, NULL);
    (void)e2e_wait_file("ucx/latest", 60);
    cr_assert_eq(e2e_workers(&proc, before, 2), 2);
    pair.lost = before[1];
    cr_assert_eq(kill(pair.lost, SIGKILL), 0);
    proc_until(is_whole_again, &pair, 30, "a new worker");
    cr_assert(pair.now[0] == before[0] || pair.now[1] == before[0], "the survivor was restarted");
    cr_assert_eq(proc_finish(&proc, 90), 0, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "1 of 2 workers continue from step");
    expect_equal("whole", "ucx", LONG);
    proc_free(&proc);
}

/* Two nodes of two ranks each, of which those named in `fabric` (two letters, 'y' or 'n') seem to
 * have an RDMA device: what their ranks say, UCX's lines among it. */
static void train_on_nodes(const char *name, const char *fabric, struct ct_buf *ret_said)
{
    const char *shell = e2e_script("fabric", "#!/bin/sh\n"
                                             "mkdir -p net && mount --bind /sys/class/net net &&\n"
                                             "mount -t tmpfs none /sys/class &&\n"
                                             "mkdir -p /sys/class/infiniband/a /sys/class/net &&\n"
                                             "mount --bind net /sys/class/net && exec \"$@\"\n");
    const char *env[] = {"UCX_LOG_LEVEL=info", NULL};
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);

    for (int i = 0; i < 2; i++) {
        const char *words[ARGUMENTS] = {"unshare", "-m"};
        int count = 2;

        if (fabric[i] == 'y')
            words[count++] = shell;
        words[count++] = proc_program("ctrun");
        words[count++] = "--nnodes=2";
        words[count++] = "--nproc_per_node=2";
        words[count++] = "--rdzv_endpoint";
        words[count++] = endpoint;
        add_training(words, name, STEPS);
        proc_start(&nodes[i], words, env);
    }
    ct_buf_init(ret_said, 0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 60), 0, "%s", ct_buf_str(&nodes[i].text));
        (void)ct_buf_puts(ret_said, ct_buf_str(&nodes[i].text));
        proc_free(&nodes[i]);
    }
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon, 10), 0);
    proc_free(&daemon);
}

Test(engines, between_nodes_that_all_have_an_rdma_device_data_goes_over_ucx)
{
    struct ct_buf both_have, one_has;

    if (system("unshare -m true >/dev/null 2>&1") != 0)
        cr_skip_test("skipped: mount namespaces need root");
    train_on_nodes("one", "yn", &one_has);
    train_on_nodes("both", "yy", &both_have);
    bool has_ucx = strstr(ct_buf_str(&both_have), "UCX  INFO") != NULL;
    cr_assert(!has_ucx || strstr(ct_buf_str(&both_have), "ep_cfg") != NULL, "%s",
              ct_buf_str(&both_have));
    cr_assert(strstr(ct_buf_str(&one_has), "ep_cfg") == NULL, "%s", ct_buf_str(&one_has));
    expect_equal("one", "both", STEPS);
    ct_buf_deinit(&both_have);
    ct_buf_deinit(&one_has);
    if (!has_ucx)
        cr_skip_test("skipped: there is no UCX here");
}
