/* See costs.h: the figures as text.
 *
 *     # what ctrun plan --calibrate measured: seconds, bytes
 *     version 2
 *     machine 2 cores of AMD EPYC
 *     value step 2.1e-06
 *     crowd 2 1.08                                   ranks, slow-down
 *     op linear f32 1 32 64 64 262144 1.2e6 1.4e-06  threads, sizes, amount, touched, seconds
 *     call shm all_reduce 2 1048576 4.6e-05          ranks, bytes, seconds
 *     machine 64 cores of ...                        a home that several machines share */
#include "collectives/planner/costs.h"

#include "base/assert.h"
#include "base/str.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 10, LINE_BYTES = 256 };

static const struct {
    const char *name;
    double least;
} values[CT_COST_VALUES] = {
#define VALUE(name, least, unit, text) {#name, least},
#include "collectives/planner/cost_value.def"
};

static const char *const calls[CT_CALL_COSTS] = {
    [CT_CALL_COST_ALL_REDUCE] = "all_reduce",
    [CT_CALL_COST_ALL_GATHER] = "all_gather",
    [CT_CALL_COST_REDUCE_SCATTER] = "reduce_scatter",
    [CT_CALL_COST_SEND] = "send",
    [CT_CALL_COST_LATE] = "late",
};

/* ---- reading -------------------------------------------------------------------------------- */

/* Cut a line at blanks; how many words it has, WORDS + 1 for more than there may be. */
static int cut(char *line, char *words[WORDS])
{
    char *rest = line, *word;
    int count = 0;

    while ((word = strsep(&rest, " ")) != NULL)
        if (*word != '\0') {
            if (count == WORDS)
                return WORDS + 1;
            words[count++] = word;
        }
    return count;
}

/* A number above `least`. */
static int read_number(const char *word, double least, double *ret, struct ct_error *err)
{
    if (ct_parse_f64(word, ret) != 0 || *ret <= least)
        return ct_error_set(err, CT_ECONFIG, "\"%.40s\" is no number above %g", word, least);
    return 0;
}

static int read_ranks(const char *word, int *ret, struct ct_error *err)
{
    int64_t ranks;

    if (ct_parse_i64(word, &ranks) != 0 || ranks < 2 || ranks > INT_MAX)
        return ct_error_set(err, CT_ECONFIG, "\"%.40s\" is no number of ranks: 2 or more", word);
    *ret = (int)ranks;
    return 0;
}

static int is_full(const char *what, int most, struct ct_error *err)
{
    return ct_error_set(err, CT_ECONFIG, "a machine has at most %d lines of \"%s\"", most, what);
}

static int read_value(struct ct_costs *costs, char *const *words, struct ct_error *err)
{
    for (int i = 0; i < CT_COST_VALUES; i++)
        if (strcmp(words[1], values[i].name) == 0)
            return read_number(words[2], values[i].least, &costs->value[i], err);
    return ct_error_set(err, CT_ECONFIG, "\"%.40s\" is no value that a calibration has", words[1]);
}

static int read_crowd(struct ct_costs *costs, char *const *words, struct ct_error *err)
{
    if (costs->crowd_count == CT_COSTS_CROWDS)
        return is_full(words[0], CT_COSTS_CROWDS, err);
    struct ct_cost_crowd *crowd = &costs->crowds[costs->crowd_count];
    int code = read_ranks(words[1], &crowd->ranks, err);
    if (code == 0)
        code = read_number(words[2], 0, &crowd->slowdown, err);
    costs->crowd_count += code == 0;
    return code;
}

