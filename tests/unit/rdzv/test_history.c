/* Histories of the store and of publications that could be, and some that could not: the checker of
 * tests/lib/history. */
#include "base/assert.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/number/rng.h"
#include "history/history.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(history, .timeout = 60);

enum { MOST = 12, CLIENTS = 8, MANY = 20000 };

#define OPEN HISTORY_OPEN
#define NOTHING HISTORY_ABSENT

#define DID(kind, generation, key, a, b, begin, end, code, value)         \
    {                                                                     \
        HISTORY_##kind, 0, generation, key, a, b, begin, end, code, value \
    }
#define SET(value, begin, end) DID(SET, 1, "k", value, 0, begin, end, 0, NOTHING)
#define GET(value, begin, end) DID(GET, 1, "k", 0, 0, begin, end, 0, value)
#define GET_NOTHING(begin, end) DID(GET, 1, "k", 0, 0, begin, end, CT_ENOTFOUND, NOTHING)
#define ADD(delta, sum, begin, end) DID(ADD, 1, "k", delta, 0, begin, end, 0, sum)
#define CAS(from, to, now, begin, end) DID(CAS, 1, "k", from, to, begin, end, 0, now)
#define DELETE(code, begin, end) DID(DELETE, 1, "k", 0, 0, begin, end, code, NOTHING)
#define PUBLISH(g, step, code, begin, end) DID(PUBLISH, g, "-", step, 0, begin, end, code, 0)
#define SEE(g, step, begin, end) DID(SEE, 9, "-", g, 0, begin, end, 0, step)

