/* A history cut into its objects, and what each of them may do. See history.h. */
#include "history/history.h"

#include "base/error.h"
#include "history/linear.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VISITED = 4 << 20 };

/* ---- what an answer means ------------------------------------------------------------------- */

static bool is_of_store(const struct history_op *op)
{
    return op->kind < HISTORY_PUBLISH;
}

/* An answer that says what has happened; any other leaves that open. */
static bool is_answered(const struct history_op *op)
{
    if (op->end_ns == HISTORY_OPEN)
        return false;
    switch (op->kind) {
    case HISTORY_GET:
    case HISTORY_DELETE:
        return op->code == 0 || op->code == CT_ENOTFOUND;
    case HISTORY_WAIT:
        return op->code == 0 || op->code == CT_ETIMEOUT;
    case HISTORY_PUBLISH:
        return op->code == 0 || op->code == CT_EFENCED;
    default:
        return op->code == 0;
    }
}

/* Without an answer it tells nothing. */
static bool is_read(const struct history_op *op)
{
    return op->kind == HISTORY_GET || op->kind == HISTORY_WAIT || op->kind == HISTORY_SEE;
}

/* ---- a key: state.a is its value ------------------------------------------------------------ */

static bool apply_store(const struct linear_op *linear, struct linear_state before,
                        struct linear_state *ret_after)
{
    const struct history_op *op = linear->what;
    bool is_open = linear->end_ns == LINEAR_OPEN;
    int64_t now = before.a;

    switch (op->kind) {
    case HISTORY_SET:
        now = op->a;
        break;
    case HISTORY_ADD:
        now = (now == HISTORY_ABSENT ? 0 : now) + op->a;
        break;
    case HISTORY_CAS:
        now = now == op->a ? op->b : now;
        break;
    case HISTORY_DELETE:
        if (!is_open && (op->code == 0) != (now != HISTORY_ABSENT))
            return false;
        now = HISTORY_ABSENT;
        break;
    default: /* it reads: nothing where it was not found or did not come */
        if (now != (op->code == 0 ? op->value : HISTORY_ABSENT))
            return false;
        break;
    }
    bool tells = op->kind == HISTORY_ADD || op->kind == HISTORY_CAS;
    *ret_after = (struct linear_state){.a = now};
    return is_open || !tells || op->value == now;
}

/* ---- publications: state is (generation, step) of the newest -------------------------------- */

bool history_follows(uint64_t generation, uint64_t step, uint64_t last_generation,
                     uint64_t last_step)
{
    return generation >= last_generation && step >= last_step;
}

static bool apply_publication(const struct linear_op *linear, struct linear_state before,
                              struct linear_state *ret_after)
{
    const struct history_op *op = linear->what;

    *ret_after = before;
    if (op->kind == HISTORY_SEE)
        return op->a == before.a && op->value == before.b;
    if (linear->end_ns != LINEAR_OPEN && op->code != 0)
        return true;
    if (!history_follows(op->generation, (uint64_t)op->a, (uint64_t)before.a, (uint64_t)before.b))
        return false;
    if (before.a == 0 || op->a != before.b) /* a step that counts already stays what it is */
        *ret_after = (struct linear_state){.a = (int64_t)op->generation, .b = op->a};
    return true;
}

/* ---- objects -------------------------------------------------------------------------------- */

static int by_object(const void *a, const void *b)
{
    const struct history_op *x = *(const struct history_op *const *)a;
    const struct history_op *y = *(const struct history_op *const *)b;

    if (is_of_store(x) != is_of_store(y))
        return is_of_store(x) ? -1 : 1;
    if (!is_of_store(x))
        return 0;
    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    return strcmp(x->key, y->key);
}

static void report_stuck(const struct history_op *op, const struct linear_verdict *verdict,
                         size_t count, struct history_report *report)
{
    char text[HISTORY_TEXT / 2];

    history_print(op, text, sizeof text);
    if (verdict->result == LINEAR_NO)
        (void)snprintf(report->text, sizeof report->text,
                       "no order of %zu operations explains more than %zu answers: not that of %s",
                       count, verdict->placed, text);
    else
        (void)snprintf(report->text, sizeof report->text, "%s for the object of %s, %zu operations",
                       verdict->result == LINEAR_GAVE_UP ? "too many configurations" : "no memory",
                       text, count);
}

static bool check_object(const struct linear_op *ops, size_t count, struct history_report *report)
{
    const struct history_op *first = ops[0].what;
    bool of_store = is_of_store(first);
    const struct linear_state start = {.a = of_store ? HISTORY_ABSENT : 0};
    const struct linear_verdict verdict =
        linear_check(ops, count, start, of_store ? apply_store : apply_publication, MOST_VISITED);

    report->objects++;
    report->visited += verdict.visited;
    if (count > report->largest)
        report->largest = count;
    if (verdict.result != LINEAR_YES)
        report_stuck(ops[verdict.stuck].what, &verdict, count, report);
    return verdict.result == LINEAR_YES;
}

static void count_op(const struct history_op *op, struct history_report *report)
{
    report->answered += is_answered(op);
    report->open += !is_answered(op);
    report->published += op->kind == HISTORY_PUBLISH && is_answered(op) && op->code == 0;
    report->seen += op->kind == HISTORY_SEE;
}

bool history_check(const struct history *history, struct history_report *ret_report)
{
    const struct history_op **sorted = calloc(history->count + 1, sizeof *sorted);
    struct linear_op *ops = calloc(history->count + 1, sizeof *ops);
    bool good = sorted != NULL && ops != NULL;
    size_t size = 0;

    *ret_report = (struct history_report){0};
    if (!good)
        (void)snprintf(ret_report->text, sizeof ret_report->text, "no memory");
    for (size_t i = 0; good && i < history->count; i++) {
        sorted[i] = &history->ops[i];
        count_op(sorted[i], ret_report);
    }
    if (good)
        qsort(sorted, history->count, sizeof *sorted, by_object);
    for (size_t i = 0; good && i < history->count; i++) {
        const struct history_op *op = sorted[i];
        bool answered = is_answered(op);
        if (answered || !is_read(op))
            ops[size++] = (struct linear_op){.begin_ns = op->begin_ns,
                                             .end_ns = answered ? op->end_ns : LINEAR_OPEN,
                                             .what = op};
        bool is_last = i + 1 == history->count || by_object(&sorted[i], &sorted[i + 1]) != 0;
        if (is_last && size > 0)
            good = check_object(ops, size, ret_report);
        if (is_last)
            size = 0;
    }
    free(sorted);
    free(ops);
    return good;
}
