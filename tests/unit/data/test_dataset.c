/* Datasets from files: gzip, limits, normalisation, splits, and every way a file can fail. */
#include "data/dataset.h"

#include "base/bytes.h"
#include "files.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(dataset, .init = files_make, .fini = files_remove, .timeout = 30);

static const char table[] = "0,16,1\n4,8,0\n8,4,3\n16,0,2\n";

Test(dataset, gzip_and_plain_files_give_the_same_rows)
{
    struct ct_dataset plain = {0}, packed = {0};
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "csv", .label = -1};

    spec.path = files_write("a.csv", table, sizeof table - 1);
    cr_assert_eq(ct_dataset_load(&plain, &spec, &err), 0, "%s", err.text);
    spec.path = files_write_gz("a.csv.gz", table, sizeof table - 1);
    cr_assert_eq(ct_dataset_load(&packed, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(plain.rows, 4);
    cr_assert_eq(plain.width, 2);
    cr_assert_eq(plain.classes, 4);
    cr_assert_eq(packed.rows, 4);
    cr_assert_eq(memcmp(plain.features, packed.features, 8 * sizeof(float)), 0);
    cr_assert_eq(memcmp(plain.labels, packed.labels, 4 * sizeof(int32_t)), 0);
    ct_dataset_deinit(&plain);
    ct_dataset_deinit(&packed);
}

Test(dataset, features_are_scaled_shifted_and_divided)
{
    struct ct_dataset data = {0};
    struct ct_error err = {0};
    struct ct_data_spec spec = {
        .format = "csv", .label = -1, .scale = 0.0625, .mean = 0.5, .std = 0.25};

    spec.path = files_write("a.csv", table, sizeof table - 1);
    cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
    cr_assert_float_eq(data.features[0], -2, 0);
    cr_assert_float_eq(data.features[1], 2, 0);
    cr_assert_float_eq(data.features[2], -1, 0);
    ct_dataset_deinit(&data);
}

Test(dataset, splits_that_meet_share_no_row_and_lose_none)
{
    enum { ROWS = 101 };
    struct ct_buf text;
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "csv", .label = 0, .classes = ROWS};
    int seen[ROWS] = {0};
    bool in_file_order = true;
    const double cuts[] = {0, 0.3, 0.8, 1};
    const size_t sizes[] = {30, 51, 20};

    ct_buf_init(&text, 0);
    for (int i = 0; i < ROWS; i++)
        cr_assert_eq(ct_buf_printf(&text, "%d,%d\n", i, 1000 + i), 0);
    spec.path = files_write("a.csv", text.data, text.size);
    ct_buf_deinit(&text);
    for (int part = 0; part < 3; part++) {
        struct ct_dataset data = {0};
        spec.split_lo = cuts[part];
        spec.split_hi = cuts[part + 1];
        cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
        cr_assert_eq(data.rows, sizes[part], "part %d has %zu rows", part, data.rows);
        for (size_t i = 0; i < data.rows; i++) {
            seen[data.labels[i]]++;
            cr_assert_float_eq(data.features[i], (float)(1000 + data.labels[i]), 0);
            in_file_order = in_file_order && (i == 0 || data.labels[i] > data.labels[i - 1]);
        }
        ct_dataset_deinit(&data);
    }
    for (int i = 0; i < ROWS; i++)
        cr_assert_eq(seen[i], 1);
    cr_assert(!in_file_order);
}

