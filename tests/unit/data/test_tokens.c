/* Windows of tokens: which ids are in which row, and files that are not what they seem. */
#include "data/dataset.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "data/sampler.h"
#include "files.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(tokens, .timeout = 30, .init = files_make, .fini = files_remove);

enum { HEADER = 1024 };

/* llm.c's file of `count` u16 (magic 20240520) or u32 ids: first, first + 1, ... */
static const char *write_shard(const char *name, bool wide, uint32_t first, uint32_t count)
{
    size_t width = wide ? 4 : 2;
    unsigned char *bytes = calloc(1, HEADER + count * width);

    cr_assert_not_null(bytes);
    ct_put_le32(bytes, wide ? 20240801 : 20240520);
    ct_put_le32(bytes + 4, wide ? 7 : 1);
    ct_put_le32(bytes + 8, count);
    for (uint32_t i = 0; i < count; i++) {
        if (wide)
            ct_put_le32(bytes + HEADER + i * width, first + i);
        else
            ct_put_le16(bytes + HEADER + i * width, (uint16_t)(first + i));
    }
    const char *path = files_write(name, bytes, HEADER + count * width);
    free(bytes);
    return path;
}

static void expect_row(const struct ct_dataset *data, uint64_t row, int32_t first)
{
    int32_t x[16], labels[16];

    cr_assert(ct_dataset_row(data, row, x, labels));
    for (size_t i = 0; i < data->width; i++) {
        cr_assert_eq(x[i], first + (int32_t)i, "row %d, id %zu is %d", (int)row, i, x[i]);
        cr_assert_eq(labels[i], x[i] + 1);
    }
}

static void expect_error(const struct ct_data_spec *spec, int code, const char *part)
{
    struct ct_dataset data;
    struct ct_error err = {0};

    cr_assert_eq(ct_dataset_load(&data, spec, &err), code, "%s", err.text);
    cr_assert_not_null(strstr(err.text, part), "\"%s\" does not say \"%s\"", err.text, part);
}

Test(tokens, windows_fill_each_shard_in_the_order_of_names_and_cross_none)
{
    struct ct_dataset data;
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "tokens", .context = 4, .classes = 1000};

    (void)write_shard("a_10.bin", true, 700, 13);  /* 3 windows */
    (void)write_shard("a_01.bin", false, 100, 10); /* 2 */
    (void)write_shard("a_02.bin", false, 300, 4);  /* none */
    (void)write_shard("a_03.bin", false, 400, 5);  /* 1 */
    spec.path = files_path("a_*.bin");
    cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(data.rows, 6);
    cr_assert_eq(data.width, 4);
    cr_assert_eq(data.labels_per_row, 4);
    const int32_t firsts[] = {100, 104, 400, 700, 704, 708};
    for (uint64_t row = 0; row < data.rows; row++)
        expect_row(&data, row, firsts[row]);
    ct_dataset_deinit(&data);
}

Test(tokens, splits_take_windows_from_the_front_and_share_none)
{
    struct ct_dataset train, eval;
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "tokens", .context = 2, .classes = 100, .split_hi = 0.8};

    spec.path = write_shard("a.bin", false, 0, 21);
    cr_assert_eq(ct_dataset_load(&train, &spec, &err), 0, "%s", err.text);
    spec.split_lo = 0.8;
    spec.split_hi = 1;
    cr_assert_eq(ct_dataset_load(&eval, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(train.rows, 8);
    cr_assert_eq(eval.rows, 2);
    expect_row(&train, 7, 14);
    expect_row(&eval, 0, 16);
    cr_assert_neq(ct_dataset_digest(&train), ct_dataset_digest(&eval));
    ct_dataset_deinit(&train);
    ct_dataset_deinit(&eval);
}

Test(tokens, bare_ids_are_read_as_they_are_declared)
{
    static const unsigned char bytes[] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0};
    struct ct_dataset data;
    struct ct_error err = {0};
    struct ct_data_spec spec = {
        .format = "tokens", .context = 2, .classes = 10, .ids = CT_TOKENS_U16};

    spec.path = files_write("bare.bin", bytes, sizeof bytes);
    cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(data.rows, 2);
    expect_row(&data, 1, 3);
    ct_dataset_deinit(&data);
    spec.ids = CT_TOKENS_U32;
    spec.classes = 1 << 20;
    cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(data.rows, 1);
    ct_dataset_deinit(&data);
}

Test(tokens, an_id_beyond_the_vocabulary_masks_its_row_and_is_named)
{
    struct ct_dataset data;
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "tokens", .context = 4, .classes = 107};
    int32_t x[4] = {1, 1, 1, 1}, labels[4] = {1, 1, 1, 1};

    spec.path = write_shard("a.bin", false, 100, 10);
    cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
    expect_row(&data, 0, 100);
    cr_assert_not(ct_dataset_row(&data, 1, x, labels));
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(x[i], 0);
        cr_assert_eq(labels[i], -1);
    }
    cr_assert_eq(ct_dataset_explain(&data, 1, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "a.bin: token 7 is 107, but the vocabulary has 107"), "%s",
                       err.text);

    const struct ct_sampler sampler = {.rows = 2, .global_batch = 2};
    const struct ct_share share = {0, 1, 1, 2};
    int32_t ids[8], next[8];
    const struct ct_batch_buffer into = {ids, next};
    cr_assert_eq(ct_sampler_fill(&sampler, &data, &share, 0, &into).bad, 2);
    cr_assert_eq(ids[3], 103);
    cr_assert_eq(next[4], -1);
    ct_dataset_deinit(&data);
}

