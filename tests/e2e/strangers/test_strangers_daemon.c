/* Hostile clients of a real ctrund: what they send, ask and leave costs the others nothing. Each is
 * a raw socket of ours on loopback. */
#include "e2e.h"
#include "sanitized.h"
#include "speech.h"

#include "base/assert.h"
#include "cluster/procfs.h"
#include "wire/link.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(strangers_daemon, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

/* ---- a stranger ------------------------------------------------------------------------------ */

struct stranger {
    int fd;
    struct ct_link link;
    struct ct_arena arena;
};

static void stranger_connect(struct stranger *stranger, const char *endpoint)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(strchr(endpoint, ':') + 1)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    stranger->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(stranger->fd, 0);
    cr_assert_eq(connect(stranger->fd, (struct sockaddr *)&address, sizeof address), 0);
    ct_link_init(&stranger->link, stranger->fd, CT_FROM_SERVER);
    ct_arena_init(&stranger->arena, 1 << 20);
}

static void stranger_close(struct stranger *stranger)
{
    ct_arena_deinit(&stranger->arena);
    ct_link_deinit(&stranger->link);
    (void)close(stranger->fd);
}

static void stranger_send(struct stranger *stranger, const struct ct_message *message)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_link_send(&stranger->link, message, 10000, &err), 0, "%s", err.text);
}

static struct ct_message hello_of(const char *job, uint64_t number)
{
    return (struct ct_message){.type = CT_MSG_HELLO,
                               .hello = {.protocol = CT_WIRE_PROTOCOL,
                                         .job = job,
                                         .host = "evil",
                                         .incarnation = {number, 1},
                                         .role = "agent"}};
}

static struct ct_message join_of(uint64_t number)
{
    return (struct ct_message){.type = CT_MSG_JOIN,
                               .join = {.seq = 1,
                                        .incarnation = {number, 1},
                                        .slots = 1,
                                        .node_rank = -1,
                                        .slurm_node = -1,
                                        .nodes_min = 2,
                                        .nodes_max = 16384,
                                        .host = "evil",
                                        .address = "",
                                        .role = "",
                                        .settings = "",
                                        .join_timeout_ms = 60000,
                                        .last_call_ms = 1,
                                        .lease_ms = 60000,
                                        .prepare_ms = 30000,
                                        .grow_ms = 100,
                                        .autonomy_ms = 600000}};
}

/* The next answer, or 0 when the daemon ended the connection. */
static unsigned answer(struct stranger *stranger, struct ct_message *ret)
{
    struct ct_error err = {0};
    int rc = ct_link_receive(&stranger->link, 10000, &stranger->arena, ret, &err);

    cr_assert_neq(rc, CT_ETIMEOUT, "%s", err.text);
    return rc == 0 ? ret->type : 0;
}

/* As a node of `job`, up to what the daemon says. */
static unsigned stranger_join(struct stranger *stranger, const char *job, uint64_t number,
                              const struct ct_message *join)
{
    struct ct_message got, hello = hello_of(job, number);

    stranger_send(stranger, &hello);
    stranger_send(stranger, join);
    return answer(stranger, &got);
}

static void expect_status(const char *endpoint, const char *words)
{
    struct proc asker;

    cr_assert_eq(e2e_run(&asker, "status", "--rdzv_endpoint", endpoint, NULL), 0, "%s",
                 ct_buf_str(&asker.text));
    e2e_said(&asker, words);
    proc_free(&asker);
}

static void end_daemon(struct proc *daemon)
{
    (void)kill(daemon->pid, SIGTERM);
    cr_assert_eq(proc_finish(daemon, 10), 0, "%s", ct_buf_str(&daemon->text));
    proc_free(daemon);
}

/* ---- SIGHUP ---------------------------------------------------------------------------------- */

static void copy_key(const char *from, const char *to)
{
    const char *const argv[] = {"/bin/cp", "-p", from, to, NULL};
    struct proc copy;

    cr_assert_eq(proc_run(&copy, argv, NULL, 10), 0, "%s", ct_buf_str(&copy.text));
    proc_free(&copy);
}

static int ask_with(const char *endpoint, const char *key, struct proc *ret)
{
    return e2e_run(ret, "status", "--rdzv_endpoint", endpoint, "--rdzv_id=j", "--key_file", key,
                   NULL);
}