static const struct example {
    const char *rule;
    bool good;
    struct history_op ops[MOST]; /* up to one that begins at 0 */
} examples[] = {
    {"a read sees the last write", true, {SET(1, 1, 2), SET(2, 3, 4), GET(2, 5, 6)}},
    {"a read beside a write sees it", true, {SET(1, 1, 2), SET(2, 3, 9), GET(2, 4, 5)}},
    {"a read beside a write does not see it", true, {SET(1, 1, 2), SET(2, 3, 9), GET(1, 4, 5)}},
    {"what is seen once stays", false, {SET(1, 1, 2), SET(2, 3, 9), GET(2, 4, 5), GET(1, 6, 7)}},
    {"a stale read", false, {SET(1, 1, 2), SET(2, 3, 4), GET(1, 5, 6)}},
    {"a value that nobody set", false, {SET(1, 1, 2), GET(3, 5, 6)}},
    {"a read before the write", false, {GET(1, 1, 2), SET(1, 3, 4)}},
    {"two values out of one set",
     false,
     {SET(1, 1, 20), SET(2, 4, 5), GET(1, 2, 3), GET(2, 6, 7), GET(1, 8, 9)}},
    {"a set without an answer took effect twice",
     false,
     {SET(1, 1, OPEN), SET(2, 4, 5), GET(1, 2, 3), GET(2, 6, 7), GET(1, 8, 9)}},
    {"a set without an answer takes effect late",
     true,
     {SET(1, 1, OPEN), SET(2, 2, 3), GET(2, 4, 5), GET(1, 6, 7)}},
    {"a set without an answer never takes effect",
     true,
     {SET(1, 1, OPEN), SET(2, 2, 3), GET(2, 4, 5), GET(2, 6, 7)}},
    {"a set without an answer has no effect before it was asked for",
     false,
     {GET(1, 1, 2), SET(1, 3, OPEN)}},
    {"an answer of another kind leaves the effect open",
     true,
     {DID(SET, 1, "k", 1, 0, 1, 2, CT_ECLOSED, NOTHING), GET(1, 3, 4)}},
    {"two adds", true, {ADD(1, 1, 1, 4), ADD(1, 2, 2, 3)}},
    {"a lost add", false, {ADD(1, 1, 1, 4), ADD(1, 1, 2, 3)}},
    {"an add without an answer counts or does not",
     true,
     {ADD(5, 0, 1, OPEN), ADD(7, 0, 1, OPEN), ADD(1, 1, 2, 3), ADD(1, 7, 4, 5)}},
    {"an add without an answer counts once",
     false,
     {ADD(5, 0, 1, OPEN), ADD(1, 1, 2, 3), ADD(1, 7, 4, 5), ADD(1, 13, 6, 7)}},
    {"one of two wins", true, {CAS(NOTHING, 1, 1, 1, 4), CAS(NOTHING, 2, 1, 2, 3)}},
    {"both win", false, {CAS(NOTHING, 1, 1, 1, 4), CAS(NOTHING, 2, 2, 2, 3)}},
    {"a swap of what is not there says so", true, {CAS(5, 1, NOTHING, 1, 2), GET_NOTHING(3, 4)}},
    {"a resurrected key", false, {SET(1, 1, 2), DELETE(0, 3, 4), GET(1, 5, 6)}},
    {"a key that is deleted is not found",
     true,
     {SET(1, 1, 2), DELETE(0, 3, 4), GET_NOTHING(5, 6), DELETE(CT_ENOTFOUND, 7, 8)}},
    {"a delete that finds nothing where something is",
     false,
     {SET(1, 1, 2), DELETE(CT_ENOTFOUND, 3, 4)}},
    {"a wait in vain for what was there",
     false,
     {SET(1, 1, 2), DID(WAIT, 1, "k", 20, 0, 3, 4, CT_ETIMEOUT, NOTHING)}},
    {"a key ends with its round",
     true,
     {SET(1, 1, 2), DID(GET, 2, "k", 0, 0, 3, 4, CT_ENOTFOUND, NOTHING)}},
    {"a key that outlives its round", false, {SET(1, 1, 2), DID(GET, 2, "k", 0, 0, 3, 4, 0, 1)}},
    {"keys have nothing to do with each other",
     true,
     {SET(1, 1, 2), DID(GET, 1, "l", 0, 0, 3, 4, CT_ENOTFOUND, NOTHING)}},
    {"a publication is seen", true, {SEE(0, 0, 1, 2), PUBLISH(1, 5, 0, 3, 4), SEE(1, 5, 5, 6)}},
    {"a publication that counts is not seen", false, {PUBLISH(1, 5, 0, 1, 2), SEE(0, 0, 3, 4)}},
    {"one of a minority counts",
     false,
     {PUBLISH(1, 5, 0, 1, 2), PUBLISH(1, 10, 0, 3, 4), SEE(1, 5, 5, 6)}},
    {"an older one than somebody saw before",
     false,
     {PUBLISH(1, 5, 0, 1, 2), PUBLISH(1, 10, CT_ETIMEOUT, 3, OPEN), SEE(1, 10, 4, 5),
      SEE(1, 5, 6, 7)}},
    {"one without an answer is seen, then none older",
     true,
     {PUBLISH(1, 5, 0, 1, 2), PUBLISH(1, 10, 0, 3, OPEN), SEE(1, 5, 4, 5), SEE(1, 10, 6, 7)}},
    {"one that was refused is seen", false, {PUBLISH(1, 5, CT_EFENCED, 1, 2), SEE(1, 5, 3, 4)}},
    {"one that was refused is not seen", true, {PUBLISH(1, 5, CT_EFENCED, 1, 2), SEE(0, 0, 3, 4)}},
    {"the step falls", false, {PUBLISH(1, 10, 0, 1, 2), PUBLISH(2, 5, 0, 3, 4)}},
    {"the generation falls", false, {PUBLISH(2, 5, 0, 1, 2), PUBLISH(1, 10, 0, 3, 4)}},
    {"a step that counts already is published again",
     true,
     {PUBLISH(1, 5, 0, 1, 2), PUBLISH(2, 5, 0, 3, 4), SEE(1, 5, 5, 6)}},
};

Test(history, examples_are_told_apart)
{
    for (size_t i = 0; i < CT_COUNT(examples); i++) {
        struct history history = {0};
        struct history_report report;

        for (int k = 0; k < MOST && examples[i].ops[k].begin_ns != 0; k++)
            cr_assert(history_add(&history, &examples[i].ops[k]));
        cr_assert_eq(history_check(&history, &report), examples[i].good, "%s: %s", examples[i].rule,
                     report.text);
        cr_assert_eq(report.text[0] == '\0', examples[i].good);
        history_deinit(&history);
    }
}

/* ---- many operations ------------------------------------------------------------------------ */

/* What a key does, in one place. */
static void take_effect(struct history_op *op, int64_t *value)
{
    switch (op->kind) {
    case HISTORY_SET:
        *value = op->a;
        break;
    case HISTORY_ADD:
        op->value = *value = (*value == NOTHING ? 0 : *value) + op->a;
        break;
    case HISTORY_CAS:
        op->value = *value = *value == op->a ? op->b : *value;
        break;
    case HISTORY_DELETE:
        op->code = *value == NOTHING ? CT_ENOTFOUND : 0;
        *value = NOTHING;
        break;
    default:
        op->code = *value == NOTHING ? CT_ENOTFOUND : 0;
        op->value = *value;
        break;
    }
}

