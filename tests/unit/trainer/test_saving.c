/* Who writes a checkpoint, and when: every way of writing makes the same files, and what goes wrong
 * on one rank is told and leaves nothing behind. */
#include "base/assert.h"
#include "cmd/ctworker/trainer/loop.h"
#include "cmd/ctworker/trainer/reload.h"
#include "cmd/ctworker/trainer/worker/checkpoint_publish.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

TestSuite(saving, .init = harness_enter, .fini = harness_leave, .timeout = 60);

#define ASYNC "--checkpoint.async=true"
#define BARE "--optim.clip=0"

enum { STEPS = 20 };

/* Every file of every checkpoint in `dir` is that in `whole`. */
static void expect_equal_folders(const char *dir)
{
    static const char *const names[] = {"model", "optim", "ema"};
    char a[80], b[80];

    for (int step = 5; step <= STEPS; step += 5)
        for (size_t i = 0; i < CT_COUNT(names); i++) {
            (void)snprintf(a, sizeof a, "whole/step_%08d/%s.safetensors", step, names[i]);
            (void)snprintf(b, sizeof b, "%s/step_%08d/%s.safetensors", dir, step, names[i]);
            harness_expect_equal_files(a, b);
        }
}

/* How many entries of `dir` have `part` in their names. */
static int entries(const char *dir, const char *part)
{
    const struct dirent *entry;
    int count = 0;
    DIR *folder = opendir(dir);

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        count += strstr(entry->d_name, part) != NULL;
    if (folder != NULL)
        (void)closedir(folder);
    return count;
}

static enum ct_saving_mode ways[HARNESS_RANKS];

/* Train, and note which way was taken. */
static int train_and_note(struct ct_worker *worker, struct ct_error *err)
{
    bool stopped = false;
    int code = ct_loop_run(worker, &stopped, err);

    ways[worker->me->rank] = worker->saving.mode;
    return code;
}

Test(saving, every_way_of_writing_makes_the_same_files)
{
    static const struct {
        int world;
        const char *strategy, *async, *odd;
        enum ct_saving_mode way;
    } cases[] = {
        {1, "--parallel.strategy=ddp", ASYNC, NULL, CT_SAVING_ALONE},
        {2, "--parallel.strategy=ddp", ASYNC, NULL, CT_SAVING_ALONE},
        {2, "--parallel.strategy=fsdp", ASYNC, NULL, CT_SAVING_PARTS},
        {4, "--parallel.strategy=zero1", ASYNC, NULL, CT_SAVING_PARTS},
        {4, "--parallel.strategy=fsdp", BARE, NULL, CT_SAVING_PARTS},
        {2, "--parallel.strategy=fsdp", BARE, "--checkpoint.dir=elsewhere", CT_SAVING_GATHER},
        {2, "--parallel.strategy=zero1", ASYNC, "--checkpoint.dir=elsewhere", CT_SAVING_GATHER},
        {2, "--parallel.strategy=fsdp", ASYNC, "--checkpoint.async=false", CT_SAVING_PARTS},
    };
    struct training whole = {.world = 1,
                             .options = {BARE, "--optim.ema=0.9", "--optim.freeze=layers.0.bias",
                                         "--checkpoint.dir=whole"}};
    uint64_t bits = harness_train(&whole);

    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        char dir[64], name[40];
        (void)snprintf(name, sizeof name, "case%zu", i);
        (void)snprintf(dir, sizeof dir, "--checkpoint.dir=%s", name);
        struct training training = {.world = cases[i].world,
                                    .options = {BARE, "--optim.ema=0.9",
                                                "--optim.freeze=layers.0.bias", dir,
                                                cases[i].strategy, cases[i].async},
                                    .odd_option = cases[i].odd,
                                    .instead = train_and_note};
        cr_assert_eq(harness_train(&training), bits, "case %zu", i);
        for (int rank = 0; rank < training.world; rank++)
            cr_assert(ways[rank] == cases[i].way || (rank > 0 && cases[i].way == CT_SAVING_ALONE),
                      "case %zu, rank %d", i, rank);
        expect_equal_folders(name);
        cr_assert_eq(entries(name, ".tmp") + entries(name, ".shared"), 0, "case %zu", i);
        cr_assert_not_null(strstr(training.checkpoint, "step_00000020"), "case %zu", i);
    }
}

Test(saving, ranks_read_what_they_hold_with_an_average_or_without)
{
    struct training plain = {.world = 1, .options = {BARE, "--checkpoint.dir=plain"}};
    struct training whole = {.world = 1,
                             .options = {BARE, "--checkpoint.dir=whole", "--optim.ema=0.9",
                                         "--optim.freeze=layers.0.bias"}};
    const char *const from[] = {"--checkpoint.resume=plain/step_00000010",
                                "--checkpoint.resume=whole/step_00000010"};

    (void)harness_train(&plain);
    (void)harness_train(&whole);
    for (size_t i = 0; i < CT_COUNT(from); i++) {
        uint64_t bits = 0;
        for (int world = 1; world <= 4; world *= 2) {
            struct training rest = {
                .world = world,
                .options = {BARE, "--checkpoint.dir=rest", from[i], "--optim.ema=0.9",
                            world == 2 ? "--parallel.strategy=zero1" : "--parallel.strategy=fsdp",
                            i == 0 ? "--checkpoint.every=0" : "--optim.freeze=layers.0.bias"}};
            uint64_t got = harness_train(&rest);
            cr_assert_eq(rest.first_step[0], 10);
            bits = world == 1 ? got : bits;
            cr_assert_eq(got, bits, "from %zu by %d", i, world);
        }
    }
}

