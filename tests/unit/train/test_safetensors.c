/* safetensors: a golden file of the format, round trips, and every malformed header. */
#include "train/checkpoint/safetensors.h"

#include "folder.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

TestSuite(safetensors, .init = folder_make, .fini = folder_remove, .timeout = 30);

static float weights[6] = {1, 2, 3, 4, 5, 6};
static int64_t count_value[1] = {42};

static const struct ct_st_tensor two[] = {
    {.name = "fc.weight", .dtype = CT_F32, .dims = 2, .shape = {2, 3}, .data = weights},
    {.name = "count", .dtype = CT_I64, .dims = 0, .data = count_value},
};

/* A file as another tool writes it: two [2, 3] and a scalar, data back to back. */
static struct ct_buf whole_file(void)
{
    struct ct_buf file;

    ct_buf_init(&file, 0);
    cr_assert_eq(ct_st_header(&file, two, 2, NULL), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(ct_buf_append(&file, two[i].data, ct_st_bytes(&two[i])), 0);
    return file;
}

Test(safetensors, the_header_is_what_the_format_says)
{
    static const char json[] =
        "{\"__metadata__\":{\"format\":\"ctrun\"},"
        "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]}}";
    static const char *const metadata[] = {"format", "ctrun", NULL};
    struct ct_buf head;

    ct_buf_init(&head, 0);
    cr_assert_eq(ct_st_header(&head, two, 2, metadata), 0);
    cr_assert_eq(head.size % 8, 0);
    cr_assert_eq(ct_get_le64(head.data), head.size - 8);
    cr_assert_eq(memcmp(head.data + 8, json, sizeof json - 1), 0, "%.*s", (int)head.size - 8,
                 head.data + 8);
    for (size_t i = 8 + sizeof json - 1; i < head.size; i++)
        cr_assert_eq(head.data[i], ' ');
    ct_buf_deinit(&head);
}

Test(safetensors, what_is_written_reads_back)
{
    struct ct_buf file = whole_file();
    struct ct_st_table table = {0};
    struct ct_error err = {0};
    float back[6] = {0};
    int64_t count_back[1] = {0};
    int fd = -1;
    struct ct_st_tensor wanted[] = {two[1], two[0]};
    const char *path = folder_path("a.safetensors");

    wanted[0].data = count_back;
    wanted[1].data = back;
    folder_write(path, file.data, file.size);
    cr_assert_eq(ct_st_open(&fd, &table, path, &err), 0, "%s", err.text);
    cr_assert_eq(table.count, 2);
    cr_assert_eq(ct_st_load(fd, &table, path, wanted, 2, &err), 0, "%s", err.text);
    cr_assert_eq(memcmp(back, weights, sizeof back), 0);
    cr_assert_eq(count_back[0], 42);
    (void)close(fd);
    ct_st_table_deinit(&table);
    ct_buf_deinit(&file);
}

/* Parse `json` as the header of a file with `data_size` bytes behind it. */
static int parse(const char *json, uint64_t data_size, struct ct_error *err)
{
    struct ct_buf head;
    struct ct_st_table table = {0};
    char size[8];

    ct_buf_init(&head, 0);
    ct_put_le64(size, strlen(json));
    (void)ct_buf_append(&head, size, 8);
    (void)ct_buf_puts(&head, json);
    int code = ct_st_parse(&table, "a", &head, head.size + data_size, err);
    ct_st_table_deinit(&table);
    ct_buf_deinit(&head);
    return code;
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]" \
    "}"

static const struct {
    const char *json;
    uint64_t data_size;
    const char *sentence; /* NULL: valid */
} headers[] = {
    {"{}", 0, NULL},
    {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "U8", "[0,7]", "0", "0") "}", 8, NULL},
    {"{" T("b", "BF16", "[1]", "8", "10") "," T("a", "F32", "[2]", "0", "8") "}   ", 10, NULL},
    {"", 0, "a: its header is no JSON object: '[' or '{' expected near end of file"},
    {"[]", 0, "a: its header is no JSON object"},
    {"{} x", 0, "a: its header is no JSON object: end of file expected near 'x'"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "a: __metadata__ is no map of strings"},
    {"{\"a\":1}", 0, "a: tensor \"a\" has not exactly a dtype, a shape and two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}}", 4,
     "a: tensor \"a\" has not exactly a dtype, a shape and two data_offsets"},
    {"{" T("a", "F33", "[1]", "0", "4") "}", 4, "a: tensor \"a\" has an unknown dtype"},
    {"{" T("a", "f32", "[1]", "0", "4") "}", 4, "a: tensor \"a\" has an unknown dtype"},
    {"{" T("a", "F32", "[-1]", "0", "4") "}", 4,
     "a: tensor \"a\" has a shape that is no list of sizes"},
    {"{" T("a", "F32", "[1.0]", "0", "4") "}", 4,
     "a: tensor \"a\" has a shape that is no list of sizes"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4,
     "a: tensor \"a\" has too many dimensions"},
    {"{" T("a", "F32", "[1]", "4", "0") "}", 4,
     "a: tensor \"a\" has data_offsets that are no range"},
    {"{" T("a", "F32", "[2]", "0", "4") "}", 4,
     "a: tensor \"a\" has data_offsets that disagree with its shape and dtype"},
    {"{" T("a", "F32", "[4611686018427387904,4]", "0", "0") "}", 0,
     "a: tensor \"a\" has data_offsets that disagree with its shape and dtype"},
    {"{" T("a", "F32", "[4]", "0", "16") "}", 12,
     "a: tensor \"a\" lies behind the end of the file (is it truncated?)"},
    {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "2", "6") "}", 6,
     "a: tensor \"b\" overlaps another"},
    {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "6", "10") "}", 10,
     "a: tensor \"b\" leaves a gap before it"},
    {"{" T("a", "F32", "[1]", "0", "4") "}", 5, "a: 1 bytes behind the last tensor"},
    {"{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "4", "8") "}", 8,
     "a: its header is no JSON object: duplicate object key near '\"a\"'"},
};