Test(strangers_daemon, sighup_reads_the_key_again_and_links_that_stand_go_on)
{
    struct proc daemon, node, asker;
    const char *used = e2e_in_folder("used.key"), *port_file = e2e_in_folder("port");
    char first[256], second[256], endpoint[64];

    (void)snprintf(first, sizeof first, "%s", e2e_in_folder("first.key"));
    (void)snprintf(second, sizeof second, "%s", e2e_in_folder("second.key"));
    cr_assert_eq(e2e_run(&asker, "key", "new", first, NULL), 0);
    proc_free(&asker);
    cr_assert_eq(e2e_run(&asker, "key", "new", second, NULL), 0);
    proc_free(&asker);
    copy_key(first, used);
    const char *const argv[] = {
        proc_program("ctrund"), "--listen", "127.0.0.1:0", "--port_file", port_file,
        "--key_file",           used,       NULL};
    proc_start(&daemon, argv, NULL);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", atoi(e2e_wait_file(port_file, 10)));
    const char *nap = e2e_script("nap", "#!/bin/sh\n"
                                        "until test -e enough; do sleep 0.05; done\n");
    e2e_start(&node, "--nnodes=1", "--rdzv_endpoint", endpoint, "--rdzv_id=j", "--key_file", first,
              nap, NULL);
    (void)proc_wait_text(&daemon, "job j", 10);

    copy_key(second, used);
    (void)kill(daemon.pid, SIGHUP);
    (void)proc_wait_text(&daemon, "SIGHUP: new links need the key", 10);
    cr_assert_eq(ask_with(endpoint, first, &asker), 77, "%s", ct_buf_str(&asker.text));
    proc_free(&asker);
    cr_assert_eq(ask_with(endpoint, second, &asker), 0, "%s", ct_buf_str(&asker.text));
    e2e_said(&asker, "job j");
    proc_free(&asker);

    cr_assert_eq(chmod(used, 0644), 0);
    (void)kill(daemon.pid, SIGHUP);
    (void)proc_wait_text(&daemon, "SIGHUP: the keys of before stay in use", 10);
    cr_assert_eq(ask_with(endpoint, second, &asker), 0, "%s", ct_buf_str(&asker.text));
    proc_free(&asker);

    (void)e2e_write("enough", "");
    cr_assert_eq(proc_finish(&node, 20), 0, "the link stood:\n%s", ct_buf_str(&node.text));
    e2e_not_said(&node, "rendezvous is");
    proc_free(&node);
    end_daemon(&daemon);
}

Test(strangers_daemon, sighup_without_a_key_ends_nothing)
{
    struct proc daemon;
    const char *endpoint = e2e_daemon(&daemon);

    (void)kill(daemon.pid, SIGHUP);
    (void)proc_wait_text(&daemon, "SIGHUP: there is no key file", 10);
    struct stranger one;
    stranger_connect(&one, endpoint);
    struct ct_message join = join_of(1);
    cr_assert_eq(stranger_join(&one, "j", 1, &join), CT_MSG_WELCOME);
    stranger_close(&one);
    end_daemon(&daemon);
}

/* ---- the log --------------------------------------------------------------------------------- */

/* Nobody reads its standard error, and strangers cause far more lines than a pipe holds. */
Test(strangers_daemon, a_stalled_reader_of_its_log_stops_no_daemon)
{
    enum { JOBS = 200 };
    struct proc daemon;
    const char *endpoint = e2e_daemon(&daemon);

    cr_assert_geq(fcntl(daemon.output, F_SETPIPE_SZ, 4096), 4096);
    for (uint64_t i = 0; i < JOBS; i++) { /* each begins a job, which is a line at least */
        struct stranger stranger;
        struct ct_message join = join_of(i + 1);
        char job[100];

        (void)snprintf(job, sizeof job, "a-job-whose-name-is-long-enough-to-fill-a-pipe-%u",
                       (unsigned)i);
        join.join.nodes_min = 1;
        join.join.nodes_max = 1;
        stranger_connect(&stranger, endpoint);
        cr_assert_eq(stranger_join(&stranger, job, i + 1, &join), CT_MSG_WELCOME);
        stranger_close(&stranger);
    }
    struct stranger last;
    struct ct_message join = join_of(JOBS + 1);
    stranger_connect(&last, endpoint);
    cr_assert_eq(stranger_join(&last, "last", JOBS + 1, &join), CT_MSG_WELCOME);
    expect_status(endpoint, "last");
    stranger_close(&last);
    end_daemon(&daemon);
}