static const char *place_of_last;

/* Read `whole`; the last rank another place. */
static int reload(struct ct_worker *worker, struct ct_error *err)
{
    bool last = worker->me->rank == worker->me->world - 1, seen = false;
    int code = ct_reload(worker, last ? place_of_last : "whole/step_00000010", &seen, err);

    if (code == 0)
        worker->step = seen ? 10 : 1;
    return code;
}

Test(saving, a_checkpoint_is_read_together_only_where_all_see_the_same)
{
    struct training whole = {.world = 1, .options = {BARE, "--checkpoint.dir=whole"}};
    struct training parts = {.world = 2,
                             .options = {BARE, "--parallel.strategy=fsdp",
                                         "--checkpoint.resume=none", "--checkpoint.dir=new"},
                             .instead = reload};

    (void)harness_train(&whole);
    place_of_last = "whole/step_00000010";
    (void)harness_train(&parts);
    cr_assert_eq(parts.step[0], 10);
    uint64_t read = parts.digest[0];
    place_of_last = "nowhere/step_00000010";
    (void)harness_train(&parts);
    cr_assert_eq(parts.step[0], 1, "not the same folder");
    cr_assert_neq(parts.digest[0], read, "nothing has changed");
    place_of_last = "whole/step_00000015";
    (void)harness_train(&parts);
    cr_assert_eq(parts.step[0], 1, "the same name would not be enough");

    struct ct_buf model = harness_read("whole/step_00000010/model.safetensors");
    FILE *file = fopen("whole/step_00000010/model.safetensors", "r+");
    cr_assert(file != NULL && fseek(file, (long)model.size - 2, SEEK_SET) == 0);
    cr_assert(fputc(model.data[model.size - 2] ^ 1, file) >= 0 && fclose(file) == 0);
    ct_buf_deinit(&model);
    place_of_last = "whole/step_00000010";
    harness_run(&parts);
    for (int rank = 0; rank < 2; rank++) {
        cr_assert_eq(parts.code[rank], CT_EDATA);
        cr_assert_not_null(strstr(parts.error[rank].text, "model.safetensors: damaged"), "%s",
                           parts.error[rank].text);
    }
}

/* The last rank's disk is full at step 10. */
static int train_with_a_full_disk(struct ct_worker *worker, struct ct_error *err)
{
    bool last = worker->me->rank == worker->me->world - 1, stopped = false;
    uint64_t steps = worker->steps;

    worker->steps = 10;
    worker->save_every.count = 0;
    int code = ct_loop_run(worker, &stopped, err);
    if (code != 0)
        return code;
    worker->steps = steps;
    worker->report.checkpoint[0] = '\0'; /* once more at this step, and not the last one */
    const struct ct_ckpt_save save = {.dir = worker->cfg->checkpoint.dir,
                                      .state = {.step = 11, .generation = worker->me->generation},
                                      .files = worker->snapshot.files,
                                      .file_count = worker->snapshot.file_count};
    code = ct_saving_start(worker, &save, false, err);
    CT_ASSERT(code == 0 && worker->saving.active && ct_saving_is_written(&worker->saving));
    if (last)
        worker->saving.code =
            ct_error_set(&worker->saving.why, CT_EIO, "model.safetensors: No space left on device");
    code = ct_publish_await(worker, err);
    CT_ASSERT(!worker->saving.active && code == 0);
    return ct_loop_run(worker, &stopped, err);
}

Test(saving, a_disk_that_is_full_on_one_rank_costs_that_checkpoint_alone)
{
    struct training training = {.world = 2,
                                .options = {BARE, "--parallel.strategy=fsdp"},
                                .instead = train_with_a_full_disk};

    (void)harness_train(&training);
    cr_assert_eq(entries("ckpt", ".tmp"), 0);
    cr_assert_eq(entries("ckpt", "step_00000010"), 1, "the older one is there");
    cr_assert_eq(entries("ckpt", "step_00000011"), 0);
    cr_assert_str_eq(training.checkpoint, "ckpt/step_00000020");
}

/* A checkpoint is on its way when the round ends. */
static int drop_in_flight(struct ct_worker *worker, struct ct_error *err)
{
    int code = ct_publish_save(worker, err);

    CT_ASSERT(code == 0 && (worker->me->rank != 0 || worker->saving.active));
    ct_saving_discard(&worker->saving);
    return ct_group_explain(worker->group, ct_barrier(worker->group, NULL), err);
}

Test(saving, one_that_is_dropped_leaves_nothing)
{
    struct training training = {.world = 2,
                                .options = {BARE, "--parallel.strategy=fsdp", ASYNC},
                                .instead = drop_in_flight};

    harness_run(&training);
    cr_assert_eq(training.code[0], 0, "%s", training.error[0].text);
    cr_assert_eq(entries("ckpt", "step_"), 0);
}

Test(saving, a_stop_waits_for_the_one_on_its_way)
{
    for (int world = 1; world <= 2; world++) {
        struct training training = {.world = world,
                                    .options = {BARE, ASYNC, "--parallel.strategy=fsdp",
                                                "--checkpoint.every=1", "--checkpoint.resume=none"},
                                    .stop_step = 7};
        harness_run(&training);
        char want[64];
        (void)snprintf(want, sizeof want, "ckpt/step_%08d", (int)training.step[0]);
        cr_assert_str_eq(training.checkpoint, want, "of %d", world);
        cr_assert_eq(entries("ckpt", ".tmp"), 0);
    }
}
