/* Weights of other programs: Hugging Face's layout in and out (tests/golden/make_hub.py wrote the
 * files), and what is refused. */
#include "train/checkpoint/weights.h"

#include "base/assert.h"
#include "folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(weights, .init = folder_make, .fini = folder_remove, .timeout = 30);

enum { VOCABULARY = 17, CONTEXT = 12, LAYERS = 2, WIDTH = 8, MAX_TENSORS = 32 };

/* The tensors of a small GPT-2 as they are here. */
struct gpt {
    struct ct_st_tensor tensors[MAX_TENSORS];
    char names[MAX_TENSORS][64];
    size_t count;
};

static void add(struct gpt *gpt, const char *name, int layer, uint64_t rows, uint64_t columns)
{
    struct ct_st_tensor *to = &gpt->tensors[gpt->count];
    char *text = gpt->names[gpt->count++];

    CT_ASSERT(gpt->count <= MAX_TENSORS);
    if (layer < 0)
        (void)snprintf(text, 64, "%s", name);
    else
        (void)snprintf(text, 64, "h.%d.%s", layer, name);
    *to = (struct ct_st_tensor){.name = text, .dtype = CT_F32, .dims = rows > 0 ? 2 : 1};
    to->shape[0] = rows > 0 ? rows : columns;
    to->shape[1] = rows > 0 ? columns : 0;
    to->data = calloc(1, (size_t)ct_st_bytes(to));
    cr_assert_not_null(to->data);
}

static void gpt_init(struct gpt *gpt, bool untied)
{
    *gpt = (struct gpt){.count = 0};
    add(gpt, "wte.weight", -1, VOCABULARY, WIDTH);
    add(gpt, "wpe.weight", -1, CONTEXT, WIDTH);
    for (int i = 0; i < LAYERS; i++) {
        add(gpt, "ln_1.weight", i, 0, WIDTH);
        add(gpt, "ln_1.bias", i, 0, WIDTH);
        add(gpt, "attn.c_attn.weight", i, 3 * WIDTH, WIDTH);
        add(gpt, "attn.c_attn.bias", i, 0, 3 * WIDTH);
        add(gpt, "attn.c_proj.weight", i, WIDTH, WIDTH);
        add(gpt, "attn.c_proj.bias", i, 0, WIDTH);
        add(gpt, "ln_2.weight", i, 0, WIDTH);
        add(gpt, "ln_2.bias", i, 0, WIDTH);
        add(gpt, "mlp.c_fc.weight", i, 4 * WIDTH, WIDTH);
        add(gpt, "mlp.c_fc.bias", i, 0, 4 * WIDTH);
        add(gpt, "mlp.c_proj.weight", i, WIDTH, 4 * WIDTH);
        add(gpt, "mlp.c_proj.bias", i, 0, WIDTH);
    }
    add(gpt, "ln_f.weight", -1, 0, WIDTH);
    add(gpt, "ln_f.bias", -1, 0, WIDTH);
    if (untied)
        add(gpt, "lm_head.weight", -1, VOCABULARY, WIDTH);
}

static void gpt_deinit(struct gpt *gpt)
{
    for (size_t i = 0; i < gpt->count; i++)
        free(gpt->tensors[i].data);
}

static void load(struct gpt *gpt, const char *path)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_weights_load(path, gpt->tensors, gpt->count, &err), 0, "%s", err.text);
}

static const float *values(const struct gpt *gpt, const char *name)
{
    size_t i = 0;

    while (i < gpt->count && strcmp(gpt->names[i], name) != 0)
        i++;
    cr_assert_lt(i, gpt->count, "no tensor %s", name);
    return gpt->tensors[i].data;
}

static void assert_equal(const struct gpt *a, const struct gpt *b)
{
    for (size_t i = 0; i < a->count; i++)
        cr_assert_eq(
            memcmp(a->tensors[i].data, b->tensors[i].data, (size_t)ct_st_bytes(&a->tensors[i])), 0,
            "%s", a->names[i]);
}