Test(strangers_daemon, lines_that_strangers_cause_are_limited)
{
    enum { STRANGERS = 300, LINES = 32 };
    struct proc daemon;
    const char *endpoint = e2e_daemon(&daemon);

    for (int i = 0; i < STRANGERS; i++) {
        struct stranger stranger;
        struct ct_message got, join = join_of(1);

        stranger_connect(&stranger, endpoint);
        stranger_send(&stranger, &join); /* before HELLO */
        cr_assert_eq(answer(&stranger, &got), 0u);
        stranger_close(&stranger);
    }
    (void)kill(daemon.pid, SIGTERM);
    cr_assert_eq(proc_finish(&daemon, 10), 0);
    int lines = e2e_count(ct_buf_str(&daemon.text), "a message before HELLO");
    cr_assert_gt(lines, 0);
    cr_assert_leq(lines, 2 * LINES, "%d lines of %d strangers", lines, STRANGERS);
    proc_free(&daemon);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Our own encoder sends no such name: put it into the frame afterwards. */
Test(strangers_daemon, a_name_with_a_newline_forges_no_line_of_the_log)
{
    static const char evil[] = "a\nctrund: job j: all is well\x1b[2J";
    struct proc daemon;
    struct stranger stranger;
    struct ct_message got, hello = hello_of("j", 1);
    struct ct_buf frame;
    char host[sizeof evil];
    const char *endpoint = e2e_daemon(&daemon);

    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    hello.hello.host = host;
    hello.hello.protocol = 99; /* so that the refusal would repeat the name */
    ct_buf_init(&frame, 0);
    cr_assert_eq(ct_wire_encode(&hello, 0, &frame, NULL), 0);
    memcpy(memmem(frame.data, frame.size, host, sizeof host - 1), evil, sizeof evil - 1);
    stranger_connect(&stranger, endpoint);
    cr_assert_eq(send(stranger.fd, frame.data, frame.size, MSG_NOSIGNAL), (ssize_t)frame.size);
    cr_assert_eq(answer(&stranger, &got), 0u, "it is not even answered");
    stranger_close(&stranger);
    ct_buf_deinit(&frame);
    (void)proc_wait_text(&daemon, "field host has control characters", 10);
    (void)kill(daemon.pid, SIGTERM);
    cr_assert_eq(proc_finish(&daemon, 10), 0);
    e2e_not_said(&daemon, "all is well");
    cr_assert_null(strchr(ct_buf_str(&daemon.text), '\x1b'));
    proc_free(&daemon);
}

/* A worker writes what it likes: its own node passes it on, the others and the daemon show it as
 * text. */
Test(strangers_daemon, last_words_of_another_nodes_worker_drive_no_terminal_and_forge_no_line)
{
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);
    const char *evil = e2e_script("evil.sh", "#!/bin/sh\n"
                                             "[ $RANK = 1 ] || exec sleep 600\n"
                                             "printf 'dark\\033[2Jness\\033]0;t\\007' >&2\n"
                                             "printf '\\nctrun: all is well\\n' >&2\n"
                                             "exit 9\n");

    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", "--rdzv_endpoint", endpoint, "--log_dir=logs",
                  i == 0 ? "--node_rank=0" : "--node_rank=1", evil, NULL);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&nodes[i], 30), 9, "%s", ct_buf_str(&nodes[i].text));
    (void)kill(daemon.pid, SIGTERM);
    cr_assert_eq(proc_finish(&daemon, 10), 0);
    if (!speech_is_json()) { /* in a record it is one string, escaped by JSON's rules */
        e2e_said(&nodes[0], "  | dark\\x1b[2Jness\\x1b]0;t\\x07\n  | ctrun: all is well\n");
        e2e_not_said(&nodes[0], "\nctrun: all is well");
        cr_assert_null(strchr(ct_buf_str(&nodes[0].text), '\x1b'));
        e2e_said(&daemon, "all is well");
        e2e_not_said(&daemon, "\nctrun: all is well");
        cr_assert_null(strchr(ct_buf_str(&daemon.text), '\x1b'));
    }
    proc_free(&daemon);
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
}

/* ---- budgets --------------------------------------------------------------------------------- */

static long resident_kib(pid_t pid)
{
    uint64_t bytes = procfs_resident_bytes(pid, false);

    cr_assert_gt(bytes, 0);
    return (long)(bytes / 1024);
}

