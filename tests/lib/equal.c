/* See equal.h: data, runs, comparisons. */
#include "equal.h"
#include "proc.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fs.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ------------------------------------------------------------------------------------ */

enum { ROWS = 53, PIXELS = 64, PLANTED = 17, PICTURES = 48, SIDE = 28, TOKENS = 3000 };

static void put(const char *path, const struct ct_buf *content)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_fs_replace(path, content->data, content->size, &err), 0, "%s", err.text);
}

/* Pictures of 8 x 8 pixels from 0 to 16, the label last. One sample of the planted file has a value
 * that 16 bits do not hold. */
static void write_digits(const char *path, bool planted)
{
    struct ct_buf text;
    struct ct_rng rng;

    ct_buf_init(&text, 0);
    ct_rng_init(&rng, 7);
    for (int row = 0; row < ROWS; row++) {
        int label = row % 10;
        for (int i = 0; i < PIXELS; i++)
            if (planted && row == PLANTED && i == 3)
                (void)ct_buf_puts(&text, "1e30,");
            else
                (void)ct_buf_printf(&text, "%d,",
                                    (int)ct_rng_below(&rng, 9) + (i / 6 == label ? 8 : 0));
        (void)ct_buf_printf(&text, "%d\n", label);
    }
    put(path, &text);
    ct_buf_deinit(&text);
}

static void put_be32(struct ct_buf *to, uint32_t value)
{
    const unsigned char bytes[] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                                   (unsigned char)(value >> 8), (unsigned char)value};

    cr_assert_eq(ct_buf_append(to, bytes, sizeof bytes), 0);
}

static void write_pictures(const char *images, const char *labels)
{
    struct ct_buf pictures, names;
    struct ct_rng rng;

    ct_buf_init(&pictures, 0);
    ct_buf_init(&names, 0);
    ct_rng_init(&rng, 8);
    put_be32(&pictures, 0x803);
    put_be32(&names, 0x801);
    const uint32_t sizes[] = {PICTURES, SIDE, SIDE};
    for (size_t i = 0; i < CT_COUNT(sizes); i++)
        put_be32(&pictures, sizes[i]);
    put_be32(&names, PICTURES);
    for (int n = 0; n < PICTURES; n++) {
        const unsigned char label = (unsigned char)(n % 10);
        cr_assert_eq(ct_buf_append(&names, &label, 1), 0);
        for (int i = 0; i < SIDE * SIDE; i++) {
            const unsigned char pixel =
                (unsigned char)(ct_rng_below(&rng, 60) + (i / 80 == label ? 190 : 0));
            cr_assert_eq(ct_buf_append(&pictures, &pixel, 1), 0);
        }
    }
    put(images, &pictures);
    put(labels, &names);
    ct_buf_deinit(&pictures);
    ct_buf_deinit(&names);
}

/* Words of a small language. */
static void write_text(const char *path)
{
    static const char *const words[] = {"the ", "whale ", "sea", ", ", "a ", "ship", ". ", "I "};
    struct ct_buf text;
    struct ct_rng rng;

    ct_buf_init(&text, 0);
    ct_rng_init(&rng, 9);
    while (text.size < TOKENS)
        (void)ct_buf_puts(&text, words[ct_rng_below(&rng, CT_COUNT(words))]);
    put(path, &text);
    ct_buf_deinit(&text);
}

/* llm.c's file of u16. */
static void write_tokens(const char *path)
{
    enum { HEADER = 1024 };
    static unsigned char bytes[HEADER + 2 * TOKENS];
    const struct ct_buf content = {.data = (char *)bytes, .size = sizeof bytes};
    struct ct_rng rng;

    ct_rng_init(&rng, 10);
    ct_put_le32(bytes, 20240520);
    ct_put_le32(bytes + 4, 1);
    ct_put_le32(bytes + 8, TOKENS);
    for (size_t i = 0; i < TOKENS; i++)
        ct_put_le16(bytes + HEADER + 2 * i, (uint16_t)(3 * ct_rng_below(&rng, 70) + i % 3));
    put(path, &content);
}

/* ---- what a run has left --------------------------------------------------------------------- */

static struct ct_buf file_of(const char *run, const char *name)
{
    char path[PATH_MAX];
    struct ct_buf buf;
    struct ct_error err = {0};

    (void)snprintf(path, sizeof path, "%s/%s", run, name);
    ct_buf_init(&buf, 0);
    cr_assert_eq(ct_fs_read(path, 1 << 26, &buf, &err), 0, "%s", err.text);
    return buf;
}

