/* Two hosts: network namespaces joined by a veth pair, each with an agent; one job between them.
 *
 * The namespaces carry this process's pid in their names, hold nothing but loopback and the pair,
 * and are deleted at the end. Needs root; skipped otherwise. */
#include "e2e.h"

#include "base/fs.h"
#include "base/hash.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char names[2][32];

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...)
{
    char command[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

static void enter(void)
{
    e2e_enter();
    if (geteuid() != 0)
        return;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(names[i], sizeof names[i], "ct%d-%d", (int)getpid(), i);
        cr_assert_eq(shell("ip netns add %s && ip -n %s link set lo up", names[i], names[i]), 0);
    }
    cr_assert_eq(
        shell("ip link add v0 netns %s type veth peer name v0 netns %s", names[0], names[1]), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(shell("ip -n %s addr add 10.77.0.%d/24 dev v0 && ip -n %s link set v0 up",
                           names[i], i + 1, names[i]),
                     0);
}

static void leave(void)
{
    for (int i = 0; i < 2; i++)
        if (names[i][0] != '\0')
            (void)shell("ip netns del %s", names[i]);
    e2e_leave();
}

TestSuite(two_hosts, .init = enter, .fini = leave, .timeout = 120);

static bool no_namespaces(void)
{
    return geteuid() != 0;
}

/* Start node `i` of two inside its namespace, training with `dir` as the place of checkpoints. */
static void start_host(struct proc *host, int i, const char *dir, const char *key)
{
    static char words[2][4][PATH_MAX];
    const char *const argv[] = {"ip",
                                "netns",
                                "exec",
                                names[i],
                                proc_program("ctrun"),
                                "--nnodes=2",
                                i == 0 ? "--node_rank=0" : "--node_rank=1",
                                "--rdzv_endpoint=10.77.0.1:29400",
                                words[i][0],
                                words[i][1],
                                words[i][2],
                                "--join_timeout=20s",
                                "--train.steps=60",
                                "--parallel.reduce=invariant",
                                "--batch.micro=8",
                                e2e_in_root("configs/digits_mlp.yaml"),
                                NULL};

    (void)snprintf(words[i][0], PATH_MAX, "--key_file=%s", key);
    (void)snprintf(words[i][1], PATH_MAX, "--checkpoint.dir=%s", dir);
    (void)snprintf(words[i][2], PATH_MAX, "--log.dir=%s.run", dir);
    proc_start(host, argv, NULL);
}

static const char *new_key(const char *name)
{
    struct proc run;
    const char *path = e2e_in_folder(name);

    cr_assert_eq(e2e_run(&run, "key", "new", path, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    return path;
}

static uint64_t hash_of(const char *path)
{
    struct ct_error err = {0};
    struct ct_buf content;

    ct_buf_init(&content, 0);
    cr_assert_eq(ct_fs_read(path, 1u << 26, &content, &err), 0, "%s", err.text);
    uint64_t hash = ct_hash64(content.data, content.size, 0);
    ct_buf_deinit(&content);
    return hash;
}

Test(two_hosts, two_hosts_train_to_the_same_bits_as_one_host_with_two_workers)
{
    struct proc hosts[2];
    struct proc single;

    if (no_namespaces())
        cr_skip_test("skipped: network namespaces need root");
    const char *key = new_key("key");
    for (int i = 0; i < 2; i++)
        start_host(&hosts[i], i, "two", key);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&hosts[i], 60), 0, "%s", ct_buf_str(&hosts[i].text));
    cr_assert_eq(e2e_run(&single, "--nproc_per_node=2", "--train.steps=60",
                         "--parallel.reduce=invariant", "--batch.micro=8", "--checkpoint.dir=one",
                         "--log.dir=one.run", e2e_in_root("configs/digits_mlp.yaml"), NULL),
                 0, "%s", ct_buf_str(&single.text));
    cr_assert_eq(hash_of("two/step_00000060/model.safetensors"),
                 hash_of("one/step_00000060/model.safetensors"));
    proc_free(&single);
    for (int i = 0; i < 2; i++)
        proc_free(&hosts[i]);
}

Test(two_hosts, a_wrong_key_is_refused_with_a_sentence_and_status_77)
{
    struct proc hosts[2];

    if (no_namespaces())
        cr_skip_test("skipped: network namespaces need root");
    const char *good = new_key("good");
    const char *wrong = new_key("wrong");
    start_host(&hosts[0], 0, "two", good);
    start_host(&hosts[1], 1, "two", wrong);
    cr_assert_eq(proc_finish(&hosts[1], 40), 77, "%s", ct_buf_str(&hosts[1].text));
    e2e_said(&hosts[1], "key");
    cr_assert_eq(kill(hosts[0].pid, SIGINT), 0);
    (void)proc_finish(&hosts[0], 30);
    for (int i = 0; i < 2; i++)
        proc_free(&hosts[i]);
}

Test(two_hosts, listening_on_a_real_address_without_a_key_is_refused)
{
    struct proc run;

    if (no_namespaces())
        cr_skip_test("skipped: network namespaces need root");
    const char *const argv[] = {"ip",
                                "netns",
                                "exec",
                                names[0],
                                proc_program("ctrun"),
                                "--nnodes=2",
                                "--node_rank=0",
                                "--rdzv_endpoint=10.77.0.1:29400",
                                "/bin/true",
                                NULL};
    cr_assert_eq(proc_run(&run, argv, NULL, 20), 77, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "ctrun key new");
    proc_free(&run);
}

Test(two_hosts, a_cut_cable_ends_the_job_within_the_lease)
{
    struct proc hosts[2];

    if (no_namespaces())
        cr_skip_test("skipped: network namespaces need root");
    const char *nap = e2e_script("nap", "#!/bin/sh\n: > up.$RANK\nexec sleep 600\n");
    const char *key = new_key("key");
    char option[PATH_MAX];
    (void)snprintf(option, sizeof option, "--key_file=%s", key);
    for (int i = 0; i < 2; i++) {
        const char *const argv[] = {"ip",
                                    "netns",
                                    "exec",
                                    names[i],
                                    proc_program("ctrun"),
                                    "--nnodes=2",
                                    i == 0 ? "--node_rank=0" : "--node_rank=1",
                                    "--rdzv_endpoint=10.77.0.1:29400",
                                    option,
                                    "--lease=1s",
                                    "--join_timeout=3s",
                                    nap,
                                    NULL};
        proc_start(&hosts[i], argv, NULL);
    }
    for (double end = proc_now_s() + 20; !e2e_exists("up.0") || !e2e_exists("up.1");)
        cr_assert_lt(proc_now_s(), end);
    cr_assert_eq(shell("ip -n %s link set v0 down", names[1]), 0);
    double start = proc_now_s();
    cr_assert_eq(proc_finish(&hosts[0], 20), 79, "%s", ct_buf_str(&hosts[0].text));
    cr_assert_lt(proc_now_s() - start, 10);
    cr_assert_eq(kill(hosts[1].pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&hosts[1], 10), 130, "%s", ct_buf_str(&hosts[1].text));
    for (int i = 0; i < 2; i++)
        proc_free(&hosts[i]);
}