/* A frame of 8 MiB is announced before anything was proved. */
Test(strangers_daemon, who_has_not_joined_sends_no_large_message)
{
    struct proc daemon;
    struct stranger stranger;
    struct ct_message got;
    static unsigned char value[1 << 20];
    struct ct_message large = {.type = CT_MSG_STORE_SET,
                               .store_set = {.key = "k", .value = {value, sizeof value}}};
    const char *endpoint = e2e_daemon(&daemon);

    stranger_connect(&stranger, endpoint);
    (void)ct_link_send(&stranger.link, &large, 10000, NULL);
    cr_assert_eq(answer(&stranger, &got), 0u);
    stranger_close(&stranger);
    (void)proc_wait_text(&daemon, "at most 65536 may come", 10);
    end_daemon(&daemon);
}

Test(strangers_daemon, a_lease_of_days_is_refused_with_what_the_daemon_gives)
{
    struct proc daemon;
    struct stranger stranger;
    struct ct_message got, hello = hello_of("j", 1), join = join_of(1);
    const char *endpoint = e2e_daemon(&daemon);

    join.join.lease_ms = 20u * 86400000u;
    join.join.autonomy_ms = UINT32_MAX / 2;
    stranger_connect(&stranger, endpoint);
    stranger_send(&stranger, &hello);
    stranger_send(&stranger, &join);
    cr_assert_eq(answer(&stranger, &got), CT_MSG_REFUSE);
    cr_assert_not_null(strstr(got.refuse.text, "gives 600000 ms at most"), "%s", got.refuse.text);
    stranger_close(&stranger);
    end_daemon(&daemon);
}

/* 1,024 jobs, the daemon's limit, made and left: a node of a true job finds a place. */
Test(strangers_daemon, jobs_that_were_made_and_left_keep_no_place)
{
    enum { JOBS = 1024 };
    struct proc daemon;
    struct stranger stranger;
    struct ct_message join;
    const char *endpoint = e2e_daemon(&daemon);

    for (uint64_t i = 0; i <= JOBS; i++) {
        char job[32];

        (void)snprintf(job, sizeof job, "j%u", (unsigned)i);
        join = join_of(i + 1);
        join.join.nodes_max = 2;
        join.join.lease_ms = 600000; /* a closed link may come back within 5 s */
        join.join.prepare_ms = 200000;
        join.join.autonomy_ms = 2000000;
        stranger_connect(&stranger, endpoint);
        cr_assert_eq(stranger_join(&stranger, job, i + 1, &join), CT_MSG_WELCOME, "job %u",
                     (unsigned)i);
        stranger_close(&stranger);
    }
    cr_assert_lt(resident_kib(daemon.pid), 200 << 10);
    end_daemon(&daemon);
}

