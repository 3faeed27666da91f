/* The screen, from the top to the bottom; see top.h. */
#include "cmd/ctrun/top/core/draw.h"

#include "base/assert.h"
#include "base/number/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GAP = 1, LINE = 1300 };

/* ---- title ----------------------------------------------------------------------------------- */

static void add_count(char *line, size_t room, int64_t count, const char *what)
{
    size_t used = strlen(line);

    (void)snprintf(line + used, room - used, "%s%" PRId64 " %s%s", used > 0 ? ", " : "", count,
                   what, count == 1 ? "" : "s");
}

static void draw_title(const struct top_state *state, struct top_canvas *canvas)
{
    const struct top_snapshot *s = state->snapshot;
    enum top_style style = state->lost[0] != '\0' ? TOP_BAD : TOP_TITLE;
    char counts[256] = "", line[LINE];

    top_canvas_paint(canvas, 0, 0, canvas->width, style);
    add_count(counts, sizeof counts, s != NULL ? (int64_t)s->job_count : 0, "job");
    add_count(counts, sizeof counts, s != NULL ? (int64_t)s->node_count : 0, "node");
    add_count(counts, sizeof counts, s != NULL ? s->ranks : 0, "rank");
    if (state->lost[0] != '\0')
        (void)snprintf(line, sizeof line, "%s", state->lost);
    else
        (void)snprintf(line, sizeof line, "ctrun top  %s%s%s%s%s", counts,
                       state->job[0] != '\0' ? "; of job " : "", state->job,
                       state->filter[0] != '\0' ? "; with " : "", state->filter);
    (void)top_canvas_put(canvas, 0, 0, canvas->width - 10, style, line);
    top_canvas_put_right(canvas, 0, canvas->width - 9, 9, style, state->clock);
}

/* ---- table ----------------------------------------------------------------------------------- */

/* Where columns stand; `width` 0: it has no room. */
struct place {
    int column, width;
};

static void place_columns(enum top_view view, int width, struct place places[TOP_COLUMNS])
{
    int left = width + GAP, at = 0, wides = 0;
    bool is_full = false;

    memset(places, 0, TOP_COLUMNS * sizeof *places);
    for (int i = 0; i < TOP_COLUMNS; i++) {
        const struct top_column_row *row = &top_columns[i];

        if (row->view != view)
            continue;
        is_full = is_full || row->width + GAP > left; /* then none of those behind it either */
        if (is_full)
            continue;
        places[i].width = row->width;
        left -= row->width + GAP;
        wides += row->kind == TOP_WIDE;
    }
    for (int i = 0; i < TOP_COLUMNS; i++) {
        if (places[i].width == 0)
            continue;
        if (top_columns[i].kind == TOP_WIDE) {
            places[i].width += left / wides;
            left -= left / wides--;
        }
        places[i].column = at;
        at += places[i].width + GAP;
    }
}

static void draw_value(struct top_canvas *canvas, int row, const struct place *place,
                       enum top_column_kind kind, const struct drawn_text *text)
{
    if (kind == TOP_NUMBER)
        top_canvas_put_right(canvas, row, place->column, place->width, text->style, text->text);
    else
        (void)top_canvas_put(canvas, row, place->column, place->width, text->style, text->text);
}

static void draw_head(const struct top_state *state, struct top_canvas *canvas, int row,
                      const struct place places[TOP_COLUMNS])
{
    top_canvas_paint(canvas, row, 0, canvas->width, TOP_HEAD);
    for (int i = 0; i < TOP_COLUMNS; i++) {
        bool is_sorted = (int)state->sort[state->view] == i;
        bool is_down = state->descending[state->view];
        const char *mark = canvas->unicode ? (is_down ? "▼" : "▲") : (is_down ? "v" : "^");
        char title[32];

        if (places[i].width == 0)
            continue;
        (void)snprintf(title, sizeof title, "%s%s", top_columns[i].title, is_sorted ? mark : "");
        draw_value(canvas, row, &places[i], top_columns[i].kind,
                   &(struct drawn_text){.text = title, .style = TOP_HEAD});
    }
}

