/* Checkpoints: round trips, retention, and what every damage and failure leaves and says. */
#include "train/checkpoint/checkpoint.h"

#include "base/fs.h"
#include "folder.h"
#include "save_alone.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

TestSuite(checkpoint, .init = folder_make, .fini = folder_remove, .timeout = 30);

enum { WEIGHTS = 1000 };

/* A model with its optimizer. */
struct fixture {
    float weight[WEIGHTS];
    float bias[3];
    float moment[WEIGHTS];
    struct ct_st_tensor model[2];
    struct ct_st_tensor optim[1];
    struct ct_ckpt_file files[2];
    char dir[PATH_MAX];
    struct ct_ckpt_save save;
};

static void fixture_init(struct fixture *f, float value)
{
    for (int i = 0; i < WEIGHTS; i++) {
        f->weight[i] = value + (float)i;
        f->moment[i] = value - (float)i;
    }
    f->bias[0] = f->bias[1] = f->bias[2] = value;
    f->model[0] = (struct ct_st_tensor){"fc.weight", CT_F32, 2, {10, 100}, f->weight};
    f->model[1] = (struct ct_st_tensor){"fc.bias", CT_F32, 1, {3}, f->bias};
    f->optim[0] = (struct ct_st_tensor){"exp_avg.fc.weight", CT_F32, 2, {10, 100}, f->moment};
    f->files[0] = (struct ct_ckpt_file){"model.safetensors", f->model, 2};
    f->files[1] = (struct ct_ckpt_file){"optim.safetensors", f->optim, 1};
    (void)snprintf(f->dir, sizeof f->dir, "%s", folder_path("ckpt"));
    f->save = (struct ct_ckpt_save){.dir = f->dir, .files = f->files, .file_count = 2, .keep = 2};
}

static const struct ct_ckpt_state state = {.position = 3840,
                                           .seed = 9223372036854775807,
                                           .config_hash = 0xFEDCBA9876543210,
                                           .program_hash = 0x0000000000000001,
                                           .global_batch = 32,
                                           .world = 4,
                                           .run_id = "job \"7\""};