static int read_op(struct ct_costs *costs, char *const *words, struct ct_error *err)
{
    if (costs->op_count == CT_COSTS_OPS)
        return is_full(words[0], CT_COSTS_OPS, err);
    struct ct_cost_op *op = &costs->ops[costs->op_count];
    double *const numbers[] = {&op->shape.size[0], &op->shape.size[1], &op->shape.size[2],
                               &op->shape.amount,  &op->shape.touched, &op->seconds};
    int64_t threads;
    int code = 0;

    op->kind = ct_op_find(words[1]);
    if (op->kind < 0)
        return ct_error_set(err, CT_ECONFIG, "\"%.40s\" is no op", words[1]);
    op->half = strcmp(words[2], "bf16") == 0;
    if (!op->half && strcmp(words[2], "f32") != 0)
        return ct_error_set(err, CT_ECONFIG, "\"%.40s\" is no type: f32 or bf16", words[2]);
    if (ct_parse_i64(words[3], &threads) != 0 || threads < 1 || threads > CT_COSTS_THREADS)
        return ct_error_set(err, CT_ECONFIG, "\"%.40s\" is no number of threads: 1 to %d", words[3],
                            CT_COSTS_THREADS);
    op->threads = (int)threads;
    for (size_t i = 0; i < CT_COUNT(numbers) && code == 0; i++)
        code = read_number(words[4 + i], 0, numbers[i], err);
    costs->op_count += code == 0;
    return code;
}

static int read_call(struct ct_costs *costs, char *const *words, struct ct_error *err)
{
    if (costs->call_count == CT_COSTS_CALLS)
        return is_full(words[0], CT_COSTS_CALLS, err);
    struct ct_cost_between *between = &costs->calls[costs->call_count];
    int call = 0;

    while (call < CT_CALL_COSTS && strcmp(words[2], calls[call]) != 0)
        call++;
    between->across = strcmp(words[1], "tcp") == 0;
    if (!between->across && strcmp(words[1], "shm") != 0)
        return ct_error_set(err, CT_ECONFIG, "\"%.40s\" is no way between ranks: shm or tcp",
                            words[1]);
    if (call == CT_CALL_COSTS)
        return ct_error_set(err, CT_ECONFIG, "\"%.40s\" is no call that is measured", words[2]);
    between->call = (enum ct_cost_call)call;
    int code = read_ranks(words[3], &between->ranks, err);
    if (code == 0)
        code = read_number(words[4], 0, &between->bytes, err);
    if (code == 0)
        code = read_number(words[5], 0, &between->seconds, err);
    costs->call_count += code == 0;
    return code;
}

static const struct {
    const char *name;
    int words;
    int (*read)(struct ct_costs *costs, char *const *words, struct ct_error *err);
} rows[] = {{"value", 3, read_value},
            {"crowd", 3, read_crowd},
            {"op", 10, read_op},
            {"call", 6, read_call}};

struct reader {
    struct ct_costs *costs, *other; /* lines of other machines are checked, too */
    bool versioned, found, named;
};

static int begin_machine(struct reader *reader, const char *name, struct ct_error *err)
{
    if (!reader->versioned)
        return ct_error_set(err, CT_ECONFIG, "\"version 2\" has to come first");
    bool here = strcmp(name, reader->costs->machine) == 0;
    if (here && reader->found)
        return ct_error_set(err, CT_ECONFIG, "machine \"%.80s\" is there twice", name);
    reader->named = true;
    reader->found |= here;
    if (!here)
        memset(reader->other, 0, sizeof *reader->other);
    (void)ct_str_copy(reader->other->machine, sizeof reader->other->machine, here ? "" : name);
    return 0;
}

static int read_line(struct reader *reader, char *text, struct ct_error *err)
{
    char *words[WORDS];

    if (ct_starts_with(text, "machine "))
        return begin_machine(reader, text + 8, err);
    int count = cut(text, words);
    if (count == 0 || words[0][0] == '#')
        return 0;
    if (count == 2 && strcmp(words[0], "version") == 0) {
        reader->versioned = strcmp(words[1], "2") == 0;
        return reader->versioned
                   ? 0
                   : ct_error_set(err, CT_ECONFIG,
                                  "version \"%.40s\" is another ctrun's, here it is 2", words[1]);
    }
    struct ct_costs *costs = reader->other->machine[0] == '\0' ? reader->costs : reader->other;
    for (size_t i = 0; i < CT_COUNT(rows) && reader->named; i++)
        if (strcmp(words[0], rows[i].name) == 0 && count == rows[i].words)
            return rows[i].read(costs, words, err);
    return ct_error_set(err, CT_ECONFIG,
                        "\"%.40s\" begins no line of a calibration: it is \"machine NAME\", and "
                        "below that value, crowd, op or call with their numbers",
                        words[0]);
}

