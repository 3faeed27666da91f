/* The table of a machine: what it says of whom, what it refuses, how it is written. */
#include "algorithm/tuning.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(tuning, .timeout = 30);

static const char two[] = "# measured on a Sunday\n"
                          "version 1\n"
                          "machine 2 cores of this\n"
                          "shm 2 local_flat_bytes 64KiB  # was 32KiB\n"
                          "shm 4 local_flat_bytes 4096\n"
                          "\n"
                          "ucx 2 tcp_flat_bytes 8KiB\n"
                          "machine 64 cores of that\n"
                          "shm 2 local_flat_bytes 1KiB\n";

static struct ct_table parse(const char *text, const char *machine)
{
    struct ct_table table = {0};
    struct ct_error err = {0};

    (void)snprintf(table.machine, sizeof table.machine, "%s", machine);
    cr_assert_eq(ct_table_parse(&table, text, strlen(text), &err), 0, "%s", err.text);
    return table;
}

static size_t flat_of(const struct ct_table *table, const char *backend, int ranks)
{
    static const struct ct_tuning none;

    return ct_table_tuning(table, backend, ranks, &none).local_flat_bytes;
}

Test(tuning, a_group_gets_what_was_measured_with_as_many_ranks_or_fewer)
{
    struct ct_table table = parse(two, "2 cores of this");

    cr_assert_eq(table.count, 3);
    cr_assert_eq(flat_of(&table, "shm", 2), 65536);
    cr_assert_eq(flat_of(&table, "shm", 3), 65536);
    cr_assert_eq(flat_of(&table, "shm", 4), 4096);
    cr_assert_eq(flat_of(&table, "shm", 100), 4096);
    table.lines[0].ranks = 8;
    cr_assert_eq(flat_of(&table, "shm", 2), 4096);
}

Test(tuning, what_was_not_measured_keeps_its_default)
{
    static const struct ct_tuning given = {.tcp_flat_bytes = 77};
    struct ct_table table = parse(two, "2 cores of this"), empty = {0};
    struct ct_tuning tuning = ct_table_tuning(&table, "ucx", 2, &given);

    cr_assert_eq(tuning.tcp_flat_bytes, 77); /* a caller's own comes first */
    cr_assert_eq(tuning.local_flat_bytes, 4096);
    tuning = ct_table_tuning(&table, "mpi", 2, &(struct ct_tuning){0});
    cr_assert_eq(tuning.tcp_flat_bytes, 16384); /* measured on ucx alone */
    tuning = ct_table_tuning(&empty, "shm", 2, &(struct ct_tuning){0});
    cr_assert_eq(tuning.local_flat_bytes, 4096);
}

/* defaults.def */
Test(tuning, a_backend_may_have_defaults_of_its_own)
{
    struct ct_table empty = {0},
                    table = parse("version 1\nmachine x\nucx 2 tcp_block_bytes 1KiB\n", "x");
    const struct ct_tuning none = {0}, given = {.tcp_block_bytes = 77};

    cr_assert_eq(ct_table_tuning(&empty, "ucx", 5, &none).tcp_block_bytes, 128 << 10);
    cr_assert_eq(ct_table_tuning(&empty, "tcp", 5, &none).tcp_block_bytes, 512 << 10);
    cr_assert_eq(ct_table_tuning(&empty, "tcp", 2, &none).tcp_flat_bytes, 128 << 10);
    cr_assert_eq(ct_table_tuning(&empty, "tcp", 3, &none).tcp_flat_bytes, 16 << 10);
    cr_assert_eq(ct_table_tuning(&table, "ucx", 5, &none).tcp_block_bytes, 1024);
    cr_assert_eq(ct_table_tuning(&table, "ucx", 5, &given).tcp_block_bytes, 77);
}

Test(tuning, each_machine_has_its_own)
{
    struct ct_table that = parse(two, "64 cores of that"), first = parse(two, "");

    cr_assert_eq(flat_of(&that, "shm", 2), 1024);
    cr_assert_eq(parse(two, "1 cores of nobody").count, 0);
    cr_assert_str_eq(first.machine, "2 cores of this");
    cr_assert_eq(first.count, 3);
}

Test(tuning, what_is_written_is_read)
{
    struct ct_table table = parse(two, "2 cores of this"), again;
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_table_print(&table, &text);
    again = parse(ct_buf_str(&text), "2 cores of this");
    cr_assert_eq(again.count, table.count);
    cr_assert_eq(memcmp(again.lines, table.lines, (size_t)table.count * sizeof *table.lines), 0);
    ct_buf_deinit(&text);
}

Test(tuning, a_machine_replaces_its_own_lines_alone)
{
    struct ct_table table = parse(two, "2 cores of this");
    const struct ct_table_line line = {"shm", 4, CT_SIZE_local_flat_bytes, 2048};
    struct ct_buf text;

    cr_assert(ct_table_set(&table, &line));
    cr_assert_eq(table.count, 3);
    ct_buf_init(&text, 0);
    ct_table_merge(&table, two, strlen(two), &text);
    cr_assert_str_eq(ct_buf_str(&text), "# measured on a Sunday\n"
                                        "version 1\n"
                                        "machine 2 cores of this\n"
                                        "shm 2 local_flat_bytes 64KiB\n"
                                        "shm 4 local_flat_bytes 2KiB\n"
                                        "ucx 2 tcp_flat_bytes 8KiB\n"
                                        "machine 64 cores of that\n"
                                        "shm 2 local_flat_bytes 1KiB\n");
    ct_buf_clear(&text);
    (void)snprintf(table.machine, sizeof table.machine, "new");
    table.count = 1;
    ct_table_merge(&table, "version 1\nmachine a", 19, &text);
    cr_assert_str_eq(ct_buf_str(&text),
                     "version 1\nmachine a\nmachine new\nshm 2 local_flat_bytes 64KiB\n");
    ct_buf_deinit(&text);
}