/* A JOIN of 300 bytes asks for 16,384 places: the memory is that of the one node which came. */
Test(strangers_daemon, a_job_of_many_places_costs_what_its_nodes_need)
{
    enum { JOBS = 60 };
    struct proc daemon;
    struct stranger strangers[JOBS];
    const char *endpoint = e2e_daemon(&daemon);
    long before = resident_kib(daemon.pid);

    for (int turn = 0; turn < 2; turn++) { /* memory that was given back is taken again */
        for (uint64_t i = 0; i < JOBS; i++) {
            struct ct_message join = join_of(i + 1);
            char job[32];

            (void)snprintf(job, sizeof job, "j%d.%u", turn, (unsigned)i);
            stranger_connect(&strangers[i], endpoint);
            cr_assert_eq(stranger_join(&strangers[i], job, i + 1, &join), CT_MSG_WELCOME);
        }
        long grown = resident_kib(daemon.pid) - before;
        cr_assert_lt(grown, JOBS * (SANITIZED ? 1024 : 512), "%ld KiB for %d jobs of one node each",
                     grown, JOBS);
        for (int i = 0; i < JOBS; i++)
            stranger_close(&strangers[i]);
    }
    end_daemon(&daemon);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* With 200 descriptors 136 links may be: the next is told which limit it met, and nobody else
 * notices. */
Test(strangers_daemon, who_finds_no_room_is_told_the_limit)
{
    enum { LINKS = 200 - 64 };
    static struct stranger strangers[LINKS + 1];
    struct ct_message got, hello, join;
    struct proc daemon;
    char endpoint[64];
    const char *port_file = e2e_in_folder("port");
    const char *const argv[] = {
        "/bin/sh",
        "-c",
        "ulimit -n 200; exec \"$0\" --listen 127.0.0.1:0 --port_file \"$1\"",
        proc_program("ctrund"),
        port_file,
        NULL};

    proc_start(&daemon, argv, NULL);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", atoi(e2e_wait_file(port_file, 10)));
    for (uint64_t i = 0; i < LINKS; i++) {
        join = join_of(i + 1);
        stranger_connect(&strangers[i], endpoint);
        cr_assert_eq(stranger_join(&strangers[i], "j", i + 1, &join), CT_MSG_WELCOME, "link %u",
                     (unsigned)i);
    }
    (void)proc_wait_text(&daemon,
                         "has room for 136 connections at once (it may have 200 descriptors, "
                         "`ulimit -Hn`), one for each node and each operator",
                         10);
    hello = hello_of("j", LINKS + 1);
    stranger_connect(&strangers[LINKS], endpoint);
    stranger_send(&strangers[LINKS], &hello);
    cr_assert_eq(answer(&strangers[LINKS], &got), CT_MSG_REFUSE);
    cr_assert_eq(got.refuse.code, CT_ELIMIT);
    cr_assert_gt(got.refuse.retry_ms, 0u, "it may ask again");
    cr_assert_not_null(strstr(got.refuse.text, "has 136 connections, of 136 at most (quota links, "
                                               "set by `ulimit -Hn`)"),
                       "%s", got.refuse.text);
    for (int i = 0; i <= LINKS; i++)
        stranger_close(&strangers[i]);
    end_daemon(&daemon);
}

/* The soft limit of descriptors that a process has. */
static unsigned descriptors_of(pid_t pid)
{
    char path[64], line[256];
    unsigned soft = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    while (soft == 0 && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "Max open files %u", &soft);
    (void)fclose(file);
    return soft;
}

static bool has_worker(void *context)
{
    pid_t worker;

    return e2e_workers(context, &worker, 1) == 1;
}

Test(strangers_daemon, a_node_that_hosts_has_all_descriptors_and_its_workers_the_users)
{
    struct proc node;
    pid_t worker = 0;
    const char *const argv[] = {
        "/bin/sh",
        "-c",
        "ulimit -Sn 200; ulimit -Hn 300; exec \"$0\" --nproc_per_node 1 --log.dir run "
        "--checkpoint.dir run \"$1\" --train.epochs 1000",
        proc_program("ctrun"),
        e2e_in_root("configs/digits_mlp.yaml"),
        NULL};

    proc_start(&node, argv, NULL);
    proc_until(has_worker, &node, 10, "a worker");
    cr_assert_eq(e2e_workers(&node, &worker, 1), 1);
    cr_assert_eq(descriptors_of(node.pid), 300u);
    cr_assert_eq(descriptors_of(worker), 200u);
    (void)kill(node.pid, SIGTERM);
    (void)proc_finish(&node, 20);
    proc_free(&node);
}

/* A script's job, whose store has half of what 16 a worker and 64 more leave. */
Test(strangers_daemon, who_hosts_a_job_that_may_grow_beyond_its_descriptors_says_so_at_the_start)
{
    static const char *const nodes[] = {"1:60", "1:61"};
    static const char *const words =
        "--nnodes lets in up to 61 nodes, but where this ctrun hosts the rendezvous it has room "
        "for 60 connections at once (it may have 200 descriptors, `ulimit -Hn`), as PyTorch's "
        "store has half of them: nodes beyond them are turned away and come again; raise the hard "
        "limit here before the start (`ulimit -Hn`), or give a ctrund as --rdzv_endpoint";

    for (int i = 0; i < 2; i++) {
        struct proc node;
        const char *const argv[] = {
            "/bin/sh",
            "-c",
            "ulimit -n 200; exec \"$0\" --nproc_per_node 1 --nnodes \"$1\" --rdzv_endpoint "
            "127.0.0.1:0 --last_call 10ms -- true",
            proc_program("ctrun"),
            nodes[i],
            NULL};

        proc_start(&node, argv, NULL);
        cr_assert_eq(proc_finish(&node, 20), 0, "%s", ct_buf_str(&node.text));
        if (i == 0)
            e2e_not_said(&node, "--nnodes lets in");
        else
            e2e_said(&node, words);
        proc_free(&node);
    }
}