static void same_bytes(const char *a, const char *b, const char *name, const char *what)
{
    struct ct_buf x = file_of(a, name), y = file_of(b, name);

    cr_assert(x.size == y.size && memcmp(x.data, y.data, x.size) == 0, "%s: %s differs", what,
              name);
    ct_buf_deinit(&x);
    ct_buf_deinit(&y);
}

/* The value of `key` in the n-th line of this kind, NAN when the line or the number is not there.
 */
static double metric(const struct ct_buf *text, const char *kind, int n, const char *key)
{
    char mark[64], quoted[64];

    (void)snprintf(mark, sizeof mark, "\"kind\":\"%s\"", kind);
    (void)snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *line = strstr(text->data, mark);
    for (int i = 1; line != NULL && i < n; i++)
        line = strstr(line + 1, mark);
    const char *at = line != NULL ? strstr(line, quoted) : NULL;
    if (at == NULL || at > line + strcspn(line, "\n"))
        return NAN;
    at += strlen(quoted);
    return *at == 'n' ? NAN : strtod(at, NULL);
}

/* To a part of the larger one; what is no number is so on both sides. */
static void near(double x, double y, double limit, const char *what, const char *key, int n)
{
    if (isnan(x) && isnan(y))
        return;
    cr_assert_leq(fabs(x - y), limit * fmax(fabs(x), fabs(y)), "%s: %s of line %d: %.17g, %.17g",
                  what, key, n, x, y);
}

static void same_metrics(const char *a, const char *b, bool bits, const char *what)
{
    struct ct_buf x = file_of(a, "run/metrics.jsonl"), y = file_of(b, "run/metrics.jsonl");

    cr_assert_not(isnan(metric(&x, "train", EQUAL_STEPS, "samples")), "%s: steps are missing",
                  what);
    for (int n = 1; n <= EQUAL_STEPS; n++) {
        static const char *const keys[] = {"step", "samples", "lr"};
        for (size_t k = 0; k < CT_COUNT(keys); k++)
            near(metric(&x, "train", n, keys[k]), metric(&y, "train", n, keys[k]), 0, what, keys[k],
                 n);
        near(metric(&x, "train", n, "loss"), metric(&y, "train", n, "loss"), bits ? 0 : 2e-6, what,
             "loss", n);
        near(metric(&x, "train", n, "grad_norm"), metric(&y, "train", n, "grad_norm"),
             bits ? 1e-6 : 2e-6, what, "grad_norm", n);
    }
    for (int n = 1; n <= EQUAL_STEPS / EQUAL_HALF; n++)
        near(metric(&x, "eval", n, "loss"), metric(&y, "eval", n, "loss"), bits ? 1e-9 : 4e-6, what,
             "held-out loss", n);
    ct_buf_deinit(&x);
    ct_buf_deinit(&y);
}

/* |x - y| / |y| over the numbers behind the header, which is the same. */
static void near_parameters(const char *a, const char *b, const char *name, const char *what)
{
    struct ct_buf x = file_of(a, name), y = file_of(b, name);
    size_t head = 8 + (size_t)ct_get_le64(y.data);
    double apart = 0, all = 0;

    cr_assert(x.size == y.size && head <= y.size && memcmp(x.data, y.data, head) == 0,
              "%s: %s has other tensors", what, name);
    for (size_t at = head; at < y.size; at += sizeof(float)) {
        float have, want;
        memcpy(&have, x.data + at, sizeof have);
        memcpy(&want, y.data + at, sizeof want);
        apart += ((double)have - want) * ((double)have - want);
        all += (double)want * want;
    }
    cr_assert_gt(all, 0);
    cr_assert_leq(sqrt(apart / all), 4e-6, "%s: %s differs by %g", what, name, sqrt(apart / all));
    ct_buf_deinit(&x);
    ct_buf_deinit(&y);
}

/* "skipped": 3 in a checkpoint's state. */
static double state_of(const char *run, const char *key)
{
    struct ct_buf text = file_of(run, "ckpt/step_00000006/state.json");
    char quoted[64];

    (void)snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(text.data, quoted);
    cr_assert_not_null(at, "no %s", key);
    at += strlen(quoted);
    double value = *at == '"' ? (double)strtoull(at + 1, NULL, 16) : strtod(at, NULL);
    ct_buf_deinit(&text);
    return value;
}

static void same_state(const char *a, const char *b, const char *what)
{
    static const char *const keys[] = {"step", "position", "skipped", "loss_scale"};

    for (size_t k = 0; k < CT_COUNT(keys); k++)
        cr_assert_eq(state_of(a, keys[k]), state_of(b, keys[k]), "%s: another %s", what, keys[k]);
}

