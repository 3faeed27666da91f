/* The rows of a view: which there are, in which order, which one is selected. See top.h. */
#include "cmd/ctrun/top/core/top.h"

#include "base/assert.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct top_column_row top_columns[TOP_COLUMNS] = {
#define TOP_COLUMN(view, id, title, width, kind) {TOP_##view, title, width, kind},
#include "columns.def"
};

/* What a row is ordered by. */
struct top_sort_key {
    double number;
    const char *text;
    struct top_row row;
};

int top_init(struct top_state *state)
{
    *state = (struct top_state){
        .sort = {[TOP_JOBS] = TOP_JOB_NAME,
                 [TOP_NODES] = TOP_NODE_HOST,
                 [TOP_RANKS] = TOP_RANK_RANK,
                 [TOP_EVENTS] = TOP_EVENT_NUMBER},
        .descending = {[TOP_EVENTS] = true},
        .events = calloc(TOP_EVENTS_KEPT, sizeof *state->events),
    };
    return state->events != NULL ? 0 : CT_ENOMEM;
}

void top_deinit(struct top_state *state)
{
    free(state->events);
    free(state->rows);
    free(state->keys);
    *state = (struct top_state){.events = NULL};
}

void top_resize(struct top_state *state, int height, int width)
{
    state->height = height;
    state->width = width;
    top_move(state, 0);
}

const struct top_job *top_job_of(const struct top_state *state)
{
    const struct top_snapshot *s = state->snapshot;
    const char *name = state->cursor < state->row_count
                           ? top_job_name(state, state->rows[state->cursor])
                           : state->job;

    for (size_t i = 0; s != NULL && i < s->job_count; i++)
        if (strcmp(s->jobs[i].name, name) == 0)
            return &s->jobs[i];
    return s != NULL && s->job_count > 0 ? &s->jobs[0] : NULL;
}

/* ---- which rows ------------------------------------------------------------------------------ */

static bool passes(const struct top_state *state, const char *text)
{
    return state->filter[0] == '\0' || strcasestr(text, state->filter) != NULL;
}

static bool is_wanted(const struct top_state *state, const char *job, const char *a, const char *b)
{
    if (state->view != TOP_JOBS && state->job[0] != '\0' && strcmp(state->job, job) != 0)
        return false;
    return passes(state, job) || passes(state, a) || passes(state, b);
}

/* Room for one more row; false without memory. */
static bool grow(struct top_state *state)
{
    size_t room = state->row_room < 64 ? 64 : state->row_room * 2;

    if (state->row_count < state->row_room)
        return true;
    struct top_row *rows = realloc(state->rows, room * sizeof *rows);
    if (rows != NULL)
        state->rows = rows;
    struct top_sort_key *keys = realloc(state->keys, room * sizeof *keys);
    if (keys != NULL)
        state->keys = keys;
    if (rows == NULL || keys == NULL)
        return false;
    state->row_room = room;
    return true;
}

static bool add(struct top_state *state, size_t index, size_t part)
{
    if (!grow(state))
        return false;
    state->rows[state->row_count++] =
        (struct top_row){.index = (uint32_t)index, .part = (uint32_t)part};
    return true;
}

static bool add_jobs(struct top_state *state)
{
    const struct top_snapshot *s = state->snapshot;
    bool is_done = true;

    for (size_t i = 0; i < s->job_count && is_done; i++)
        if (is_wanted(state, s->jobs[i].name, s->jobs[i].phase, ""))
            is_done = add(state, i, 0);
    return is_done;
}

/* A node, or each of its ranks. */
static bool add_nodes(struct top_state *state)
{
    const struct top_snapshot *s = state->snapshot;
    bool is_done = true;

    for (size_t i = 0; i < s->node_count && is_done; i++) {
        const struct top_node *node = &s->nodes[i];
        int64_t parts = state->view == TOP_NODES ? 1 : node->first_rank >= 0 ? node->slots : 0;

        if (!is_wanted(state, s->jobs[node->job].name, node->host, node->state))
            continue;
        for (int64_t part = 0; part < parts && is_done; part++)
            is_done = add(state, i, (size_t)part);
    }
    return is_done;
}

static bool add_events(struct top_state *state)
{
    size_t count = (size_t)CT_MIN(state->event_count, (uint64_t)TOP_EVENTS_KEPT);
    bool is_done = true;

    for (size_t i = 0; i < count && is_done; i++)
        if (is_wanted(state, state->events[i].job, state->events[i].text, state->events[i].kind))
            is_done = add(state, i, 0);
    return is_done;
}

/* ---- in which order -------------------------------------------------------------------------- */

