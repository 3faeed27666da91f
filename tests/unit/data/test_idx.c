/* IDX: MNIST's shape of file, and the sentence for each broken one. */
#include "data/source.h"
#include "memory_stream.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(idx, .timeout = 30);

#define BYTES(text) (text), sizeof(text) - 1

/* Three items of 1 x 2 u8, three labels. */
#define IMAGES "\0\0\x08\x03\0\0\0\3\0\0\0\1\0\0\0\2\1\2\3\4\5\377"
#define LABELS "\0\0\x08\x01\0\0\0\3\7\0\2"

static int read_pair(struct ct_rows *rows, const char *images, size_t images_size,
                     const char *labels, size_t labels_size, struct ct_error *err)
{
    struct ct_stream a, b;
    struct ct_data_spec spec = {.classes = 10};

    *rows = (struct ct_rows){.limit_bytes = 1 << 20};
    memory_stream(&a, "images", images, images_size);
    memory_stream(&b, "labels", labels, labels_size);
    return ct_idx_read(rows, &a, &b, &spec, err);
}

Test(idx, items_are_flattened_and_paired_with_their_labels)
{
    struct ct_rows rows;
    struct ct_error err = {0};
    const float want[] = {1, 2, 3, 4, 5, 255};

    cr_assert_eq(read_pair(&rows, BYTES(IMAGES), BYTES(LABELS), &err), 0, "%s", err.text);
    cr_assert_eq(rows.rows, 3);
    cr_assert_eq(rows.width, 2);
    cr_assert_eq(memcmp(rows.features, want, sizeof want), 0);
    cr_assert_eq(rows.labels[0], 7);
    cr_assert_eq(rows.labels[2], 2);
    ct_rows_deinit(&rows);
}

Test(idx, every_element_type_is_read_big_endian)
{
    static const struct {
        const char *bytes;
        size_t size;
        float want;
    } files[] = {
        {BYTES("\0\0\x09\x01\0\0\0\1\376"), -2},
        {BYTES("\0\0\x0B\x01\0\0\0\1\377\376"), -2},
        {BYTES("\0\0\x0C\x01\0\0\0\1\0\1\0\0"), 65536},
        {BYTES("\0\0\x0D\x01\0\0\0\1\x3f\xc0\0\0"), 1.5f},
        {BYTES("\0\0\x0E\x01\0\0\0\1\xbf\xf8\0\0\0\0\0\0"), -1.5f},
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct ct_rows rows;
        struct ct_error err = {0};
        cr_assert_eq(
            read_pair(&rows, files[i].bytes, files[i].size, BYTES("\0\0\x08\x01\0\0\0\1\1"), &err),
            0, "%s", err.text);
        cr_assert_float_eq(rows.features[0], files[i].want, 0);
        ct_rows_deinit(&rows);
    }
}

Test(idx, every_broken_file_is_named)
{
    static const struct {
        const char *images;
        size_t images_size;
        const char *labels;
        size_t labels_size;
        int code;
        const char *sentence;
    } rows_of[] = {
        {BYTES(""), BYTES(LABELS), CT_EDATA, "images: truncated within its header, after 0 bytes"},
        {BYTES("\0\0\x08\x03\0\0"), BYTES(LABELS), CT_EDATA,
         "images: truncated within its header, after 6 bytes"},
        {BYTES("\x89PNG...."), BYTES(LABELS), CT_EDATA,
         "images: not an IDX file: it starts with 89 50 4e 47, not with 00 00, a type (08..0e) and "
         "1 to 8 dimensions"},
        {BYTES("\0\0\x08\x09...."), BYTES(LABELS), CT_EDATA,
         "images: not an IDX file: it starts with 00 00 08 09, not with 00 00, a type (08..0e) and "
         "1 to 8 dimensions"},
        {BYTES("\0\0\x08\x03\0\0\0\3\0\0\0\1\0\0\0\2\1\2\3"), BYTES(LABELS), CT_EDATA,
         "images: truncated: its header promises 3 items of 2 u8, but the file ends after 19 "
         "bytes"},
        {BYTES(IMAGES "x"), BYTES(LABELS), CT_EDATA,
         "images: holds more bytes than its header says"},
        {BYTES("\0\0\x08\x02\0\0\0\0\0\0\0\2"), BYTES(LABELS), CT_EDATA, "images: holds no item"},
        {BYTES("\0\0\x08\x02\0\0\0\1\377\0\0\0"), BYTES(LABELS), CT_EDATA,
         "images: dimension 2 is 4278190080; an item may have 1 to 1048576 elements"},
        {BYTES("\0\0\x08\x02\377\0\0\0\0\1\0\0\1"), BYTES("\0\0\x08\x01\377\0\0\0\1"), CT_EDATA,
         "images: truncated: its header promises 4278190080 items of 65536 u8, but the file ends "
         "after 13 bytes"},
        {BYTES(IMAGES), BYTES("\0\0\x08\x01\0\0\0\2\7\0"), CT_EDATA,
         "images holds 3 items, but labels holds 2 labels"},
        {BYTES(IMAGES), BYTES("\0\0\x08\x02\0\0\0\3\0\0\0\2......"), CT_EDATA,
         "labels: a label has 2 elements, not one"},
        {BYTES(IMAGES), BYTES("\0\0\x08\x01\0\0\0\3\7\0\12"), CT_EDATA,
         "labels: item 2: label 10 is out of range 0..9"},
        {BYTES(IMAGES), BYTES(LABELS "x"), CT_EDATA,
         "labels: holds more bytes than its header says"},
        {BYTES("\0\0\x0D\x01\0\0\0\3\0\0\0\0\x7f\xc0\0\0\0\0\0\0"), BYTES(LABELS), CT_EDATA,
         "images: item 1, element 0 is not a finite f32 number"},
    };

    for (size_t i = 0; i < sizeof rows_of / sizeof rows_of[0]; i++) {
        struct ct_rows rows;
        struct ct_error err = {0};
        int code = read_pair(&rows, rows_of[i].images, rows_of[i].images_size, rows_of[i].labels,
                             rows_of[i].labels_size, &err);
        cr_assert_str_eq(err.text, rows_of[i].sentence);
        cr_assert_eq(code, rows_of[i].code);
        ct_rows_deinit(&rows);
    }
}
