/* Three ctrund hold the record together, each on a host and a disk of its own. */
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "nodes/cluster.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

TestSuite(peers, .init = drill_enter, .fini = drill_leave, .timeout = 120);

enum { PEERS = 3, NODES = 3, STEPS = 2500 };
static const char *const debug[] = {"--log.level=debug", NULL};
static const struct fleet run = {.name = "run", .steps = STEPS, .words = debug};

static struct proc *peers[PEERS];

/* ---- who leads ------------------------------------------------------------------------------ */

/* The peer that serves in the highest epoch, -1: none. It is asked from now on. */
static int leader_now(void)
{
    double highest = 0;
    int leader = -1;

    for (int i = 0; i < PEERS; i++) {
        drill_ask_peer(i);
        double epoch = drill_metric("ctrun_epoch");

        if (epoch > highest) {
            highest = epoch;
            leader = i;
        }
    }
    if (leader >= 0)
        drill_ask_peer(leader);
    return leader;
}

struct search {
    int but, found;
};

static bool is_led(void *context)
{
    struct search *search = context;

    search->found = leader_now();
    return search->found >= 0 && search->found != search->but;
}

static int wait_leader(int but)
{
    struct search search = {.but = but};

    proc_until(is_led, &search, 20, "a ctrund that leads");
    return search.found;
}

static void start_peers(void)
{
    cluster_up(PEERS);
    for (int i = 0; i < PEERS; i++)
        peers[i] = drill_peer(i, PEERS);
}

/* One that was killed. */
static void start_again(int peer)
{
    peers[peer] = drill_peer(peer, PEERS);
}

/* ---- a training ----------------------------------------------------------------------------- */

static void start_training(struct drill_job *job, pid_t workers[NODES])
{
    start_peers();
    (void)wait_leader(-1);
    job->endpoints = drill_peers();
    fleet_job(&run, job);
    fleet_disk_slow();
    for (int i = 0; i < NODES; i++)
        (void)drill_node(i, i, job);
    fleet_wait_step(&run, 60, 40);
    for (int i = 0; i < NODES; i++)
        workers[i] = fleet_worker_now(i);
}

static void expect_same_workers(const pid_t workers[NODES])
{
    for (int i = 0; i < NODES; i++)
        cr_assert_eq(fleet_worker_now(i), workers[i], "the worker of node %d was restarted", i);
}

static void finish(void)
{
    fleet_disk_fast();
    for (int i = 0; i < NODES; i++)
        cr_assert_eq(fleet_finish(i, 90), 0, "%s", ct_buf_str(&drill_proc(i)->text));
    fleet_expect_samples(&run);
}

/* A worker dies: the round that follows is the next one, and nobody is left out. */
static void expect_next_round(pid_t worker, int generation)
{
    int step = fleet_step(&run);

    cr_assert_eq(kill(worker, SIGKILL), 0);
    drill_wait_metric("ctrun_generation", generation, 20);
    drill_wait_metric("ctrun_running", 1, 20);
    fleet_wait_step(&run, step + 20, 30);
}

Test(peers, a_training_goes_on_when_the_ctrund_that_leads_is_killed)
{
    struct drill_job job = {.nodes = "2:3", .lease = "5s", .restarts = 3};
    pid_t workers[NODES];

    start_training(&job, workers);
    int old = wait_leader(-1);
    double since = proc_now_s();
    drill_signal(peers[old], SIGKILL);
    int leader = wait_leader(old);
    double led = drill_ms(since);
    drill_wait_metric("ctrun_links", NODES, 20);
    double back = drill_ms(since);
    fleet_wait_step(&run, fleet_step(&run) + 20, 20);
    expect_same_workers(workers);
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    start_again(old);
    drill_ask_peer(leader);
    (void)proc_wait_text(peers[old], "follows the one at", 20);
    expect_next_round(workers[1], 2);
    finish();
    cr_log_info("another leads after %.0f ms, all agents are back after %.0f ms", led, back);
    cr_assert_lt(led, 3000, "another leads after %.0f ms", led);
}

