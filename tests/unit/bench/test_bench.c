/* The bench of collectives: its counting, its checks, its options, and what it prints. */
#include "collectives/bench/bench.h"

#include "base/assert.h"
#include "job/thread_world.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(bench, .timeout = 60);

Test(bench, sizes_and_factors_are_those_of_nccl_tests)
{
    struct ct_bench_shape whole = ct_bench_shape(CT_BENCH_ALL_REDUCE, 1024, CT_F32, 4);
    struct ct_bench_shape gather = ct_bench_shape(CT_BENCH_ALL_GATHER, 1000, CT_F64, 3);
    struct ct_bench_shape all = ct_bench_shape(CT_BENCH_ALL_TO_ALL, 64, CT_U8, 4);

    cr_assert_eq(whole.count, 256);
    cr_assert_eq(whole.size, 1024);
    cr_assert_eq(gather.count, 41); /* 125 doubles, a third each */
    cr_assert_eq(gather.recv_count, 123);
    cr_assert_eq(gather.size, 984);
    cr_assert_eq(all.send_count, 64);
    cr_assert_float_eq(ct_bench_factor(CT_BENCH_ALL_REDUCE, 4), 1.5, 0);
    cr_assert_float_eq(ct_bench_factor(CT_BENCH_REDUCE_SCATTER, 4), 0.75, 0);
    cr_assert_float_eq(ct_bench_factor(CT_BENCH_BROADCAST, 4), 1, 0);
}

/* ---- results ---------------------------------------------------------------------------------*/

/* What rank 0 printed, and whether all ended well. */
struct shared {
    const struct ct_bench_options *options;
    char text[1 << 16];
};

static int run_rank(struct ct_job *job, void *context)
{
    struct shared *shared = context;
    bool speaks = ct_job_assignment(job)->rank == 0;
    FILE *to = speaks ? fmemopen(shared->text, sizeof shared->text, "w") : NULL;
    struct ct_error err = {0};
    int code = ct_bench_run(job, shared->options, to, &err);

    if (code != 0)
        (void)fprintf(stderr, "%s\n", err.text);
    if (to != NULL)
        (void)fclose(to);
    return code;
}

static int run(const struct ct_bench_options *options, int world, struct shared *shared)
{
    struct ct_thread_world *threads;

    *shared = (struct shared){.options = options};
    cr_assert_eq(ct_thread_world_new(world, &threads), 0);
    int code = thread_ranks_run(threads, run_rank, shared);
    ct_thread_world_free(threads);
    return code;
}

static struct ct_bench_options read_options(int argc, const char *const *argv)
{
    struct ct_bench_options options;
    struct ct_error err = {0};

    cr_assert_eq(ct_bench_read(argc, argv, &options, &err), 0, "%s", err.text);
    return options;
}

Test(bench, every_operation_type_and_reduction_comes_out_right)
{
    const char *argv[] = {"--op", "all", "--min=96", "--max=96", "--iters", "1"};
    struct ct_bench_options options = read_options(CT_COUNT(argv), argv);
    static struct shared shared;

    for (int dtype = 0; dtype < CT_BOOL; dtype++)
        for (int reduce = CT_REDUCE_SUM; reduce <= CT_REDUCE_PROD; reduce++) {
            options.dtype = (enum ct_dtype)dtype;
            options.reduce = (enum ct_reduce)reduce;
            options.root = (uint64_t)reduce % 3;
            options.symmetric = reduce % 2 == 1;
            options.ops = reduce == 0 ? options.ops : (1u << CT_BENCH_REDUCE_SCATTER) | 3;
            cr_assert_eq(run(&options, 3, &shared), 0, "%s, %d", ct_dtype_name(options.dtype),
                         reduce);
            cr_assert_not_null(strstr(shared.text, "# Out of bounds values : 0 OK"));
        }
}

static int spoil(struct ct_job *job, void *context)
{
    float send[12], recv[12];
    struct ct_bench_call call = {.options = context,
                                 .op = CT_BENCH_ALL_REDUCE,
                                 .shape = ct_bench_shape(CT_BENCH_ALL_REDUCE, 48, CT_F32, 2),
                                 .send = send,
                                 .recv = recv};

    if (ct_group_new(job, NULL, &call.group, NULL) != 0)
        return __LINE__;
    ct_bench_fill(&call);
    int line = ct_bench_wrong(&call) == 12 ? 0 : __LINE__; /* nothing has come */
    if (line == 0 && (ct_bench_make(&call) != 0 || ct_bench_wrong(&call) != 0))
        line = __LINE__;
    recv[7] += 1;
    recv[3] = 0;
    if (line == 0 && ct_bench_wrong(&call) != 2)
        line = __LINE__;
    ct_group_free(call.group);
    return line;
}