/* Element (row, column) of a tensor as a file holds it. */
static float stored(const char *path, const char *name, uint64_t row, uint64_t column)
{
    struct ct_st_table table;
    char bytes[4];
    uint16_t half;
    float value;
    int fd;

    cr_assert_eq(ct_st_open(&fd, &table, path, NULL), 0);
    const struct ct_st_entry *entry = ct_st_find(&table, name);
    cr_assert_not_null(entry, "%s", name);
    uint64_t at = row * (entry->tensor.dims > 1 ? entry->tensor.shape[1] : 0) + column;
    size_t size = ct_dtype_size(entry->tensor.dtype);
    cr_assert_eq(ct_st_read(fd, path, bytes, size, entry->offset + at * size, NULL), 0);
    memcpy(&value, bytes, sizeof value * (size == 4));
    memcpy(&half, bytes, sizeof half);
    if (entry->tensor.dtype == CT_BF16)
        value = ct_bf16_to_f32(half);
    else if (entry->tensor.dtype == CT_F16)
        value = ct_f16_to_f32(half);
    ct_st_table_deinit(&table);
    (void)close(fd);
    return value;
}

Test(weights, linear_weights_of_the_hub_are_turned_and_others_are_not)
{
    static const struct {
        const char *file, *prefix;
        bool untied;
    } rows[] = {{"tests/golden/hub_f32.safetensors", "transformer.", false},
                {"tests/golden/hub_bf16.safetensors", "", false},
                {"tests/golden/hub_f16.safetensors", "transformer.", true}};
    static const struct {
        const char *name;
        uint64_t out, in;
        bool transposed;
    } tensors[] = {{"h.1.attn.c_attn.weight", 3 * WIDTH, WIDTH, true},
                   {"h.0.attn.c_proj.weight", WIDTH, WIDTH, true},
                   {"h.1.mlp.c_fc.weight", 4 * WIDTH, WIDTH, true},
                   {"h.0.mlp.c_proj.weight", WIDTH, 4 * WIDTH, true},
                   {"wte.weight", VOCABULARY, WIDTH, false},
                   {"h.1.ln_2.bias", 1, WIDTH, false}};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct gpt gpt;

        gpt_init(&gpt, rows[i].untied);
        load(&gpt, rows[i].file);
        for (size_t j = 0; j < CT_COUNT(tensors); j++) {
            uint64_t row = tensors[j].out - 1, column = tensors[j].in - 2;
            float here = values(&gpt, tensors[j].name)[row * tensors[j].in + column];
            char name[80];

            (void)snprintf(name, sizeof name, "%s%s", rows[i].prefix, tensors[j].name);
            float there = tensors[j].transposed ? stored(rows[i].file, name, column, row)
                                                : stored(rows[i].file, name, row, column);
            cr_assert_eq(here, there, "%s of %s: %g, not %g", name, rows[i].file, (double)here,
                         (double)there);
            cr_assert_neq(here, 0);
        }
        gpt_deinit(&gpt);
    }
}

Test(weights, what_is_saved_is_the_hubs_layout_and_reads_back)
{
    static const char *const files[] = {"tests/golden/hub_f32.safetensors",
                                        "tests/golden/hub_f16.safetensors"};

    for (int untied = 0; untied < 2; untied++) {
        const char *path = folder_path("model.safetensors");
        const char *head = untied != 0 ? "transformer." : "";
        struct ct_error err = {0};
        struct gpt gpt, back;
        char name[80];

        gpt_init(&gpt, untied != 0);
        gpt_init(&back, untied != 0);
        load(&gpt, files[untied]);
        cr_assert_eq(ct_weights_save(folder_path(""), gpt.tensors, gpt.count, CT_F32, 0, &err), 0,
                     "%s", err.text);
        load(&back, path);
        assert_equal(&back, &gpt);
        (void)snprintf(name, sizeof name, "%sh.1.mlp.c_fc.weight", head);
        cr_assert_eq(stored(path, name, 2, 30),
                     values(&gpt, "h.1.mlp.c_fc.weight")[30 * WIDTH + 2]);
        if (untied != 0)
            cr_assert_eq(stored(path, "lm_head.weight", 3, 5),
                         values(&gpt, "lm_head.weight")[3 * WIDTH + 5]);
        gpt_deinit(&gpt);
        gpt_deinit(&back);
    }
    cr_assert_eq(folder_count(folder_path(""), "part"), 0, "no half file is left");
}