Test(safetensors, only_an_exact_partition_of_the_data_is_accepted)
{
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct ct_error err = {0};
        int code = parse(headers[i].json, headers[i].data_size, &err);
        cr_assert_str_eq(err.text, headers[i].sentence != NULL ? headers[i].sentence : "");
        cr_assert_eq(code, headers[i].sentence != NULL ? CT_EDATA : 0);
    }
}

Test(safetensors, a_header_size_that_cannot_be_is_refused_before_it_is_read)
{
    struct ct_error err = {0};
    char first8[8] = {0};
    size_t size = 77;

    cr_assert_eq(ct_st_head_size(&size, "a", first8, 7, &err), CT_EDATA);
    cr_assert_str_eq(err.text, "a: truncated: 7 bytes hold no header");
    ct_put_le64(first8, 100);
    cr_assert_eq(ct_st_head_size(&size, "a", first8, 107, &err), CT_EDATA);
    cr_assert_str_eq(err.text, "a: truncated: a header of 100 bytes, but the file has 107");
    ct_put_le64(first8, UINT64_MAX);
    cr_assert_eq(ct_st_head_size(&size, "a", first8, UINT64_MAX, &err), CT_ELIMIT);
    cr_assert_eq(size, 77);
    ct_put_le64(first8, 100);
    cr_assert_eq(ct_st_head_size(&size, "a", first8, 108, &err), 0);
    cr_assert_eq(size, 108);
}

Test(safetensors, every_truncation_of_a_file_is_noticed)
{
    struct ct_buf file = whole_file();
    const char *path = folder_path("cut.safetensors");

    for (size_t size = 0; size < file.size; size++) {
        struct ct_st_table table = {0};
        struct ct_error err = {0};
        int fd = -1;
        folder_write(path, file.data, size);
        cr_assert_eq(ct_st_open(&fd, &table, path, &err), CT_EDATA, "%zu of %zu bytes", size,
                     file.size);
    }
    ct_buf_deinit(&file);
}

static void expect_mismatch(const struct ct_st_tensor *wanted, size_t count, const char *sentence)
{
    struct ct_buf file = whole_file();
    struct ct_st_table table = {0};
    struct ct_error err = {0};
    int fd = -1;
    const char *path = folder_path("a.safetensors");

    folder_write(path, file.data, file.size);
    cr_assert_eq(ct_st_open(&fd, &table, path, &err), 0);
    cr_assert_eq(ct_st_load(fd, &table, "a", wanted, count, &err), CT_EDATA);
    cr_assert_str_eq(err.text, sentence);
    (void)close(fd);
    ct_st_table_deinit(&table);
    ct_buf_deinit(&file);
}

Test(safetensors, tensors_of_another_model_are_named_with_both_shapes)
{
    float room[8] = {7};
    struct ct_st_tensor wanted[] = {two[0], two[1]};

    wanted[0].data = wanted[1].data = room;
    wanted[0].shape[1] = 4;
    expect_mismatch(wanted, 2,
                    "a: of another model: tensor \"fc.weight\" is F32 [2, 3], but F32 [2, 4] "
                    "here");
    wanted[0] = two[0];
    wanted[0].dtype = CT_I32;
    expect_mismatch(wanted, 2,
                    "a: of another model: tensor \"fc.weight\" is F32 [2, 3], but I32 [2, 3] "
                    "here");
    wanted[0] = two[0];
    wanted[0].name = "fc2.weight";
    expect_mismatch(wanted, 2,
                    "a: of another model or optimizer: it has no tensor \"fc2.weight\", which is "
                    "F32 [2, 3] here");
    wanted[0] = two[0];
    expect_mismatch(wanted, 1,
                    "a: of another model or optimizer: its tensor \"count\" does not exist here");
    cr_assert_float_eq(room[0], 7, 0, "a mismatch must not touch the tensors");
}
