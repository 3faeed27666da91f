/* What keys do; see top.h. */
#include "cmd/ctrun/top/core/top.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

const struct top_order_row top_orders[TOP_ORDERS] = {
#define TOP_ORDER(NAME, key, name, of_host, effect) {key, name, of_host, effect},
#include "orders.def"
};

void top_answer(struct top_state *state, bool is_bad, const char *text)
{
    (void)ct_str_copy(state->message, sizeof state->message, text);
    state->message_is_bad = is_bad;
}

/* ---- views and order ------------------------------------------------------------------------- */

static void show(struct top_state *state, enum top_view view)
{
    state->view = view;
    state->cursor = state->first = 0;
    top_list(state);
}

/* The next column of the view, or the one before. */
static void sort_by_next(struct top_state *state, int by)
{
    int column = (int)state->sort[state->view];

    do
        column = (column + by + TOP_COLUMNS) % TOP_COLUMNS;
    while (top_columns[column].view != state->view);
    state->sort[state->view] = (enum top_column)column;
    top_refresh(state, state->snapshot);
}

static void reverse(struct top_state *state)
{
    state->descending[state->view] = !state->descending[state->view];
    top_refresh(state, state->snapshot);
}

/* The nodes of a job, the ranks of all its nodes. */
static void enter(struct top_state *state)
{
    const struct top_job *job = top_job_of(state);

    if (job == NULL || state->row_count == 0)
        return;
    (void)ct_str_copy(state->job, sizeof state->job, job->name);
    if (state->view == TOP_JOBS || state->view == TOP_EVENTS)
        show(state, TOP_NODES);
    else if (state->view == TOP_NODES)
        show(state, TOP_RANKS);
}

/* One step back: the filter, then the one job, then the jobs. */
static void leave(struct top_state *state)
{
    if (state->filter[0] != '\0')
        state->filter[0] = '\0';
    else if (state->job[0] != '\0')
        state->job[0] = '\0';
    else
        state->view = TOP_JOBS;
    show(state, state->view);
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Ask for a confirmation, or say why there is nothing to give an order to. */
static void ask(struct top_state *state, enum top_order_kind kind)
{
    const bool is_node = state->view == TOP_NODES || state->view == TOP_RANKS;
    const struct top_order_row *row = &top_orders[kind];
    const struct top_job *job = top_job_of(state);
    char text[128];

    if (job == NULL || state->cursor >= state->row_count || (row->of_host && !is_node)) {
        (void)snprintf(text, sizeof text, "%s: %s", row->name,
                       row->of_host ? "which host? Select it under nodes (2)" : "there is no job");
        top_answer(state, true, text);
        return;
    }
    state->order = (struct top_order){.kind = kind};
    (void)ct_str_copy(state->order.job, sizeof state->order.job, job->name);
    if (row->of_host)
        (void)ct_str_copy(state->order.host, sizeof state->order.host,
                          top_node_at(state, state->rows[state->cursor])->host);
    state->mode = TOP_CONFIRM;
}

static enum top_effect confirm(struct top_state *state, int key)
{
    state->mode = TOP_BROWSE;
    if (key != 'y' && key != 'Y') {
        top_answer(state, false, "nothing was done");
        return TOP_NOTHING;
    }
    return TOP_GIVE_ORDER;
}

/* ---- the filter ------------------------------------------------------------------------------ */

static void type(struct top_state *state, int key)
{
    size_t size = strlen(state->filter);

    if (key == TOP_KEY_ENTER || key == TOP_KEY_ESCAPE)
        state->mode = TOP_BROWSE;
    if (key == TOP_KEY_ESCAPE)
        state->filter[0] = '\0';
    else if (key == TOP_KEY_ERASE && size > 0)
        state->filter[size - 1] = '\0';
    else if (key >= ' ' && key < 0x7f && size + 1 < sizeof state->filter) {
        state->filter[size] = (char)key;
        state->filter[size + 1] = '\0';
    }
    top_refresh(state, state->snapshot);
}

/* ---- one key --------------------------------------------------------------------------------- */

/* Keys that move the cursor. False: it is none. */
static bool moves(struct top_state *state, int key)
{
    struct top_layout layout;
    ptrdiff_t page = top_layout(state, &layout) ? layout.body_rows : 1;
    ptrdiff_t all = (ptrdiff_t)state->row_count;

    if (key == TOP_KEY_UP || key == 'k')
        top_move(state, -1);
    else if (key == TOP_KEY_DOWN || key == 'j')
        top_move(state, 1);
    else if (key == TOP_KEY_PAGE_UP)
        top_move(state, -page);
    else if (key == TOP_KEY_PAGE_DOWN || key == ' ')
        top_move(state, page);
    else if (key == TOP_KEY_HOME || key == 'g')
        top_move(state, -all);
    else if (key == TOP_KEY_END || key == 'G')
        top_move(state, all);
    else
        return false;
    return true;
}

static enum top_effect browse(struct top_state *state, int key)
{
    if (key == 'q' || key == 'Q')
        return TOP_QUIT;
    if (moves(state, key))
        return TOP_NOTHING;
    if (key >= '1' && key < '1' + TOP_VIEWS)
        show(state, (enum top_view)(key - '1'));
    else if (key == TOP_KEY_TAB)
        show(state, (state->view + 1) % TOP_VIEWS);
    else if (key == 's' || key == '>')
        sort_by_next(state, 1);
    else if (key == '<')
        sort_by_next(state, -1);
    else if (key == 'r')
        reverse(state);
    else if (key == TOP_KEY_ENTER)
        enter(state);
    else if (key == TOP_KEY_ESCAPE)
        leave(state);
    else if (key == '/')
        state->mode = TOP_FILTER;
    else if (key == 'h' || key == '?')
        state->mode = TOP_HELP;
    for (enum top_order_kind kind = 0; kind < TOP_ORDERS; kind++)
        if (key == top_orders[kind].key)
            ask(state, kind);
    return TOP_NOTHING;
}

enum top_effect top_press(struct top_state *state, int key)
{
    state->message[0] = '\0';
    switch (state->mode) {
    case TOP_CONFIRM:
        return confirm(state, key);
    case TOP_FILTER:
        type(state, key);
        return TOP_NOTHING;
    case TOP_HELP:
        state->mode = TOP_BROWSE;
        return TOP_NOTHING;
    default:
        return browse(state, key);
    }
}