static void save_step(struct fixture *f, uint64_t step)
{
    struct ct_error err = {0};

    f->save.state = state;
    f->save.state.step = step;
    cr_assert_eq(save_alone(&f->save, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(ct_ckpt_publish(&f->save, &err), 0, "%s", err.text);
}

/* The newest checkpoint's directory name. */
static const char *newest(const char *dir)
{
    static char path[PATH_MAX];
    struct ct_error err = {0};

    cr_assert_eq(ct_ckpt_latest(dir, path, &err), 0, "%s", err.text);
    return strrchr(path, '/') + 1;
}

Test(checkpoint, what_is_saved_is_loaded_bit_for_bit)
{
    struct fixture saved, loaded;
    struct ct_ckpt_state back;
    struct ct_error err = {0};
    char path[PATH_MAX];

    fixture_init(&saved, 0.1f);
    fixture_init(&loaded, 0);
    save_step(&saved, 120);
    cr_assert_eq(ct_ckpt_latest(saved.save.dir, path, &err), 0, "%s", err.text);
    cr_assert_eq(ct_ckpt_open(path, &back, &err), 0, "%s", err.text);
    cr_assert_eq(ct_ckpt_load(path, loaded.files, 2, &err), 0, "%s", err.text);
    cr_assert_eq(memcmp(saved.weight, loaded.weight, sizeof saved.weight), 0);
    cr_assert_eq(memcmp(saved.bias, loaded.bias, sizeof saved.bias), 0);
    cr_assert_eq(memcmp(saved.moment, loaded.moment, sizeof saved.moment), 0);
    cr_assert_eq(memcmp(&back, &saved.save.state, sizeof back), 0);
    cr_assert_eq(folder_count(saved.save.dir, ""), 2);
}

Test(checkpoint, what_is_not_published_is_not_the_newest)
{
    struct fixture f;
    struct ct_error err = {0};

    fixture_init(&f, 1);
    f.save.keep = 1;
    save_step(&f, 10);
    f.save.state.step = 20;
    cr_assert_eq(save_alone(&f.save, NULL, &err), 0, "%s", err.text);
    cr_assert_str_eq(newest(f.save.dir), "step_00000010");
    cr_assert_eq(folder_count(f.save.dir, "step_00000010"), 1);
    cr_assert_eq(ct_ckpt_publish(&f.save, &err), 0, "%s", err.text);
    cr_assert_str_eq(newest(f.save.dir), "step_00000020");
    cr_assert_eq(folder_count(f.save.dir, "step_00000010"), 0);
}

Test(checkpoint, a_writer_of_an_older_round_replaces_nothing_that_a_later_one_wrote)
{
    struct fixture f;
    struct ct_error err = {0};

    fixture_init(&f, 1);
    save_step(&f, 10);
    f.save.state.generation = 8;
    cr_assert_eq(save_alone(&f.save, NULL, &err), 0, "an older round's gives way: %s", err.text);
    f.save.state.generation = 7;
    cr_assert_eq(save_alone(&f.save, NULL, &err), CT_EFENCED);
    cr_assert_not_null(strstr(err.text, "a later round has written it already"), "%s", err.text);
    cr_assert_eq(folder_count(f.save.dir, ".tmp"), 0);

    f.save.state.step = 9;
    cr_assert_eq(save_alone(&f.save, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(ct_ckpt_publish(&f.save, &err), CT_EFENCED);
    cr_assert_str_eq(newest(f.save.dir), "step_00000010");
    (void)snprintf(f.save.state.run_id, sizeof f.save.state.run_id, "another run");
    cr_assert_eq(ct_ckpt_publish(&f.save, &err), 0, "generations of another run mean nothing: %s",
                 err.text);
    cr_assert_str_eq(newest(f.save.dir), "step_00000009");
}

Test(checkpoint, the_newest_few_are_kept)
{
    struct fixture f;

    fixture_init(&f, 1);
    for (uint64_t step = 5; step <= 25; step += 5)
        save_step(&f, step);
    cr_assert_eq(folder_count(f.save.dir, "step_"), 2);
    cr_assert_eq(folder_count(f.save.dir, "step_00000020"), 1);
    cr_assert_eq(folder_count(f.save.dir, "step_00000025"), 1);
    cr_assert_str_eq(newest(f.save.dir), "step_00000025");
    f.save.keep = 0;
    save_step(&f, 30);
    cr_assert_eq(folder_count(f.save.dir, "step_"), 3);
}

Test(checkpoint, those_of_every_so_many_steps_are_kept_beside_the_newest)
{
    struct fixture f;

    fixture_init(&f, 1);
    f.save.keep = 1;
    f.save.keep_every = 10;
    for (uint64_t step = 5; step <= 35; step += 5)
        save_step(&f, step);
    cr_assert_eq(folder_count(f.save.dir, "step_"), 4);
    for (int step = 10; step <= 35; step += step < 30 ? 10 : 5) {
        char name[32];

        (void)snprintf(name, sizeof name, "step_%08d", step);
        cr_assert_eq(folder_count(f.save.dir, name), 1, "%s", name);
    }
}

Test(checkpoint, the_best_stays_beside_the_newest_until_there_is_a_better_one)
{
    struct fixture f;
    char path[PATH_MAX];
    static const struct {
        uint64_t step, best;
        const char *named;
        bool there[5];
    } saves[] = {
        {1, 1, "step_00000001", {true, false, false, false, false}},
        {2, 1, "step_00000001", {true, true, false, false, false}},
        {3, 1, "step_00000001", {true, false, true, false, false}},
        {4, 4, "step_00000004", {false, false, false, true, false}},
        /* The one of step 99 could not be written: the one before stays. */
        {5, 99, "step_00000004", {false, false, false, true, true}},
    };

    fixture_init(&f, 1);
    f.save.keep = 1;
    cr_assert_eq(ct_ckpt_best(f.dir, path, NULL), CT_ENOTFOUND);
    for (size_t i = 0; i < sizeof saves / sizeof *saves; i++) {
        f.save.state = state;
        f.save.state.step = saves[i].step;
        f.save.state.best = (struct ct_best){CT_BEST_LOSS, saves[i].best, 0.5};
        cr_assert_eq(save_alone(&f.save, NULL, NULL), 0);
        cr_assert_eq(ct_ckpt_publish(&f.save, NULL), 0);
        cr_assert_eq(ct_ckpt_best(f.dir, path, NULL), 0);
        cr_expect_str_eq(strrchr(path, '/') + 1, saves[i].named, "%zu: %s", i, path);
        for (uint64_t step = 1; step <= 5; step++) {
            struct stat info;
            cr_assert_eq(ct_ckpt_path(f.dir, step, path, NULL), 0);
            cr_expect_eq(stat(path, &info) == 0, saves[i].there[step - 1], "save %zu, step %d", i,
                         (int)step);
        }
    }
    struct ct_ckpt_state back;
    cr_assert_eq(ct_ckpt_path(f.dir, 4, path, NULL), 0);
    cr_assert_eq(ct_ckpt_open(path, &back, NULL), 0);
    cr_assert_eq(back.best.metric, CT_BEST_LOSS);
    cr_assert_eq(back.best.step, 4);
    cr_assert_eq(back.best.value, 0.5);
}

Test(checkpoint, of_equal_evaluations_the_earlier_is_the_best_and_a_nan_never_is)
{
    struct ct_best loss = {.metric = CT_BEST_LOSS}, accuracy = {.metric = CT_BEST_ACCURACY};
    struct ct_best none = {.metric = CT_BEST_NONE};

    cr_assert(!ct_best_observe(&none, 10, 1));
    cr_assert(!ct_best_observe(&loss, 10, NAN));
    cr_assert(ct_best_observe(&loss, 20, 2));
    cr_assert(!ct_best_observe(&loss, 30, 2));
    cr_assert(!ct_best_observe(&loss, 40, NAN));
    cr_assert(ct_best_observe(&loss, 20, 2), "repeated");
    cr_assert(ct_best_observe(&loss, 50, 1));
    cr_assert_eq(loss.step, 50);
    cr_assert(ct_best_observe(&accuracy, 10, 0.5));
    cr_assert(!ct_best_observe(&accuracy, 20, 0.4));
    cr_assert(ct_best_observe(&accuracy, 30, 0.6));
    cr_assert_eq(accuracy.step, 30);
}

Test(checkpoint, a_rolled_back_run_keeps_its_own_and_spares_the_later_ones)
{
    struct fixture f;

    fixture_init(&f, 1);
    save_step(&f, 50);
    save_step(&f, 60);
    for (uint64_t step = 10; step <= 30; step += 10)
        save_step(&f, step);
    cr_assert_str_eq(newest(f.save.dir), "step_00000030");
    cr_assert_eq(folder_count(f.save.dir, "step_00000010"), 0);
    cr_assert_eq(folder_count(f.save.dir, "step_00000020"), 1);
    cr_assert_eq(folder_count(f.save.dir, "step_00000060"), 1);
}

Test(checkpoint, saving_a_step_again_replaces_it)
{
    struct fixture f;
    struct ct_error err = {0};
    char path[PATH_MAX];

    fixture_init(&f, 1);
    save_step(&f, 7);
    f.bias[0] = 99;
    save_step(&f, 7);
    f.bias[0] = 0;
    cr_assert_eq(ct_ckpt_latest(f.save.dir, path, &err), 0);
    cr_assert_eq(ct_ckpt_load(path, f.files, 2, &err), 0, "%s", err.text);
    cr_assert_float_eq(f.bias[0], 99, 0);
    cr_assert_eq(folder_count(f.save.dir, ""), 2);
}

Test(checkpoint, what_a_crash_left_behind_is_invisible_and_swept)
{
    struct fixture f;

    fixture_init(&f, 1);
    save_step(&f, 10);
    cr_assert_eq(mkdir(folder_path("ckpt/step_00000020.tmp"), 0755), 0);
    folder_write(folder_path("ckpt/step_00000020.tmp/model.safetensors"), "half", 4);
    cr_assert_str_eq(newest(f.save.dir), "step_00000010");
    save_step(&f, 20);
    cr_assert_eq(folder_count(f.save.dir, ".tmp"), 0);
    cr_assert_str_eq(newest(f.save.dir), "step_00000020");
}

Test(checkpoint, without_latest_the_highest_step_is_the_newest)
{
    struct fixture f;
    struct ct_error err = {0};
    char path[PATH_MAX];

    fixture_init(&f, 1);
    cr_assert_eq(ct_ckpt_latest(f.save.dir, path, &err), CT_ENOTFOUND);
    save_step(&f, 9);
    save_step(&f, 100000000);
    cr_assert_eq(remove(folder_path("ckpt/latest")), 0);
    cr_assert_str_eq(newest(f.save.dir), "step_100000000");
    folder_write(folder_path("ckpt/latest"), "../../etc", 9);
    cr_assert_str_eq(newest(f.save.dir), "step_100000000");
    folder_write(folder_path("ckpt/latest"), "step_00000077\n", 14);
    cr_assert_str_eq(newest(f.save.dir), "step_100000000");
    folder_write(folder_path("ckpt/latest"), "step_00000009", 13);
    cr_assert_str_eq(newest(f.save.dir), "step_00000009");
}

/* Save step 5, change one of its files, and expect this refusal. */
static void expect_refused(const char *file, void (*change)(struct ct_buf *content),
                           const char *part)
{
    struct fixture f;
    struct ct_error err = {0};
    struct ct_ckpt_state back = {.step = 77};
    char path[PATH_MAX];

    fixture_init(&f, 1);
    save_step(&f, 5);
    (void)snprintf(path, sizeof path, "%s/step_00000005/%s", f.save.dir, file);
    struct ct_buf content = folder_read(path);
    change(&content);
    folder_write(path, content.data, content.size);
    ct_buf_deinit(&content);
    cr_assert_eq(ct_ckpt_latest(f.save.dir, path, &err), 0);
    cr_assert_eq(ct_ckpt_open(path, &back, &err), CT_EDATA, "%s", err.text);
    cr_assert_not_null(strstr(err.text, part), "\"%s\" misses \"%s\"", err.text, part);
    cr_assert_eq(back.step, 77);
}

static void cut_tail(struct ct_buf *content)
{
    content->size -= 1;
}

static void cut_half(struct ct_buf *content)
{
    content->size /= 2;
}

static void add_byte(struct ct_buf *content)
{
    (void)ct_buf_puts(content, "x");
}

static void flip_bit(struct ct_buf *content)
{
    content->data[content->size / 2] ^= 1;
}

static void raise_version(struct ct_buf *content)
{
    char *at = strstr(content->data, "\"version\": 2");

    cr_assert_not_null(at);
    at[11] = '3';
}

static void change_step(struct ct_buf *content)
{
    char *at = strstr(content->data, "\"step\": 5");

    cr_assert_not_null(at);
    at[8] = '6';
}

Test(checkpoint, damage_is_found_and_named)
{
    expect_refused("model.safetensors", cut_tail,
                   "step_00000005/model.safetensors: truncated: it has");
    expect_refused("optim.safetensors", add_byte,
                   "step_00000005/optim.safetensors: damaged: it has");
    expect_refused("model.safetensors", flip_bit,
                   "step_00000005/model.safetensors: damaged: its checksum is");
    expect_refused("state.json", flip_bit, "step_00000005/state.json: damaged: ");
    expect_refused("state.json", cut_half, "step_00000005/state.json: damaged: ");
    expect_refused("state.json", change_step,
                   "step_00000005/state.json: damaged: its checksum does not fit");
    expect_refused("state.json", raise_version,
                   "step_00000005/state.json: damaged: its checksum does not fit");
}

Test(checkpoint, what_is_no_checkpoint_is_named)
{
    struct ct_ckpt_state back;
    struct ct_error err = {0};

    cr_assert_eq(ct_ckpt_open(folder_path("none"), &back, &err), CT_ENOINPUT);
    cr_assert_not_null(strstr(err.text, "/none: cannot be read: No such file"), "%s", err.text);
    folder_write(folder_path("file"), "x", 1);
    cr_assert_eq(ct_ckpt_open(folder_path("file"), &back, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "/file: is no checkpoint: it holds no state.json"), "%s",
                       err.text);
}

Test(checkpoint, tensors_of_another_model_are_refused_by_name)
{
    struct fixture f;
    struct ct_error err = {0};
    char path[PATH_MAX];

    fixture_init(&f, 1);
    save_step(&f, 5);
    f.model[0].shape[0] = 20;
    f.model[0].shape[1] = 50;
    cr_assert_eq(ct_ckpt_latest(f.save.dir, path, &err), 0);
    cr_assert_eq(ct_ckpt_load(path, f.files, 2, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "tensor \"fc.weight\" is F32 [10, 100], but F32 [20, 50]"),
                       "%s", err.text);
}

Test(checkpoint, a_full_disk_leaves_the_older_ones_and_says_so)
{
    struct fixture f;
    struct ct_error err = {0};
    struct ct_ckpt_state back;
    struct rlimit old, small;
    char path[PATH_MAX], want[PATH_MAX];

    fixture_init(&f, 1);
    save_step(&f, 10);
    /* No file may grow beyond 4000 bytes: the write fails half way, as on a full disk. */
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 4000, .rlim_max = old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    f.save.state.step = 20;
    int code = save_alone(&f.save, NULL, &err);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, handler);

    cr_assert_eq(code, CT_EIO);
    cr_assert_eq(ct_exit_status(code), 74);
    (void)snprintf(want, sizeof want,
                   "checkpoint %s/step_00000020: cannot be written: File too large; the older ones "
                   "are intact, the newest is %s/step_00000010",
                   f.save.dir, f.save.dir);
    cr_assert_str_eq(err.text, want);
    cr_assert_eq(folder_count(f.save.dir, ""), 2);
    cr_assert_eq(ct_ckpt_latest(f.save.dir, path, &err), 0);
    cr_assert_eq(ct_ckpt_open(path, &back, &err), 0, "%s", err.text);
    cr_assert_eq(back.step, 10);
}

Test(checkpoint, a_folder_that_cannot_be_made_is_named)
{
    struct fixture f;
    struct ct_error err = {0};

    fixture_init(&f, 1);
    folder_write(folder_path("file"), "", 0);
    f.save.dir = folder_path("file/ckpt");
    f.save.state = state;
    cr_assert_eq(save_alone(&f.save, NULL, &err), CT_ECANTCREAT);
    cr_assert_not_null(strstr(err.text, "/file"), "%s", err.text);
}