static struct history_op any_op(struct ct_rng *rng, uint64_t now, int64_t seen)
{
    struct history_op op = {.kind = (enum history_kind)ct_rng_below(rng, HISTORY_WAIT),
                            .generation = 1,
                            .key = "k",
                            .a = (int64_t)(ct_rng_next(rng) >> 16),
                            .b = (int64_t)(ct_rng_next(rng) >> 16),
                            .begin_ns = now,
                            .end_ns = OPEN,
                            .value = NOTHING};

    if (ct_rng_below(rng, 12) == 0)
        op.kind = HISTORY_DELETE;
    if (op.kind == HISTORY_CAS)
        op.a = seen;
    if (op.kind == HISTORY_ADD)
        op.a = 1 + (int64_t)ct_rng_below(rng, 9);
    return op;
}

/* Clients of one key take turns by chance: each asks, is served, is answered; one of 4000 gives up
 * instead of a later turn. */
static void make_history(struct history *history, struct ct_rng *rng)
{
    struct history_op ops[CLIENTS];
    int stages[CLIENTS] = {0};
    int64_t value = NOTHING;

    for (uint64_t now = 1; history->count < MANY; now++) {
        uint64_t i = ct_rng_below(rng, CLIENTS);
        bool gives_up = stages[i] > 0 && ct_rng_below(rng, 4000) == 0;
        if (stages[i] == 0)
            ops[i] = any_op(rng, now, value);
        else if (stages[i] == 1 && !gives_up)
            take_effect(&ops[i], &value);
        else if (!gives_up)
            ops[i].end_ns = now;
        if (gives_up || stages[i] == 2)
            cr_assert(history_add(history, &ops[i]));
        stages[i] = gives_up ? 0 : (stages[i] + 1) % 3;
    }
}

Test(history, one_false_answer_among_20000_operations_is_found)
{
    struct history history = {0};
    struct history_report report;
    struct ct_rng rng;

    ct_rng_init(&rng, 1);
    make_history(&history, &rng);
    cr_assert(history_check(&history, &report), "%s", report.text);
    cr_assert_gt(report.open, 3);
    cr_assert_lt(report.visited, 50 * MANY);
    cr_log_info("%zu configurations for %zu operations", report.visited, history.count);
    size_t i = MANY / 4; /* all that may come before is looked at */
    while (history.ops[i].end_ns == OPEN || history.ops[i].code != 0 ||
           history.ops[i].kind != HISTORY_GET)
        i++;
    history.ops[i].value++;
    cr_assert_not(history_check(&history, &report));
    cr_assert_not_null(strstr(report.text, "no order of"), "%s", report.text);
    history_deinit(&history);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void expect_file(const char *folder, bool good)
{
    struct history history = {0};
    struct history_report report;
    char text[HISTORY_TEXT];

    cr_assert(history_read(&history, folder, text), "%s", text);
    cr_assert_eq(history.count, 3);
    cr_assert_eq(history.ops[1].end_ns, OPEN);
    cr_assert_eq(history_check(&history, &report), good, "%s", report.text);
    history_deinit(&history);
}

Test(history, a_file_says_what_was_recorded_and_with_another_answer_is_refused)
{
    const struct history_op set = SET(7, 10, 11), unknown = SET(8, 12, OPEN), get = GET(7, 13, 14);
    char folder[] = "/tmp/ctrun-history-XXXXXX", path[64], text[HISTORY_TEXT];
    struct history nothing = {0};
    struct history_file file;

    cr_assert_not_null(mkdtemp(folder));
    cr_assert_not(history_read(&nothing, folder, text));
    cr_assert_eq(history_open_file(&file, folder, "1"), 0);
    history_answer(&file, history_invoke(&file, &set), 11, 0, NOTHING);
    (void)history_invoke(&file, &unknown);
    uint64_t number = history_invoke(&file, &get);
    history_answer(&file, number, 14, 0, 7);
    history_close_file(&file);
    expect_file(folder, true);
    (void)snprintf(path, sizeof path, "%s/history.1", folder);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, lseek(fd, -(off_t)strlen("< 2 0 7 14\n"), SEEK_END)), 0);
    cr_assert_eq(write(fd, "< 2 0 9 14\n", 11), 11);
    expect_file(folder, false);
    cr_assert_eq(write(fd, "nonsense\n", 9), 9);
    cr_assert_not(history_read(&nothing, folder, text));
    (void)close(fd);
    history_deinit(&nothing);
    (void)ct_fs_remove_tree(folder);
}
