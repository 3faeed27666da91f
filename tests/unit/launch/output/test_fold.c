/* Equal lines of several ranks (fold.h). */
#include "output/fold.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct ct_fold *fold;
static struct ct_buf out;
static uint64_t lines_out;

static void put(void *context, const struct ct_folded *line)
{
    (void)context;
    lines_out += line->count;
    if (out.size < 1 << 20)
        (void)ct_buf_printf(&out, "[%s]x%u %.*s\n", line->ranks, line->count, (int)line->size,
                            line->text);
}

static void begin(uint32_t ranks)
{
    ct_buf_init(&out, 0);
    lines_out = 0;
    fold = ct_fold_new(ranks, ranks, put, NULL);
    cr_assert_not_null(fold);
}

static void end(void)
{
    ct_fold_free(fold);
    ct_buf_deinit(&out);
}

TestSuite(fold, .timeout = 20);

static void add(uint64_t now_ms, uint32_t rank, const char *text)
{
    ct_fold_add(fold, now_ms, rank, text, strlen(text));
}

static void assert_out(const char *expected)
{
    cr_assert_str_eq(ct_buf_str(&out), expected);
    ct_buf_clear(&out);
}

Test(fold, equal_lines_of_several_ranks_become_one)
{
    begin(8);
    for (uint32_t rank = 0; rank < 7; rank++)
        if (rank != 3)
            add(rank, rank, "epoch 1");
    add(7, 3, "warning");
    assert_out("");
    ct_fold_flush(fold, 199, false);
    assert_out("");
    ct_fold_flush(fold, 200, false);
    assert_out("[0-2,4-6]x6 epoch 1\n");
    ct_fold_flush(fold, 207, false);
    assert_out("[3]x1 warning\n");
    end();
}

Test(fold, a_line_that_all_ranks_have_written_waits_no_longer)
{
    begin(3);
    add(0, 0, "ready");
    add(0, 2, "ready");
    add(1, 1, "ready");
    assert_out("[0-2]x3 ready\n");
    end();
}

Test(fold, the_lines_of_each_rank_stay_in_their_order)
{
    begin(9);
    add(0, 0, "a");
    add(0, 0, "b");
    add(0, 1, "b");
    add(0, 1, "a"); /* behind its b, and rank 0's has a line behind it: so it stands alone */
    add(0, 2, "a");
    add(0, 2, "a"); /* with rank 1's */
    ct_fold_flush(fold, 0, true);
    assert_out("[0,2]x2 a\n[0-1]x2 b\n[1-2]x2 a\n");
    end();
}

Test(fold, a_line_waits_behind_what_others_write_before_theirs)
{
    begin(9);
    for (uint32_t rank = 0; rank < 3; rank++) {
        char name[16];

        (void)snprintf(name, sizeof name, "I am %u", rank);
        add(rank, rank, name);
        add(rank, rank, "same");
    }
    ct_fold_flush(fold, 0, true);
    assert_out("[0]x1 I am 0\n[1]x1 I am 1\n[2]x1 I am 2\n[0-2]x3 same\n");
    end();
}

Test(fold, a_line_waits_no_longer_than_twice_its_time)
{
    begin(9000);
    for (uint32_t now = 0; now < 1000; now += 10) {
        char name[16];

        (void)snprintf(name, sizeof name, "at %u", now);
        add(now, now, name);
        add(now, now, "same");
        ct_fold_flush(fold, now, false);
        const char *first = strstr(ct_buf_str(&out), "same");
        cr_assert(now < 2 * CT_FOLD_MS || first != NULL, "at %u", now);
    }
    end();
}

Test(fold, a_line_joins_the_oldest_equal_one_that_it_may)
{
    begin(9);
    add(0, 0, "tick");
    add(0, 0, "x");
    add(0, 0, "tick");
    add(0, 1, "tick");
    add(0, 1, "x");
    add(0, 1, "tick");
    ct_fold_flush(fold, 0, true);
    assert_out("[0-1]x2 tick\n[0-1]x2 x\n[0-1]x2 tick\n");
    end();
}

Test(fold, many_ranges_are_counted_and_unknown_ranks_stand_alone)
{
    begin(100);
    for (uint32_t rank = 0; rank < 80; rank += 2)
        add(0, rank, "even");
    add(0, 100, "even");
    ct_fold_flush(fold, 0, true);
    assert_out("[0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,...]x40 even\n[100]x1 even\n");
    end();
}

/* Against a plain reckoning: all come out, each rank's in order. */
Test(fold, any_lines_come_out_once_and_in_order)
{
    enum { RANKS = 5, LINES = 50000 };
    begin(RANKS);
    srand(3);
    for (uint64_t n = 0; n < LINES; n++) {
        char text[8] = {(char)('a' + rand() % 3), '\0'};

        add(n / 20, (uint32_t)rand() % RANKS, text);
    }
    ct_fold_flush(fold, 0, true);
    cr_assert_eq(lines_out, LINES);
    end();
}

/* The lines of one rank alone, whatever the others do meanwhile. */
Test(fold, what_one_rank_wrote_can_be_read_from_what_comes_out)
{
    struct ct_buf mine;
    const char *line;

    begin(64);
    ct_buf_init(&mine, 0);
    srand(5);
    for (int n = 0; n < 3000; n++) {
        uint32_t rank = (uint32_t)rand() % 3;
        char text[8] = {(char)('a' + rand() % 2), '\0'};

        add((uint64_t)n, rank, text);
        if (rank == 1)
            (void)ct_buf_printf(&mine, "%s", text);
    }
    ct_fold_flush(fold, 0, true);
    struct ct_buf seen;
    ct_buf_init(&seen, 0);
    for (line = ct_buf_str(&out); *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *ranks_end = strchr(line, ']');
        bool has = false;

        for (const char *at = line + 1; at < ranks_end; at++) {
            has = has || *at == '1';
            has = has || strncmp(at, "0-2", 3) == 0;
        }
        if (has)
            (void)ct_buf_append(&seen, strchr(line, ' ') + 1, 1);
    }
    cr_assert_str_eq(ct_buf_str(&seen), ct_buf_str(&mine));
    ct_buf_deinit(&seen);
    ct_buf_deinit(&mine);
    end();
}

Test(fold, a_flood_costs_a_look_into_a_table_a_line)
{
    enum { LINES = 200000 };
    begin(64);
    clock_t before = clock();

    for (uint32_t n = 0; n < LINES; n++) {
        char text[64];
        uint32_t rank = n % 64;

        (void)snprintf(text, sizeof text, "rank %u step %u of the training, or so", rank * (n % 2),
                       n / 64);
        add(n / 100, rank, text);
    }
    double us = (double)(clock() - before) * 1e6 / CLOCKS_PER_SEC / LINES;
    cr_assert_lt(us, 20, "%.2f us a line",
                 us); /* ten times what it takes, also where it is watched */
    end();
}