Test(peers, a_job_goes_on_after_all_three_were_killed_and_started_again)
{
    struct drill_job job = {.nodes = "2:3", .lease = "5s", .restarts = 3};
    pid_t workers[NODES];

    start_training(&job, workers);
    expect_next_round(workers[2], 2);
    for (int i = 0; i < NODES; i++)
        workers[i] = fleet_worker(i, 20);
    for (int i = 0; i < PEERS; i++)
        cr_assert_eq(kill(peers[i]->pid, SIGKILL), 0);
    for (int i = 0; i < PEERS; i++)
        (void)proc_finish(peers[i], 5);
    int step = fleet_step(&run);
    fleet_wait_step(&run, step + 20, 20);
    for (int i = 0; i < PEERS; i++)
        start_again(i);
    (void)wait_leader(-1);
    drill_wait_metric("ctrun_links", NODES, 20);
    cr_assert_eq(drill_metric("ctrun_generation"), 2);
    expect_same_workers(workers);
    expect_next_round(workers[0], 3);
    finish();
}

Test(peers, each_is_replaced_in_turn_under_a_running_job)
{
    struct drill_job job = {.nodes = "2:3", .lease = "5s", .restarts = 3};
    pid_t workers[NODES];

    start_training(&job, workers);
    for (int i = 0; i < PEERS; i++) {
        drill_signal(peers[i], SIGTERM);
        cr_assert_eq(proc_finish(peers[i], 10), 0, "%s", ct_buf_str(&peers[i]->text));
        (void)wait_leader(i);
        start_again(i);
        (void)proc_wait_text(peers[i], "the one at", 20);
    }
    (void)wait_leader(-1);
    drill_wait_metric("ctrun_links", NODES, 20);
    fleet_wait_step(&run, fleet_step(&run) + 20, 20);
    expect_same_workers(workers);
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    finish();
}

/* Its files may not grow: as of a disk that is full. */
static void limit_files(int peer, rlim_t bytes)
{
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};

    cr_assert_eq(prlimit(peers[peer]->pid, RLIMIT_FSIZE, &limit, NULL), 0);
}

Test(peers, one_that_leads_and_cannot_write_its_journal_gives_way_to_another)
{
    struct drill_job job = {.nodes = "2:3", .lease = "5s", .restarts = 3};
    pid_t workers[NODES];

    start_training(&job, workers);
    int old = wait_leader(-1);
    limit_files(old, 1);
    int step = fleet_step(&run);
    cr_assert_eq(kill(workers[1], SIGKILL), 0); /* the round that follows is to be kept */
    (void)proc_wait_text(peers[old], "cannot write", 20);
    (void)wait_leader(old);
    drill_wait_metric("ctrun_generation", 2, 20);
    fleet_wait_step(&run, step + 20, 30);
    limit_files(old, RLIM_INFINITY);
    (void)proc_wait_text(peers[old], "the journal can be written again", 20);
    finish();
}

/* ---- without a majority --------------------------------------------------------------------- */

Test(peers, one_of_three_publishes_no_round_and_says_what_it_waits_for)
{
    struct drill_job job = {.nodes = "3", .lease = "5s", .restarts = 3};
    pid_t workers[NODES];

    start_peers();
    int leader = wait_leader(-1);
    job.endpoints = drill_peers();
    for (int i = 0; i < NODES; i++)
        (void)drill_node(i, i, &job);
    for (int i = 0; i < NODES; i++)
        workers[i] = drill_worker(1, i, 20);
    for (int i = 0; i < PEERS; i++)
        if (i != leader)
            drill_signal(peers[i], SIGKILL);
    (void)proc_wait_text(peers[leader], "2 of the 3 peers must hear each other, and", 20);
    cr_assert_eq(kill(workers[1], SIGKILL), 0);
    drill_pass(3);
    cr_assert_lt(leader_now(), 0, "it leads alone");
    cr_assert(!drill_has_worker(2, 0));
    cr_assert(proc_alive(workers[0]), "nobody may end it");
    start_again((leader + 1) % PEERS);
    (void)wait_leader(-1);
    for (int i = 0; i < NODES; i++)
        (void)drill_worker(2, i, 30);
}

/* ---- rounds --------------------------------------------------------------------------------- */

static bool has_next_round(void *context)
{
    const int *generation = context;

    return leader_now() >= 0 && drill_metric("ctrun_generation") > *generation &&
           drill_metric("ctrun_running") == 1;
}