/* Nothing of this machine may be missing. */
static int check_whole(const struct ct_costs *costs, struct ct_error *err)
{
    for (int i = 0; i < CT_COST_VALUES; i++)
        if (costs->value[i] <= 0)
            return ct_error_set(err, CT_ECONFIG,
                                "no value \"%s\" of \"%.80s\": the file is cut off", values[i].name,
                                costs->machine);
    if (costs->op_count == 0)
        return ct_error_set(err, CT_ECONFIG, "no op of \"%.80s\": the file is cut off",
                            costs->machine);
    return 0;
}

/* The line at *at without its end; false for one that is too long or no text. */
static bool next_line(const char *text, size_t bytes, size_t *at, char line[LINE_BYTES])
{
    const char *from = text + *at, *end = memchr(from, '\n', bytes - *at);
    size_t length = end != NULL ? (size_t)(end - from) : bytes - *at;

    *at += length + 1;
    if (length >= LINE_BYTES || memchr(from, '\0', length) != NULL)
        return false;
    memcpy(line, from, length);
    line[length] = '\0';
    return !ct_str_has_control(line);
}

int ct_costs_parse(struct ct_costs *costs, const char *text, size_t bytes, bool *ret_found,
                   struct ct_error *err)
{
    struct reader reader = {.costs = costs, .other = calloc(1, sizeof *reader.other)};
    char line[LINE_BYTES];
    int code = 0, number = 0;

    if (reader.other == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    costs->op_count = costs->call_count = costs->crowd_count = 0;
    memset(costs->value, 0, sizeof costs->value);
    for (size_t at = 0; code == 0 && at < bytes; number++)
        code = next_line(text, bytes, &at, line)
                   ? read_line(&reader, line, err)
                   : ct_error_set(err, CT_ECONFIG,
                                  "a calibration is text, in lines of at most %d "
                                  "bytes",
                                  LINE_BYTES - 1);
    if (code == 0 && reader.found)
        code = check_whole(costs, err);
    free(reader.other);
    if (code != 0)
        return ct_error_prefix(err, "%d", number);
    *ret_found = reader.found;
    return 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void print_machine(const struct ct_costs *costs, struct ct_buf *to)
{
    ct_buf_printf(to, "machine %s\n", costs->machine);
    for (int i = 0; i < CT_COST_VALUES; i++)
        ct_buf_printf(to, "value %s %.4g\n", values[i].name, costs->value[i]);
    for (int i = 0; i < costs->crowd_count; i++)
        ct_buf_printf(to, "crowd %d %.4g\n", costs->crowds[i].ranks, costs->crowds[i].slowdown);
    for (int i = 0; i < costs->call_count; i++) {
        const struct ct_cost_between *b = &costs->calls[i];
        ct_buf_printf(to, "call %s %s %d %.0f %.4g\n", b->across ? "tcp" : "shm", calls[b->call],
                      b->ranks, b->bytes, b->seconds);
    }
    for (int i = 0; i < costs->op_count; i++) {
        const struct ct_cost_op *op = &costs->ops[i];
        const double *size = op->shape.size;
        ct_buf_printf(to, "op %s %s %d %.0f %.0f %.0f %.0f %.3g %.4g\n",
                      ct_op_info((enum ct_op_kind)op->kind)->name, op->half ? "bf16" : "f32",
                      op->threads, size[0], size[1], size[2], op->shape.amount, op->shape.touched,
                      op->seconds);
    }
}

void ct_costs_print(const struct ct_costs *costs, const char *text, size_t bytes, struct ct_buf *to)
{
    bool keeps = false;
    size_t at = 0;

    ct_buf_puts(to, "# what ctrun plan --calibrate measured: seconds, bytes\nversion 2\n");
    print_machine(costs, to);
    while (at < bytes) {
        const char *from = text + at, *end = memchr(from, '\n', bytes - at);
        int length = (int)(end != NULL ? end - from : (ptrdiff_t)(bytes - at));
        if (length > 8 && strncmp(from, "machine ", 8) == 0)
            keeps = (size_t)length - 8 != strlen(costs->machine) ||
                    strncmp(from + 8, costs->machine, (size_t)length - 8) != 0;
        if (keeps)
            ct_buf_printf(to, "%.*s\n", length, from);
        at += (size_t)length + 1;
    }
}