static void compare(enum equal_how how, const char *a, const char *b, const char *what)
{
    static const char *const models[] = {"ckpt/step_00000003/model.safetensors",
                                         "ckpt/step_00000006/model.safetensors"};
    static const char *const optims[] = {"ckpt/step_00000003/optim.safetensors",
                                         "ckpt/step_00000006/optim.safetensors"};

    for (size_t i = 0; i < CT_COUNT(models); i++) {
        if (how == EQUAL_NEAR)
            near_parameters(a, b, models[i], what);
        else
            same_bytes(a, b, models[i], what);
        if (how == EQUAL_BITS || how == EQUAL_SKIPS)
            same_bytes(a, b, optims[i], what);
    }
    if (how == EQUAL_FIRST)
        return;
    same_metrics(a, b, how != EQUAL_NEAR, what);
    same_state(a, b, what);
}

/* ---- going through the table ----------------------------------------------------------------- */

/* Each word between blanks becomes one of `words`. */
static int split(char *text, const char *words[], int count)
{
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        cr_assert_lt(count, EQUAL_WORDS - 1);
        words[count++] = word;
    }
    return count;
}

static void train_once(const struct equal_group *group, const char *root, const char *name,
                       int world, const char *layout, int steps, equal_train *train)
{
    static const char always[] =
        "--checkpoint.every=3 --checkpoint.keep=0 --checkpoint.keep_every=0 "
        "--checkpoint.resume=auto --log.every=1 --log.tensorboard=false --log.level=warn "
        "--eval.every=3 --schedule.type=constant --schedule.warmup=2";
    char text[2048], config[PATH_MAX];
    const char *words[EQUAL_WORDS] = {NULL};

    int length = snprintf(text, sizeof text,
                          "%s %s %s --train.steps=%d --checkpoint.dir=%s/ckpt --log.dir=%s/run",
                          always, group->common, layout, steps, name, name);
    cr_assert_lt(length, (int)sizeof text);
    (void)snprintf(config, sizeof config, "%s/%s", root, group->config);
    int count = split(text, words, 0);
    words[count] = config;
    train(world, words);
}

static void run_row(const struct equal_group *group, const char *root, const char *name,
                    const struct equal_row *row, equal_train *train)
{
    if (row->next_world == 0) {
        train_once(group, root, name, row->world, row->layout, EQUAL_STEPS, train);
        return;
    }
    train_once(group, root, name, row->world, row->layout, EQUAL_HALF, train);
    train_once(group, root, name, row->next_world, row->next_layout, EQUAL_STEPS, train);
}

static void go_through(const struct equal_group *group, const char *root, bool all,
                       equal_train *train)
{
    char what[256];

    run_row(group, root, "base", &group->rows[0], train);
    if (group->how == EQUAL_SKIPS)
        cr_assert_gt(state_of("base", "skipped"), 0, "nothing overflowed");
    for (int i = 1; i < group->row_count; i++) {
        const struct equal_row *row = &group->rows[i];
        if (!all && !row->always)
            continue;
        (void)snprintf(what, sizeof what, "%s, %s: %d ranks %s", group->name, row->claims,
                       row->world, row->layout);
        run_row(group, root, "other", row, train);
        compare(group->how, "other", "base", what);
        cr_assert_eq(ct_fs_remove_tree("other"), 0);
    }
}

void equal_check(const char *name, const char *root, bool all, equal_train *train)
{
    write_digits("digits.csv", false);
    write_digits("planted.csv", true);
    write_pictures("images.idx", "labels.idx");
    write_text("text.txt");
    write_tokens("tokens.bin");
    for (int i = 0; i < equal_group_count; i++)
        if (strcmp(equal_groups[i].name, name) == 0) {
            go_through(&equal_groups[i], root, all, train);
            return;
        }
    cr_assert_fail("there is no group %s", name);
}

void equal_run(const char *ctrun, const char *const env[], int world, const char *const words[])
{
    const char *argv[EQUAL_WORDS + 8] = {ctrun, "--nproc_per_node"};
    char workers[16];
    struct proc run;
    int count = 2;

    (void)snprintf(workers, sizeof workers, "%d", world);
    argv[count++] = workers;
    for (int i = 0; words[i] != NULL; i++) {
        CT_ASSERT(count < (int)CT_COUNT(argv) - 1);
        argv[count++] = words[i];
    }
    cr_assert_eq(proc_run(&run, argv, env, 120), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}
