/* CSV: what is accepted, and the sentence for each thing that is not. */
#include "data/source.h"

#include "base/bytes.h"
#include "memory_stream.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(csv, .timeout = 30);

static int read_text(struct ct_rows *rows, const struct ct_data_spec *spec, const char *text,
                     struct ct_error *err)
{
    struct ct_stream stream;

    *rows = (struct ct_rows){.limit_bytes = 1 << 20};
    memory_stream(&stream, "a.csv", text, strlen(text));
    return ct_csv_read(rows, &stream, spec, err);
}

Test(csv, values_and_labels_land_in_their_places)
{
    struct ct_rows rows;
    struct ct_data_spec spec = {.label = 1};
    struct ct_error err = {0};

    cr_assert_eq(read_text(&rows, &spec, "1.5,2,-3e1\n4,0,.25\n", &err), 0, "%s", err.text);
    cr_assert_eq(rows.rows, 2);
    cr_assert_eq(rows.width, 2);
    const float want[] = {1.5f, -30.0f, 4.0f, 0.25f};
    cr_assert_eq(memcmp(rows.features, want, sizeof want), 0);
    cr_assert_eq(rows.labels[0], 2);
    cr_assert_eq(rows.labels[1], 0);
    ct_rows_deinit(&rows);
}

Test(csv, blanks_crlf_byte_order_mark_and_empty_lines_are_fine)
{
    struct ct_rows rows;
    struct ct_data_spec spec = {.label = -1};
    struct ct_error err = {0};

    cr_assert_eq(read_text(&rows, &spec, "\xEF\xBB\xBF 1 ,\t2\r\n\r\n   \n3,4", &err), 0, "%s",
                 err.text);
    cr_assert_eq(rows.rows, 2);
    cr_assert_float_eq(rows.features[1], 3, 0);
    cr_assert_eq(rows.labels[1], 4);
    ct_rows_deinit(&rows);
}

Test(csv, a_header_line_is_skipped)
{
    struct ct_rows rows;
    struct ct_data_spec spec = {.label = -1, .header = true};
    struct ct_error err = {0};

    cr_assert_eq(read_text(&rows, &spec, "\nx,\"y\"\n1,2\n", &err), 0, "%s", err.text);
    cr_assert_eq(rows.rows, 1);
    ct_rows_deinit(&rows);
}

static const struct {
    const char *text;
    int label;
    int code;
    const char *sentence;
} bad[] = {
    {"", -1, CT_EDATA, "a.csv: holds no row"},
    {"\n \n", -1, CT_EDATA, "a.csv: holds no row"},
    {"1\n", -1, CT_EDATA, "a.csv:1: 1 columns, but a row has a label and 1 to 1048576 features"},
    {"1,2\n1,2,3\n", -1, CT_EDATA, "a.csv:2: 3 columns, but the rows before have 2"},
    {"1,2,3\n1,2\n", 0, CT_EDATA, "a.csv:2: 2 columns, but the rows before have 3"},
    {"1,2\n1,x\n", 0, CT_EDATA, "a.csv:2, column 2: \"x\" is not a number"},
    {"x,y\n1,2\n", -1, CT_EDATA,
     "a.csv:1, column 1: \"x\" is not a number (if this line names the columns, set header: "
     "true)"},
    {"1,2\n0x10,2\n", -1, CT_EDATA, "a.csv:2, column 1: \"0x10\" is not a number"},
    {"1,2\n1 2,2\n", -1, CT_EDATA, "a.csv:2, column 1: \"1 2\" is not a number"},
    {"1,2\n,2\n", -1, CT_EDATA, "a.csv:2, column 1: the value is missing"},
    {"1,2\n3,\n", -1, CT_EDATA, "a.csv:2, column 2: the value is missing"},
    {"1,2\n\nnan,2\n", -1, CT_EDATA, "a.csv:3, column 1: \"nan\" is not a finite f32 number"},
    {"-inf,2\n", -1, CT_EDATA, "a.csv:1, column 1: \"-inf\" is not a finite f32 number"},
    {"1e39,2\n", -1, CT_EDATA, "a.csv:1, column 1: \"1e39\" is not a finite f32 number"},
    {"1,10\n", -1, CT_EDATA, "a.csv:1, column 2: label 10 is out of range 0..9"},
    {"1,-1\n", -1, CT_EDATA, "a.csv:1, column 2: label -1 is out of range 0..9"},
    {"1,2.5\n", -1, CT_EDATA,
     "a.csv:1, column 2: \"2.5\" is not a whole number, as a label must be"},
    {"1,2\n", 2, CT_ECONFIG, "a.csv: label column 2, but a row has 2 columns"},
    {"1,2\n", -3, CT_ECONFIG, "a.csv: label column -3, but a row has 2 columns"},
    {"1,2\n1,\x01\x7f\xff\n", -1, CT_EDATA, "a.csv:2, column 2: \"???\" is not a number"},
};

