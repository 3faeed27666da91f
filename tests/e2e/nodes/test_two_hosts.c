/* Two hosts (cluster.h), each with an agent; one job between them. */
#include "cluster.h"
#include "e2e.h"

#include "base/fs.h"
#include "base/number/hash.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>

static void leave(void)
{
    cluster_down();
    e2e_leave();
}

TestSuite(two_hosts, .init = e2e_enter, .fini = leave, .timeout = 120);

/* Start node `i` of two on its host, training with `dir` as the place of checkpoints. */
static void start_host(struct proc *host, int i, const char *dir, const char *key)
{
    static char words[2][4][PATH_MAX];
    const char *const argv[] = {proc_program("ctrun"),
                                "--nnodes=2",
                                i == 0 ? "--node_rank=0" : "--node_rank=1",
                                "--rdzv_endpoint=10.78.0.1:29400",
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
    cluster_start(host, i, argv);
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

    cluster_up(2);
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

    cluster_up(2);
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

    cluster_up(2);
    const char *const argv[] = {proc_program("ctrun"), "--nnodes=2",
                                "--node_rank=0",       "--rdzv_endpoint=10.78.0.1:29400",
                                "/bin/true",           NULL};
    cluster_start(&run, 0, argv);
    cr_assert_eq(proc_finish(&run, 20), 77, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "ctrun key new");
    proc_free(&run);
}

Test(two_hosts, a_cut_cable_ends_the_job_within_the_lease)
{
    struct proc hosts[2];

    cluster_up(2);
    const char *nap = e2e_script("nap", "#!/bin/sh\n: > up.$RANK\nexec sleep 600\n");
    const char *key = new_key("key");
    char option[PATH_MAX];
    (void)snprintf(option, sizeof option, "--key_file=%s", key);
    for (int i = 0; i < 2; i++) {
        const char *const argv[] = {proc_program("ctrun"),
                                    "--nnodes=2",
                                    i == 0 ? "--node_rank=0" : "--node_rank=1",
                                    "--rdzv_endpoint=10.78.0.1:29400",
                                    option,
                                    "--lease=1s",
                                    "--join_timeout=3s",
                                    nap,
                                    NULL};
        cluster_start(&hosts[i], i, argv);
    }
    for (double end = proc_now_s() + 20; !e2e_exists("up.0") || !e2e_exists("up.1");)
        cr_assert_lt(proc_now_s(), end);
    cluster_cut(0); /* neither end has a carrier */
    cluster_cut(1);
    double start = proc_now_s();
    cr_assert_eq(proc_finish(&hosts[0], 20), 79, "%s", ct_buf_str(&hosts[0].text));
    cr_assert_lt(proc_now_s() - start, 10);
    cr_assert_eq(kill(hosts[1].pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&hosts[1], 10), 130, "%s", ct_buf_str(&hosts[1].text));
    for (int i = 0; i < 2; i++)
        proc_free(&hosts[i]);
}