Test(peers, one_killed_while_a_round_is_made_never_has_its_number_used_twice)
{
    enum { KILLS = 4, PAIR = 2 };
    struct drill_job job = {.nodes = "2", .lease = "2s", .restarts = 9};
    pid_t workers[PAIR];
    int generation = 1;

    start_peers();
    int leader = wait_leader(-1);
    job.endpoints = drill_peers();
    for (int i = 0; i < PAIR; i++)
        (void)drill_node(i, i, &job);
    for (int i = 0; i < PAIR; i++)
        workers[i] = drill_worker(1, i, 20);
    for (int k = 0; k < KILLS; k++) {
        char words[48];

        (void)snprintf(words, sizeof words, "round %d is being made", generation + 1);
        cr_assert_eq(kill(workers[1], SIGKILL), 0);
        (void)proc_wait_text(peers[leader], words, 10);
        drill_pass(k * 0.004); /* another phase each time */
        drill_signal(peers[leader], SIGKILL);
        int old = leader;
        proc_until(has_next_round, &generation, 30, "the next round");
        generation = (int)drill_metric("ctrun_generation");
        for (int i = 0; i < PAIR; i++)
            workers[i] = drill_worker(generation, i, 20);
        start_again(old);
        (void)proc_wait_text(peers[old], "the one at", 20);
        leader = wait_leader(-1);
    }
    for (int i = 0; i < PAIR; i++)
        cr_assert(proc_alive(workers[i]));
    cr_log_info("%d kills, round %d at the end", KILLS, generation);
}

Test(peers, one_that_leads_and_is_cut_off_is_replaced_and_follows_when_it_is_back)
{
    enum { PAIR = 2 };
    struct drill_job job = {.nodes = "2", .lease = "2s", .restarts = 3};
    pid_t workers[PAIR];

    cluster_up(PEERS + PAIR);
    for (int i = 0; i < PEERS; i++)
        peers[i] = drill_peer(i, PEERS);
    int old = wait_leader(-1);
    job.endpoints = drill_peers();
    for (int i = 0; i < PAIR; i++)
        (void)drill_node(i, PEERS + i, &job);
    for (int i = 0; i < PAIR; i++)
        workers[i] = drill_worker(1, i, 20);
    double since = proc_now_s();
    cluster_cut(old);
    (void)proc_wait_text(peers[old], "must hear each other", 20);
    (void)wait_leader(old);
    drill_wait_metric("ctrun_links", PAIR, 20);
    double back = drill_ms(since);
    for (int i = 0; i < PAIR; i++)
        cr_assert(proc_alive(workers[i]));
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    cr_assert_eq(kill(workers[1], SIGKILL), 0);
    for (int i = 0; i < PAIR; i++)
        (void)drill_worker(2, i, 20);
    cluster_restore(old);
    (void)proc_wait_text(peers[old], "follows the one at", 20);
    cr_log_info("all agents are at another one after %.0f ms", back);
}

/* ---- operators ------------------------------------------------------------------------------ */

static int order(struct proc *proc, int peer, const char *verb, const char *host)
{
    char endpoint[64];
    const char *const argv[] = {proc_program("ctrun"), verb,     host,
                                "--rdzv_endpoint",     endpoint, "--key_file",
                                e2e_in_folder("key"),  NULL};

    (void)snprintf(endpoint, sizeof endpoint, "%s:29400", cluster_address(peer));
    cluster_start(proc, peer, argv);
    return proc_finish(proc, 20);
}

Test(peers, an_order_given_to_one_that_follows_reaches_the_one_that_leads)
{
    struct drill_job job = {.nodes = "2:3", .lease = "5s"};
    struct proc proc;

    start_peers();
    int leader = wait_leader(-1), follower = (leader + 1) % PEERS;
    job.endpoints = drill_peers();
    for (int i = 0; i < NODES; i++)
        (void)drill_node(i, i, &job);
    for (int i = 0; i < NODES; i++)
        (void)drill_worker(1, i, 20);
    cr_assert_eq(order(&proc, follower, "drain", "host2"), 0, "%s", ct_buf_str(&proc.text));
    proc_free(&proc);
    drill_wait_metric("ctrun_generation", 2, 20);
    (void)drill_worker(2, 1, 20);
    cr_assert_eq(order(&proc, follower, "cordon", "host1"), 0, "%s", ct_buf_str(&proc.text));
    proc_free(&proc);
    drill_ask_peer(follower);
    cr_assert_not_null(strstr(drill_status(), "follows the one at"), "%s", drill_status());
}