Test(tuning, garbage_is_refused_with_the_line_and_the_reason)
{
#define HEAD "version 1\nmachine m\n"
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"hello world", "1: \"hello\" is no line of a tuning table"},
        {"version 2\n", "1: version \"2\" is not known here: it is 1"},
        {"machine m\n", "1: \"version 1\" has to come first"},
        {"version 1\nshm 2 local_flat_bytes 1\n", "2: \"shm\" is no line of a tuning table"},
        {HEAD "shm 2 flat 1\n", "3: \"flat\" is no size that collectives have"},
        {HEAD "tcp 2 local_flat_bytes 1\n", "3: local_flat_bytes is a size of shm thread, not"},
        {HEAD "sh 2 local_flat_bytes 1\n", "3: local_flat_bytes is a size of shm thread, not"},
        {HEAD "shm 1 local_flat_bytes 1\n", "3: \"1\" is no number of ranks: 2 or more"},
        {HEAD "shm -2 local_flat_bytes 1\n", "3: \"-2\" is no number of ranks: 2 or more"},
        {HEAD "shm 2 local_flat_bytes 0\n", "3: local_flat_bytes \"0\": it is 1 to 1073741824"},
        {HEAD "shm 2 local_flat_bytes 2GiB\n", "3: local_flat_bytes \"2GiB\": it is 1 to"},
        {HEAD "shm 2 local_flat_bytes\n", "3: \"shm\" is no line of a tuning table"},
        {HEAD "shm 2 local_flat_bytes 1 2\n", "3: \"shm\" is no line of a tuning table"},
        {HEAD "\x7f"
              "ELF",
         "3: byte 0x7f: a tuning table is plain text"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_table table = {.machine = "m"};
        struct ct_error err = {0};
        int code = ct_table_parse(&table, rows[i].text, strlen(rows[i].text), &err);

        cr_assert_eq(code, CT_ECONFIG, "row %zu", i);
        cr_assert_eq(strncmp(err.text, rows[i].says, strlen(rows[i].says)), 0, "row %zu: %s", i,
                     err.text);
    }
#undef HEAD
}

/* Bytes turned, cut and doubled: an answer, and never anything else. */
Test(tuning, any_text_gets_an_answer)
{
    struct ct_rng rng;

    ct_rng_init(&rng, 7);
    for (int i = 0; i < 20000; i++) {
        struct ct_table table = {0};
        struct ct_error err = {0};
        char text[2 * sizeof two];
        size_t bytes = (size_t)ct_rng_below(&rng, sizeof two);

        memcpy(text, two, bytes);
        memcpy(text + bytes, two, sizeof two - 1);
        bytes += (size_t)ct_rng_below(&rng, sizeof two);
        for (int turned = 0; turned < 3; turned++)
            text[ct_rng_below(&rng, sizeof text)] = (char)ct_rng_below(&rng, 256);
        int code = ct_table_parse(&table, text, bytes, &err);
        cr_assert(code == 0 || (code == CT_ECONFIG && err.text[0] >= '0' && err.text[0] <= '9'));
    }
}

/* ---- the file --------------------------------------------------------------------------------*/

static void load(struct ct_table *table, int code)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_table_load(table, &err), code, "%s", err.text);
}

Test(tuning, a_machine_reads_what_it_has_saved)
{
    char folder[] = "/tmp/ctrun-tuning-XXXXXX", path[256];
    static struct ct_table table, again;
    struct ct_error err = {0};

    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(unsetenv("CTRUN_TUNING"), 0);
    cr_assert_eq(setenv("XDG_CONFIG_HOME", folder, 1), 0);
    load(&again, 0);
    cr_assert_eq(again.count, 0);
    cr_assert(
        ct_table_set(&table, &(struct ct_table_line){"shm", 2, CT_SIZE_local_flat_bytes, 99}));
    cr_assert_eq(ct_table_save(&table, &err), 0, "%s", err.text);
    load(&again, 0);
    cr_assert_eq(again.count, 1);
    cr_assert_eq(again.lines[0].value, 99);
    cr_assert_eq(setenv("CTRUN_TUNING", "none", 1), 0);
    load(&again, 0);
    cr_assert_eq(again.count, 0);
    cr_assert_eq(ct_table_save(&table, &err), CT_ECANTCREAT);
    (void)snprintf(path, sizeof path, "%s/other", folder);
    cr_assert_eq(setenv("CTRUN_TUNING", path, 1), 0);
    load(&again, CT_ENOINPUT); /* who names a file means it */
    cr_assert_eq(ct_fs_remove_tree(folder), 0);
}

Test(tuning, a_file_that_is_no_table_is_left_alone)
{
    char path[] = "/tmp/ctrun-tuning-XXXXXX", text[8] = "";
    static struct ct_table table;
    struct ct_error err = {0};
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    cr_assert_eq(ct_fs_write_all(fd, "dear\n", 5), 0);
    cr_assert_eq(setenv("CTRUN_TUNING", path, 1), 0);
    cr_assert_eq(ct_table_load(&table, &err), CT_ECONFIG);
    cr_assert_not_null(strstr(err.text, path));
    cr_assert_eq(ct_table_save(&table, &err), CT_ECONFIG);
    cr_assert_eq(pread(fd, text, sizeof text - 1, 0), 5);
    cr_assert_str_eq(text, "dear\n");
    (void)close(fd);
    (void)unlink(path);
}