Test(weights, halves_are_rounded_once_and_then_stay)
{
    static const enum ct_dtype types[] = {CT_BF16, CT_F16};
    struct gpt gpt, once, twice;

    gpt_init(&gpt, false);
    gpt_init(&once, false);
    gpt_init(&twice, false);
    load(&gpt, "tests/golden/hub_f32.safetensors");
    for (size_t i = 0; i < CT_COUNT(types); i++) {
        const char *path = folder_path("");
        float whole = values(&gpt, "h.0.mlp.c_fc.weight")[9];

        cr_assert_eq(ct_weights_save(path, gpt.tensors, gpt.count, types[i], 0, NULL), 0);
        load(&once, path);
        cr_assert_eq(values(&once, "h.0.mlp.c_fc.weight")[9],
                     types[i] == CT_BF16 ? ct_bf16_to_f32(ct_bf16_from_f32(whole))
                                         : ct_f16_to_f32(ct_f16_from_f32(whole)));
        cr_assert_eq(ct_weights_save(path, once.tensors, once.count, types[i], 0, NULL), 0);
        load(&twice, path);
        assert_equal(&twice, &once);
    }
    gpt_deinit(&gpt);
    gpt_deinit(&once);
    gpt_deinit(&twice);
}

/* Write the tensors as they are here, as a checkpoint does. */
static void write_plain(const char *path, const struct ct_st_tensor *tensors, size_t count)
{
    struct ct_buf file;

    ct_buf_init(&file, 0);
    cr_assert_eq(ct_st_header(&file, tensors, count, NULL), 0);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(ct_buf_append(&file, tensors[i].data, (size_t)ct_st_bytes(&tensors[i])), 0);
    folder_write(path, file.data, file.size);
    ct_buf_deinit(&file);
}

Test(weights, a_file_of_our_own_is_read_as_it_stands)
{
    const char *path = folder_path("model.safetensors");
    struct gpt gpt, back;

    gpt_init(&gpt, false);
    gpt_init(&back, false);
    load(&gpt, "tests/golden/hub_f32.safetensors");
    write_plain(path, gpt.tensors, gpt.count);
    load(&back, path);
    assert_equal(&back, &gpt);
    memset(back.tensors[0].data, 0, 16);
    load(&back, folder_path("")); /* the folder stands for model.safetensors in it */
    assert_equal(&back, &gpt);
    gpt_deinit(&gpt);
    gpt_deinit(&back);
}

static void expect_refusal(const struct gpt *gpt, size_t count, const char *path,
                           const char *expected)
{
    struct ct_error err = {0};

    cr_assert_neq(ct_weights_load(path, gpt->tensors, count, &err), 0, "%s", expected);
    cr_expect(strstr(err.text, expected) != NULL, "\"%s\" is not in\n%s", expected, err.text);
}

Test(weights, files_of_other_models_are_refused_by_name_and_shapes)
{
    static const char file[] = "tests/golden/hub_f32.safetensors";
    struct gpt gpt;

    gpt_init(&gpt, true);
    expect_refusal(&gpt, gpt.count, "tests/golden/hub_bf16.safetensors",
                   "it has no tensor \"lm_head.weight\", which is F32 [17, 8] here");
    expect_refusal(&gpt, gpt.count - 2, file,
                   "its tensor \"transformer.ln_f.bias\" does not exist here");
    gpt.tensors[1].shape[0]--;
    expect_refusal(&gpt, gpt.count, file,
                   "tensor \"wpe.weight\" is F32 [12, 8], but F32 [11, 8] here");
    gpt.tensors[1].shape[0]++;
    gpt.tensors[4].shape[0] += WIDTH;
    expect_refusal(&gpt, gpt.count, file,
                   "tensor \"h.0.attn.c_attn.weight\" is F32 [8, 24], but F32 [32, 8] here");
    gpt.tensors[4].shape[0] -= WIDTH;
    expect_refusal(&gpt, gpt.count - 1, "tests/golden/hub_f16.safetensors",
                   "its lm_head.weight is not its embedding: set model.tie to false");
    expect_refusal(&gpt, gpt.count, "tests/golden/absent.safetensors", "cannot be read: No such");
    gpt_deinit(&gpt);
}

Test(weights, only_floating_point_is_a_weight)
{
    const char *path = folder_path("whole.safetensors");
    struct ct_error err = {0};
    struct gpt gpt;

    gpt_init(&gpt, false);
    gpt.tensors[0].dtype = CT_I32;
    write_plain(path, gpt.tensors, gpt.count);
    gpt.tensors[0].dtype = CT_F32;
    expect_refusal(&gpt, gpt.count, path,
                   "tensor \"wte.weight\" is I32 [17, 8]; weights are F32, F64, BF16 or F16");
    cr_assert_eq(ct_weights_save(folder_path(""), gpt.tensors, gpt.count, CT_I32, 0, &err),
                 CT_EUSAGE);
    cr_assert_str_eq(err.text, "weights are stored as f32, bf16 or f16, not as I32");
    cr_assert_eq(ct_weights_save(folder_path("no/such"), gpt.tensors, 1, CT_F32, 0, &err),
                 CT_ECANTCREAT);
    gpt_deinit(&gpt);
}