/* ---- what is no service of three ------------------------------------------------------------ */

Test(peers, what_cannot_be_is_refused_with_a_sentence)
{
    static const struct {
        const char *peers, *journal, *takeover, *words;
    } rows[] = {
        {"127.0.0.1:29410,127.0.0.2:29410", "j", "no", "an even number"},
        {"127.0.0.1:29410", "j", "no", "one daemon alone"},
        {"h0,h1,h2", "j", "no", "listens on 127.0.0.1:29410, which is none of --peers h0,h1,h2"},
        {"127.0.0.1:29410,h1,h1", "j", "no", "names h1:29400 twice"},
        {"127.0.0.1:29410,h1,h2", NULL, "no", "--peers needs --journal"},
        {"127.0.0.1:29410,h1,h2", "j", "yes", "exclude each other"},
        {"a,b,c,d,e,f,g,h,i,j,127.0.0.1:29410", "j", "no", "more than 9"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *argv[] = {proc_program("ctrund"),
                              "--listen",
                              "127.0.0.1:29410",
                              "--peers",
                              rows[i].peers,
                              "--takeover",
                              rows[i].takeover,
                              NULL,
                              NULL,
                              NULL};
        struct proc proc;

        if (rows[i].journal != NULL) {
            argv[7] = "--journal";
            argv[8] = e2e_in_folder(rows[i].journal);
        }
        cr_assert_eq(proc_run(&proc, argv, NULL, 10), 2, "%s", ct_buf_str(&proc.text));
        e2e_said(&proc, rows[i].words);
        proc_free(&proc);
    }
}

static int start_with(struct proc *proc, int host, const char *list, const char *key,
                      const char *journal)
{
    char listen[64];
    const char *const argv[] = {proc_program("ctrund"), "--listen", listen,      "--peers", list,
                                "--key_file",           key,        "--journal", journal,   NULL};

    (void)snprintf(listen, sizeof listen, "%s:29400", cluster_address(host));
    cluster_start(proc, host, argv);
    return 0;
}

static void make_key(const char *path)
{
    const char *const argv[] = {proc_program("ctrun"), "key", "new", path, NULL};
    struct proc proc;

    cr_assert_eq(proc_run(&proc, argv, NULL, 10), 0, "%s", ct_buf_str(&proc.text));
    proc_free(&proc);
}

Test(peers, another_key_or_another_list_is_told_on_both_sides)
{
    char list[128], other[128], key[2][256], journal[3][256];
    struct proc three[3];

    cluster_up(3);
    (void)snprintf(list, sizeof list, "%s,%s,%s", cluster_address(0), cluster_address(1),
                   cluster_address(2));
    (void)snprintf(other, sizeof other, "%s,%s,10.78.0.9", cluster_address(0), cluster_address(2));
    for (int i = 0; i < 3; i++)
        (void)snprintf(journal[i], sizeof journal[i], "%s.%d", e2e_in_folder("journal"), i);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(key[i], sizeof key[i], "%s.%d", e2e_in_folder("key"), i);
        make_key(key[i]);
    }
    (void)start_with(&three[0], 0, list, key[0], journal[0]);
    (void)start_with(&three[1], 1, list, key[1], journal[1]);
    (void)start_with(&three[2], 2, other, key[0], journal[2]);
    (void)proc_wait_text(&three[1], "cannot be spoken to", 20);
    (void)proc_wait_text(&three[0], "given different lists of --peers", 20);
    (void)proc_wait_text(&three[0], "key", 20);
    (void)proc_wait_text(&three[2], "given different lists of --peers", 20);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(kill(three[i].pid, SIGTERM), 0);
        cr_assert_eq(proc_finish(&three[i], 10), 0, "%s", ct_buf_str(&three[i].text));
    }
    cr_log_info("%s", ct_buf_str(&three[0].text));
    for (int i = 0; i < 3; i++)
        proc_free(&three[i]);
    /* The folder of one list is none for another. */
    (void)start_with(&three[0], 0, other, key[0], journal[0]);
    cr_assert_eq(proc_finish(&three[0], 10), 65, "%s", ct_buf_str(&three[0].text));
    e2e_said(&three[0],
             "it is of one of the peers 10.78.0.1:29400,10.78.0.2:29400,10.78.0.3:29400");
    proc_free(&three[0]);
}