static enum top_style style_of_node(const struct top_node *node)
{
    if (!node->connected || node->gpu_trouble[0] != '\0')
        return TOP_BAD;
    if (node->leaving || node->cordon != NULL)
        return TOP_WARN;
    return strcmp(node->state, "ACTING") == 0 || strcmp(node->state, "DONE") == 0 ? TOP_PLAIN
                                                                                  : TOP_WARN;
}

/* Levels of announcement.def. */
static enum top_style style_of_event(const struct top_event *event)
{
    return strcmp(event->level, "bad") == 0    ? TOP_BAD
           : strcmp(event->level, "warn") == 0 ? TOP_WARN
           : strcmp(event->level, "ok") == 0   ? TOP_GOOD
                                               : TOP_PLAIN;
}

static enum top_style style_of_row(const struct top_state *state, struct top_row row)
{
    if (state->view == TOP_EVENTS)
        return style_of_event(top_event_at(state, row));
    if (state->view == TOP_JOBS)
        return top_style_of_phase(state->snapshot->jobs[row.index].phase) == TOP_GOOD ? TOP_PLAIN
                                                                                      : TOP_WARN;
    const struct top_rank *worker = state->view == TOP_RANKS ? top_rank_at(state, row) : NULL;
    bool is_held = worker != NULL && (strcmp(worker->state, "runs") != 0 || worker->waits_s > 1);
    return is_held ? TOP_WARN : style_of_node(top_node_at(state, row));
}

static void draw_row(const struct top_state *state, struct top_canvas *canvas, int at, size_t index,
                     const struct place places[TOP_COLUMNS])
{
    struct top_row row = state->rows[index];
    char text[TOP_VALUE];
    const struct drawn_text drawn = {
        .text = text,
        .style = index == state->cursor ? TOP_SELECTED : style_of_row(state, row),
    };

    if (index == state->cursor)
        top_canvas_paint(canvas, at, 0, canvas->width, TOP_SELECTED);
    for (int i = 0; i < TOP_COLUMNS; i++)
        if (places[i].width > 0) {
            (void)top_value(state, row, (enum top_column)i, text);
            draw_value(canvas, at, &places[i], top_columns[i].kind, &drawn);
        }
}

/* Why a table is empty. */
static const char *explain_nothing(const struct top_state *state)
{
    if (state->filter[0] != '\0')
        return "nothing contains the filter's words; Esc ends it";
    if (state->view == TOP_EVENTS)
        return state->no_events[0] != '\0' ? state->no_events : "no event has come yet";
    return state->view == TOP_JOBS ? "no job is served here" : "no node is here";
}

static void draw_table(const struct top_state *state, struct top_canvas *canvas,
                       const struct top_layout *layout)
{
    struct place places[TOP_COLUMNS];

    place_columns(state->view, canvas->width, places);
    draw_head(state, canvas, layout->head, places);
    for (int i = 0; i < layout->body_rows && state->first + (size_t)i < state->row_count; i++)
        draw_row(state, canvas, layout->body + i, state->first + (size_t)i, places);
    if (state->row_count == 0)
        (void)top_canvas_put(canvas, layout->body, 0, canvas->width, TOP_DIM,
                             explain_nothing(state));
}

/* ---- events below the table ------------------------------------------------------------------ */

static void draw_events(const struct top_state *state, struct top_canvas *canvas,
                        const struct top_layout *layout)
{
    int count = (int)CT_MIN(state->event_count, (uint64_t)CT_MAX(layout->event_rows - 1, 0));

    if (layout->event_rows == 0)
        return;
    top_canvas_paint(canvas, layout->events, 0, canvas->width, TOP_HEAD);
    (void)top_canvas_put(canvas, layout->events, 0, canvas->width, TOP_HEAD, "EVENTS");
    if (count == 0)
        (void)top_canvas_put(canvas, layout->events + 1, 0, canvas->width, TOP_DIM,
                             state->no_events);
    for (int i = 0; i < count; i++) {
        uint64_t number = state->event_count - (uint64_t)(count - i);
        const struct top_event *event = &state->events[number % TOP_EVENTS_KEPT];
        char line[LINE];

        (void)snprintf(line, sizeof line, "%s  g%" PRId64 "  %s", event->clock, event->generation,
                       event->text);
        (void)top_canvas_put(canvas, layout->events + 1 + i, 0, canvas->width,
                             style_of_event(event), line);
    }
}