Test(bench, each_wrong_element_is_counted)
{
    struct ct_bench_options options = read_options(0, NULL);
    struct ct_thread_world *threads;

    cr_assert_eq(ct_thread_world_new(2, &threads), 0);
    cr_assert_eq(thread_ranks_run(threads, spoil, &options), 0);
    ct_thread_world_free(threads);
}

Test(bench, a_line_a_size_in_the_columns_of_nccl_tests_or_as_json)
{
    const char *argv[] = {"--min", "1KiB", "--max", "4KiB", "--factor", "4", "--iters", "1"};
    struct ct_bench_options options = read_options(CT_COUNT(argv), argv);
    static struct shared shared;

    cr_assert_eq(run(&options, 2, &shared), 0);
    cr_assert_not_null(strstr(shared.text, "        1024           256       F32     sum      -1"));
    cr_assert_not_null(strstr(shared.text, "        4096          1024       F32     sum      -1"));
    cr_assert_not_null(strstr(shared.text, "# Avg bus bandwidth    : "));
    cr_assert_not_null(strstr(shared.text, "  flat\n"));
    options.json = true;
    cr_assert_eq(run(&options, 2, &shared), 0);
    cr_assert_eq(strncmp(shared.text,
                         "{\"op\":\"all_reduce\",\"backend\":\"thread\",\"ranks\":2,"
                         "\"size\":1024,\"count\":256,",
                         72),
                 0, "%s", shared.text);
}

Test(bench, the_way_that_a_call_went_is_printed)
{
    const char *argv[] = {
        "--op", "all_reduce,all_gather,send_recv", "--min", "1MiB", "--max", "1MiB", "--iters",
        "1"};
    struct ct_bench_options options = read_options(CT_COUNT(argv), argv);
    static struct shared shared;

    cr_assert_eq(run(&options, 2, &shared), 0);
    const char *at = strstr(shared.text, "  pipeline\n");
    cr_assert_not_null(at);
    at = strstr(at, "  staged\n");
    cr_assert_not_null(at);
    cr_assert_not_null(strstr(at, "  -\n")); /* no collective */
    options.symmetric = true;
    cr_assert_eq(run(&options, 2, &shared), 0);
    cr_assert_not_null(strstr(shared.text, "  in_place\n"));
}

/* ---- options ---------------------------------------------------------------------------------*/

Test(bench, options_of_a_run_are_left_alone)
{
    const char *argv[] = {"--min=8", "--max", "64", "--symmetric", "--nnodes", "--minimum"};

    cr_assert_eq(ct_bench_option_words(6, argv), 1);
    cr_assert_eq(ct_bench_option_words(5, argv + 1), 2);
    cr_assert_eq(ct_bench_option_words(3, argv + 3), 1);
    cr_assert_eq(ct_bench_option_words(2, argv + 4), 0);
    cr_assert_eq(ct_bench_option_words(1, argv + 5), 0);
}

Test(bench, what_makes_no_sense_is_refused_by_name)
{
    static const struct {
        const char *words[2];
        const char *said;
    } cases[] = {
        {{"--op", "all_reduced"}, "did you mean all_reduce?"},
        {{"--dtype", "f8"}, "--dtype wants one of f32"},
        {{"--red", "xor"}, "--red wants one of sum"},
        {{"--min", "x"}, "--min wants a size such as 64MiB, not \"x\""},
        {{"--factor", "1"}, "--factor at least"},
        {{"--min", "1GiB"}, "at most --max"},
    };

    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        const char *argv[] = {cases[i].words[0], cases[i].words[1]};
        struct ct_bench_options options;
        struct ct_error err = {0};

        cr_assert_eq(ct_bench_read(2, argv, &options, &err), CT_EUSAGE);
        cr_assert_not_null(strstr(err.text, cases[i].said), "%s", err.text);
    }
}