Test(csv, every_bad_value_is_named_with_its_place)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ct_rows rows;
        struct ct_data_spec spec = {.label = bad[i].label, .classes = 10};
        struct ct_error err = {0};
        cr_assert_eq(read_text(&rows, &spec, bad[i].text, &err), bad[i].code, "row %zu: %s", i,
                     err.text);
        cr_assert_str_eq(err.text, bad[i].sentence);
        ct_rows_deinit(&rows);
    }
}

Test(csv, a_number_cut_by_a_zero_byte_is_not_a_number)
{
    static const char text[] = "1,2\n1\0005,2\n";
    struct ct_rows rows = {.limit_bytes = 1 << 20};
    struct ct_data_spec spec = {.label = -1};
    struct ct_stream stream;
    struct ct_error err = {0};

    memory_stream(&stream, "a.csv", text, sizeof text - 1);
    cr_assert_eq(ct_csv_read(&rows, &stream, &spec, &err), CT_EDATA);
    cr_assert_str_eq(err.text, "a.csv:2, column 1: \"1?5\" is not a number");
    ct_rows_deinit(&rows);
}

Test(csv, lines_cut_by_chunks_are_read_whole)
{
    enum { ROWS = 60000 };
    struct ct_buf text;
    struct ct_rows rows = {.limit_bytes = 16 << 20};
    struct ct_data_spec spec = {.label = -1, .classes = 10};
    struct ct_stream stream;
    struct ct_error err = {0};

    ct_buf_init(&text, 0);
    for (int i = 0; i < ROWS; i++)
        cr_assert_eq(ct_buf_printf(&text, "%d,%d.5,%d\n", i, i, i % 10), 0);
    memory_stream(&stream, "a.csv", text.data, text.size);
    cr_assert_eq(ct_csv_read(&rows, &stream, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(rows.rows, ROWS);
    for (int i = 0; i < ROWS; i++) {
        cr_assert_float_eq(rows.features[2 * i], (float)i, 0);
        cr_assert_float_eq(rows.features[2 * i + 1], (float)i + 0.5f, 0);
        cr_assert_eq(rows.labels[i], i % 10);
    }
    ct_rows_deinit(&rows);
    ct_buf_deinit(&text);
}

Test(csv, memory_above_the_limit_is_refused)
{
    struct ct_rows rows = {.limit_bytes = 24};
    struct ct_data_spec spec = {.label = -1};
    struct ct_stream stream;
    struct ct_error err = {0};

    memory_stream(&stream, "a.csv", "1,2\n3,4\n5,6\n7,8\n", 16);
    cr_assert_eq(ct_csv_read(&rows, &stream, &spec, &err), CT_ELIMIT);
    cr_assert_str_eq(err.text, "a.csv: needs more than the limit of 24 bytes in memory");
    cr_assert_eq(rows.rows, 3);
    ct_rows_deinit(&rows);
}