/* What has no number comes last, whichever way; equal ones keep the order of their places. */
static int compare(const void *left, const void *right, void *context)
{
    const struct top_sort_key *a = left, *b = right;
    const struct top_state *state = context;
    int sign = state->descending[state->view] ? -1 : 1, order = 0;

    if (a->text != NULL)
        order = ct_natural_compare(a->text, b->text);
    else if (isnan(a->number) || isnan(b->number))
        order = sign * (isnan(a->number) - isnan(b->number));
    else
        order = (a->number > b->number) - (a->number < b->number);
    if (order != 0)
        return sign * order;
    if (a->row.index != b->row.index)
        return a->row.index < b->row.index ? -1 : 1;
    return a->row.part < b->row.part ? -1 : a->row.part > b->row.part;
}

static void sort(struct top_state *state)
{
    enum top_column column = state->sort[state->view];
    bool by_number = top_columns[column].kind == TOP_NUMBER;
    char text[TOP_VALUE];

    for (size_t i = 0; i < state->row_count; i++) {
        struct top_row row = state->rows[i];

        state->keys[i] = (struct top_sort_key){
            .row = row,
            .text = by_number ? NULL : top_sort_text(state, row, column),
            .number = by_number ? top_value(state, row, column, text) : NAN,
        };
    }
    if (state->row_count > 1)
        qsort_r(state->keys, state->row_count, sizeof *state->keys, compare, state);
    for (size_t i = 0; i < state->row_count; i++)
        state->rows[i] = state->keys[i].row;
}

/* ---- which one is selected ------------------------------------------------------------------- */

/* What a row is about, for as long as it exists. */
struct identity {
    char job[TOP_NAME], host[TOP_NAME];
    int64_t number;
};

static void identify(const struct top_state *state, struct top_row row, struct identity *ret)
{
    const bool is_node = state->view == TOP_NODES || state->view == TOP_RANKS;
    const struct top_node *node = is_node ? top_node_at(state, row) : NULL;

    (void)ct_str_copy(ret->job, sizeof ret->job, top_job_name(state, row));
    (void)ct_str_copy(ret->host, sizeof ret->host, is_node ? node->host : "");
    ret->number = state->view == TOP_EVENTS  ? top_event_at(state, row)->number
                  : state->view == TOP_RANKS ? node->first_rank + row.part
                  : is_node                  ? node->node_rank
                                             : 0;
}

/* Whether the row is that one; a node of which the rank has changed is it by its host. */
static bool is_it(const struct top_state *state, struct top_row row, const struct identity *it,
                  bool exactly)
{
    struct identity other;

    if (strcmp(top_job_name(state, row), it->job) != 0)
        return false;
    identify(state, row, &other);
    return strcmp(other.host, it->host) == 0 && (!exactly || other.number == it->number);
}

static void find_again(struct top_state *state, const struct identity *it)
{
    bool is_found = false;

    for (size_t i = 0; i < state->row_count && !is_found; i++)
        if (is_it(state, state->rows[i], it, true))
            state->cursor = i, is_found = true;
    for (size_t i = 0; i < state->row_count && !is_found && state->view != TOP_EVENTS; i++)
        if (is_it(state, state->rows[i], it, false))
            state->cursor = i, is_found = true;
}

void top_list(struct top_state *state)
{
    bool is_done = true;

    state->row_count = 0;
    if (state->view == TOP_EVENTS)
        is_done = add_events(state);
    else if (state->snapshot != NULL)
        is_done = state->view == TOP_JOBS ? add_jobs(state) : add_nodes(state);
    if (!is_done) {
        state->row_count = 0;
        top_answer(state, true, "no memory for so many rows");
    }
    sort(state);
    top_move(state, 0);
}

void top_refresh(struct top_state *state, const struct top_snapshot *snapshot)
{
    struct identity it;
    bool had_one = state->cursor < state->row_count && state->cursor > 0;

    if (had_one)
        identify(state, state->rows[state->cursor], &it);
    state->snapshot = snapshot;
    top_list(state);
    if (had_one)
        find_again(state, &it);
    top_move(state, 0);
}

void top_move(struct top_state *state, ptrdiff_t by)
{
    ptrdiff_t last = (ptrdiff_t)state->row_count - 1;
    struct top_layout layout;
    size_t shown = top_layout(state, &layout) ? (size_t)layout.body_rows : 1;
    ptrdiff_t to = CT_MIN((ptrdiff_t)state->cursor + by, last);

    state->cursor = (size_t)CT_MAX(to, 0);
    if (state->cursor < state->first)
        state->first = state->cursor;
    if (state->cursor >= state->first + shown)
        state->first = state->cursor - shown + 1;
    size_t most = state->row_count > shown ? state->row_count - shown : 0;
    state->first = CT_MIN(state->first, most);
}