Test(dataset, idx_pairs_load_from_gzip_files)
{
    static const char images[] = "\0\0\x08\x02\0\0\0\2\0\0\0\2\1\2\3\4";
    static const char labels[] = "\0\0\x08\x01\0\0\0\2\0\1";
    struct ct_dataset data = {0};
    struct ct_error err = {0};
    struct ct_data_spec spec = {.format = "idx"};

    spec.images = files_write_gz("i.gz", images, sizeof images - 1);
    spec.labels = files_write("l", labels, sizeof labels - 1);
    cr_assert_eq(ct_dataset_load(&data, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(data.rows, 2);
    cr_assert_eq(data.classes, 2);
    cr_assert_float_eq(data.features[3], 4, 0);
    ct_dataset_deinit(&data);
}

static void expect(const struct ct_data_spec *spec, int code, const char *part)
{
    struct ct_dataset data = {.rows = 77};
    struct ct_error err = {0};

    cr_assert_eq(ct_dataset_load(&data, spec, &err), code, "%s", err.text);
    cr_assert_not_null(strstr(err.text, part), "\"%s\" misses \"%s\"", err.text, part);
    cr_assert_eq(data.rows, 77, "the out-parameter was touched");
}

Test(dataset, unreadable_files_are_named_with_the_reason)
{
    struct ct_data_spec spec = {.format = "csv", .path = files_path("missing.csv"), .label = -1};

    expect(&spec, CT_ENOINPUT, "missing.csv: cannot be opened: No such file or directory");
    spec.path = files_path("folder");
    cr_assert_eq(mkdir(spec.path, 0700), 0);
    expect(&spec, CT_ENOINPUT, "folder: is a directory, not a data file");
    spec.path = files_path("pipe");
    cr_assert_eq(mkfifo(spec.path, 0600), 0);
    expect(&spec, CT_ENOINPUT, "pipe: is a device or pipe, not a data file");
    spec.path = files_write("empty.csv", "", 0);
    expect(&spec, CT_EDATA, "empty.csv: holds no row");
    spec.path = NULL;
    expect(&spec, CT_ECONFIG, "csv data needs a path");
    spec.format = "idx";
    expect(&spec, CT_ECONFIG, "idx data needs images and labels");
    spec.format = "parquet";
    expect(&spec, CT_ECONFIG,
           "data format \"parquet\" is unknown; there are csv, idx, text, tokens");
}

/* Random digits, so that gzip has something to store in many bytes. */
static void put_noise(struct ct_buf *text, int rows)
{
    unsigned state = 1;

    for (int i = 0; i < rows; i++) {
        state = state * 1103515245u + 12345u;
        cr_assert_eq(ct_buf_printf(text, "%u,%u\n", state >> 8, state % 10), 0);
    }
}

Test(dataset, cut_and_damaged_gzip_files_are_told_apart)
{
    struct ct_buf text, packed;
    struct ct_data_spec spec = {.format = "csv", .label = -1};

    ct_buf_init(&text, 0);
    ct_buf_init(&packed, 0);
    put_noise(&text, 5000);
    const char *path = files_write_gz("a.gz", text.data, text.size);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    char *at = ct_buf_reserve(&packed, text.size);
    packed.size = fread(at, 1, text.size, file);
    cr_assert_eq(fclose(file), 0);
    cr_assert_gt(packed.size, 1000);

    spec.path = files_write("cut.gz", packed.data, packed.size - 500);
    expect(&spec, CT_EDATA, "cut.gz: the gzip stream is truncated");
    packed.data[packed.size - 6] ^= 0x55; /* the CRC */
    spec.path = files_write("bad.gz", packed.data, packed.size);
    expect(&spec, CT_EDATA, "bad.gz: the gzip stream is damaged");
    ct_buf_deinit(&text);
    ct_buf_deinit(&packed);
}

Test(dataset, a_decompression_bomb_ends_at_the_limit)
{
    char *zeros = calloc(1, 4 << 20);
    struct ct_data_spec spec = {.format = "csv", .label = -1, .limit_bytes = 1 << 20};

    cr_assert_not_null(zeros);
    memset(zeros, '\n', 4 << 20);
    spec.path = files_write_gz("bomb.gz", zeros, 4 << 20);
    expect(&spec, CT_ELIMIT, "bomb.gz: unpacks to more than the limit of 1048576 bytes");
    free(zeros);
}

Test(dataset, impossible_splits_and_scales_are_refused)
{
    struct ct_data_spec spec = {.format = "csv", .label = -1, .split_lo = 0.5, .split_hi = 0.5};

    spec.path = files_write("a.csv", table, sizeof table - 1);
    expect(&spec, CT_ECONFIG, "split [0.5, 0.5] is not a range within 0 to 1");
    spec.split_hi = 1.5;
    expect(&spec, CT_ECONFIG, "split [0.5, 1.5] is not a range within 0 to 1");
    spec.split_hi = 0.55;
    expect(&spec, CT_ECONFIG, "split [0.5, 0.55] of 4 rows holds no row");
    spec.split_lo = spec.split_hi = 0;
    spec.scale = 1;
    expect(&spec, CT_ECONFIG, "std is 0; a feature is divided by it");
    spec.std = 1e-40;
    expect(&spec, CT_ECONFIG, "into one that f32 cannot hold");
}