/* ---- the last line --------------------------------------------------------------------------- */

static void draw_question(const struct top_state *state, struct top_canvas *canvas, int row)
{
    const struct top_order *order = &state->order;
    const struct top_order_row *of = &top_orders[order->kind];
    char line[LINE];

    (void)snprintf(line, sizeof line, "%s %s%s%s? y: yes, any other key: no (%s)", of->name,
                   order->host, of->of_host ? " of job " : "", order->job, of->effect);
    top_canvas_paint(canvas, row, 0, canvas->width, TOP_WARN);
    (void)top_canvas_put(canvas, row, 0, canvas->width, TOP_WARN, line);
}

static void draw_foot(const struct top_state *state, struct top_canvas *canvas, int row)
{
    static const char keys[] =
        "q quit  h help  1 jobs  2 nodes  3 ranks  4 events  s sort  r reverse  / filter  "
        "d drain  c cordon  u uncordon  t takeover";
    char line[LINE];

    if (state->mode == TOP_CONFIRM) {
        draw_question(state, canvas, row);
    } else if (state->mode == TOP_FILTER) {
        (void)snprintf(line, sizeof line, "filter: %s_  (Enter: done, Esc: none)", state->filter);
        (void)top_canvas_put(canvas, row, 0, canvas->width, TOP_STRONG, line);
    } else if (state->message[0] != '\0') {
        (void)top_canvas_put(canvas, row, 0, canvas->width,
                             state->message_is_bad ? TOP_BAD : TOP_GOOD, state->message);
    } else {
        (void)top_canvas_put(canvas, row, 0, canvas->width, TOP_DIM, keys);
    }
}

/* ---- help ------------------------------------------------------------------------------------ */

static void draw_help(struct top_canvas *canvas, int from)
{
    static const char *const lines[] = {
        "Up Down PgUp PgDn Home End   select a row; also j k Space g G",
        "1 2 3 4, Tab   jobs, nodes, ranks, events",
        "Enter   the nodes of a job, the ranks of its nodes;  Esc   back",
        "s <    order by the next column, by the one before;  r   reverse",
        "/      only rows that contain the words",
        "q, Ctrl-C   quit",
        "Orders, given after a confirmation:",
    };
    int row = from;
    char line[LINE];

    for (size_t i = 0; i < CT_COUNT(lines); i++)
        (void)top_canvas_put(canvas, row++, 0, canvas->width, TOP_PLAIN, lines[i]);
    for (size_t i = 0; i < TOP_ORDERS; i++) {
        (void)snprintf(line, sizeof line, "%c   %-9s %s: %s", top_orders[i].key, top_orders[i].name,
                       top_orders[i].of_host ? "a host" : "a job", top_orders[i].effect);
        (void)top_canvas_put(canvas, row++, 0, canvas->width, TOP_PLAIN, line);
    }
    (void)top_canvas_put(canvas, row, 0, canvas->width, TOP_DIM, "any key: back");
}

void top_draw(const struct top_state *state, struct top_canvas *canvas)
{
    struct top_layout layout;

    top_canvas_clear(canvas);
    if (!top_layout(state, &layout)) {
        (void)top_canvas_put(canvas, 0, 0, canvas->width, TOP_PLAIN,
                             "40 x 8 cells at least; q: quit");
        return;
    }
    draw_title(state, canvas);
    if (state->mode == TOP_HELP) {
        draw_help(canvas, layout.panel);
        return;
    }
    top_draw_panel(state, canvas, &layout);
    draw_table(state, canvas, &layout);
    draw_events(state, canvas, &layout);
    draw_foot(state, canvas, layout.foot);
}