/* ---- parts and their index ------------------------------------------------------------------- */

Test(weights, parts_hold_what_one_file_holds_and_the_last_save_counts)
{
    const char *folder = folder_path("");
    struct ct_error err = {0};
    struct gpt gpt, back;

    gpt_init(&gpt, true);
    gpt_init(&back, true);
    load(&gpt, "tests/golden/hub_f16.safetensors");
    cr_assert_eq(ct_weights_save(folder, gpt.tensors, gpt.count, CT_F32, 2000, &err), 0, "%s",
                 err.text);
    cr_assert_eq(folder_count(folder, "model-"), 5);
    cr_assert_eq(folder_count(folder, "-of-00005.safetensors"), 5);
    cr_assert_eq(folder_count(folder, ".index.json"), 1);
    load(&back, folder);
    assert_equal(&back, &gpt);
    memset(back.tensors[3].data, 0, 16);
    load(&back, folder_path("model.safetensors.index.json"));
    assert_equal(&back, &gpt);

    /* One file again: the index goes. Parts again: the file goes. */
    cr_assert_eq(ct_weights_save(folder, gpt.tensors, gpt.count, CT_F32, 1 << 20, &err), 0);
    cr_assert_eq(folder_count(folder, ".index.json"), 0);
    load(&back, folder);
    assert_equal(&back, &gpt);
    cr_assert_eq(ct_weights_save(folder, gpt.tensors, gpt.count, CT_BF16, 1, &err), 0);
    cr_assert_eq(folder_count(folder, "model.safetensors"), 1, "the index alone");
    load(&back, folder);
    gpt_deinit(&gpt);
    gpt_deinit(&back);
}

Test(weights, an_index_that_its_files_contradict_is_refused)
{
    static const struct {
        const char *index, *expected;
    } rows[] = {
        {"{", "model.safetensors.index.json: no JSON: "},
        {"{\"weight_map\": {}}", "model.safetensors.index.json: has no weight_map"},
        {"{\"weight_map\": 3}", "model.safetensors.index.json: has no weight_map"},
        {"{\"weight_map\": {\"wte.weight\": \"../a\"}}",
         "weight_map names \"../a\", which is no file here"},
        {"{\"weight_map\": {\"wte.weight\": 3}}", "weight_map names \"\", which is no file here"},
        {"{\"weight_map\": {\"wte.weight\": \"absent\"}}", "absent: cannot be opened: No such"},
        {"{\"weight_map\": {\"other\": \"all\"}}",
         "all: it has no tensor \"other\", but the index says so"},
        {"{\"weight_map\": {\"wte.weight\": \"all\"}}",
         "model.safetensors.index.json: its files hold 28 tensors, it names 1"},
    };
    struct gpt gpt;

    gpt_init(&gpt, false);
    write_plain(folder_path("all"), gpt.tensors, gpt.count);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        folder_write(folder_path("model.safetensors.index.json"), rows[i].index,
                     strlen(rows[i].index));
        expect_refusal(&gpt, gpt.count, folder_path(""), rows[i].expected);
    }
    gpt_deinit(&gpt);
}

Test(weights, a_check_reads_no_weight_and_finds_what_loading_finds)
{
    static const char file[] = "tests/golden/hub_f32.safetensors";
    struct ct_error err = {0};
    struct gpt gpt;

    gpt_init(&gpt, false);
    cr_assert_eq(ct_weights_check(file, gpt.tensors, gpt.count, &err), 0, "%s", err.text);
    cr_assert_eq(ct_weights_check(file, NULL, 0, &err), 0, "%s", err.text);
    gpt.tensors[1].shape[0]--;
    cr_assert_eq(ct_weights_check(file, gpt.tensors, gpt.count, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "tensor \"wpe.weight\" is F32 [12, 8], but F32 [11, 8]"));
    cr_assert_eq(ct_weights_check("tests/golden/absent", NULL, 0, &err), CT_ENOINPUT);
    gpt.tensors[1].shape[0]++;
    gpt_deinit(&gpt);
}