Test(tokens, a_batch_that_an_epoch_does_not_fill_ends_with_masked_windows)
{
    struct ct_dataset data;
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "tokens", .context = 2, .classes = 100};
    const struct ct_sampler sampler = {.rows = 3, .global_batch = 2};
    const struct ct_share share = {0, 1, 1, 2};
    int32_t ids[4], next[4];
    const struct ct_batch_buffer into = {ids, next};

    spec.path = write_shard("a.bin", false, 0, 7);
    cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
    struct ct_sampler_batch batch = ct_sampler_fill(&sampler, &data, &share, 2, &into);
    cr_assert_eq(batch.valid, 1);
    cr_assert_eq(batch.bad, 0);
    cr_assert_eq(next[1], 6);
    cr_assert_eq(next[2], -1);
    cr_assert_eq(next[3], -1);
    ct_dataset_deinit(&data);
}

Test(tokens, files_that_are_not_what_they_seem_are_refused)
{
    struct ct_data_spec spec = {.format = "tokens", .context = 4, .classes = 100};

    spec.path = files_path("none_*.bin");
    expect_error(&spec, CT_ENOINPUT, "none_*.bin: no such file");
    spec.path = files_write("empty.bin", "", 0);
    expect_error(&spec, CT_ENOINPUT, "is empty or no file");
    spec.path = files_write("short.bin", "\1\0\2\0\3\0", 6);
    expect_error(&spec, CT_EDATA,
                 "does not start with llm.c's header; for bare ids set ids to u16");
    spec.ids = CT_TOKENS_U32;
    expect_error(&spec, CT_EDATA, "its 6 bytes are no whole number of ids of 4");
    spec.ids = CT_TOKENS_U16;
    expect_error(&spec, CT_EDATA, "has 3 tokens; a window of 4 needs 5");
    spec.ids = CT_TOKENS_AUTO;
    spec.path = write_shard("few.bin", false, 0, 9);
    spec.classes = 0;
    expect_error(&spec, CT_ECONFIG, "needs a model with a vocabulary");
    spec.classes = 100;
    spec.context = 0;
    expect_error(&spec, CT_ECONFIG, "need a model with a context of 1 to 1048576, not 0");
    spec.context = 4;
    unsigned char bytes[HEADER + 8] = {0};
    ct_put_le32(bytes, 20240520);
    ct_put_le32(bytes + 4, 1);
    ct_put_le32(bytes + 8, 5);
    spec.path = files_write("lies.bin", bytes, sizeof bytes);
    expect_error(&spec, CT_EDATA, "its header says 5 ids of 2 bytes, but 8 bytes follow");
    spec.path = "";
    expect_error(&spec, CT_ECONFIG, "token data needs a path");
}

Test(tokens, a_text_becomes_windows_and_another_shares_its_characters)
{
    struct ct_dataset train, eval;
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "text", .tokenizer = "char", .context = 3};
    int32_t x[3], labels[3];

    spec.path = files_write_gz("text.gz", "badcab", 6);
    cr_assert_eq(ct_dataset_load(&train, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(train.rows, 1);
    cr_assert_eq(train.classes, 4);
    cr_assert(ct_dataset_row(&train, 0, x, labels));
    cr_assert_eq(memcmp(x, (int32_t[]){1, 0, 3}, sizeof x), 0);
    cr_assert_eq(memcmp(labels, (int32_t[]){0, 3, 2}, sizeof labels), 0);

    spec.path = files_write("eval.txt", "ddddb", 5);
    spec.shared = train.tokenizer;
    cr_assert_eq(ct_dataset_load(&eval, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(eval.classes, 4);
    cr_assert_null(eval.tokenizer);
    cr_assert(ct_dataset_row(&eval, 0, x, labels));
    cr_assert_eq(x[0], 3);
    ct_dataset_deinit(&eval);
    spec.path = files_write("other.txt", "abcde", 5);
    expect_error(&spec, CT_EDATA,
                 "other.txt: byte 4: the character U+0065 is not in the vocabulary");
    ct_dataset_deinit(&train);
}

Test(tokens, gpt2_reads_a_text_with_its_file_of_merges)
{
    struct ct_dataset data;
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "text", .tokenizer = "gpt2", .context = 3};
    int32_t x[3], labels[3];

    spec.path = files_write("text", "Hello, world!", 13);
    expect_error(&spec, CT_ECONFIG, "the tokenizer gpt2 needs merges");
    spec.merges = "configs/data/gpt2.bpe.gz";
    cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(data.classes, 50257);
    cr_assert(ct_dataset_row(&data, 0, x, labels));
    cr_assert_eq(memcmp(x, (int32_t[]){15496, 11, 995}, sizeof x), 0);
    cr_assert_eq(labels[2], 0);
    ct_dataset_deinit(&data);
    spec.tokenizer = "words";
    expect_error(&spec, CT_ECONFIG, "tokenizer \"words\" is unknown; there are byte, char, gpt2");
}
