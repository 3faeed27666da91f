/* `ctrun top`: what it knows, what keys do, and what stands on the screen.
 *
 *     status, events --> snapshot.c, events.c --> model.c: sorted rows --> draw.c: cells
 *     (JSON)                                        ^   |                   (canvas.h)
 *                                             keys -+   +--> an order, confirmed
 *
 * No clock, no terminal, no connection: the shell (../screen.c) has them. A refresh costs
 * O(n log n) of n rows; drawing costs what is visible. What strangers name (jobs, hosts, events) is
 * shown as text, without control characters. */
#ifndef CT_CTRUN_TOP_H
#define CT_CTRUN_TOP_H

#include "base/error.h"
#include "cmd/ctrun/top/core/canvas.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOP_NAME = 256, TOP_EVENTS_KEPT = 256, TOP_ROWS_LEAST = 8, TOP_COLUMNS_LEAST = 40 };

/* ---- snapshot.c: the answer to a status ------------------------------------------------------ */

/* Numbers that are not known are NaN, or negative where they are whole. */
struct top_job {
    const char *name, *phase, *why, *round_reason, *restart_reason, *trouble, *store_wait;
    double phase_s, loss, samples_per_s, percent, eta_s;
    int64_t generation, world, nodes_min, nodes_max, restarts, max_restarts, step, steps, saved;
    double *losses; /* the course, as the daemon keeps it */
    size_t loss_count;
    size_t node_first, node_count; /* of the snapshot's nodes */
};

/* How a worker is, as its agent tells while somebody looks. */
struct top_rank {
    const char *state; /* "runs" */
    int64_t rank, pid, step, awaits;
    double memory, step_s, waits_s;
};

struct top_node {
    uint32_t job;
    const char *host, *state; /* "CORDONED": a host that is in no round */
    const char *cordon;       /* why; NULL: it is not cordoned */
    int64_t node_rank, first_rank, slots;
    double heard_s;
    bool connected, leaving;
    double memory, memory_total, load;
    const char *gpu_trouble;
    size_t rank_first, rank_count; /* of the snapshot's workers, in the order of their ranks */
};

struct top_snapshot {
    struct top_job *jobs;
    struct top_node *nodes;
    struct top_rank *workers;
    size_t job_count, node_count, worker_count;
    int64_t ranks;
    void *documents; /* own all strings */
};

/* Read a status in JSON (CT_ADMIN_HISTORY, or CT_ADMIN_JSON of an older daemon), or several, one
 * after the other. NULL with CT_EPROTOCOL or CT_ENOMEM. */
struct top_snapshot *top_snapshot_new(const char *text, struct ct_error *err);
void top_snapshot_free(struct top_snapshot *snapshot);

/* ---- model.c, keys.c ------------------------------------------------------------------------- */

enum top_view { TOP_JOBS, TOP_NODES, TOP_RANKS, TOP_EVENTS, TOP_VIEWS };

enum top_column_kind { TOP_TEXT, TOP_NUMBER, TOP_WIDE };

enum top_column {
#define TOP_COLUMN(view, id, title, width, kind) TOP_##id,
#include "columns.def"
    TOP_COLUMNS
};

/* The table of columns.def, in its order. */
extern const struct top_column_row {
    enum top_view view;
    const char *title;
    int width;
    enum top_column_kind kind;
} top_columns[TOP_COLUMNS];

enum top_order_kind {
#define TOP_ORDER(NAME, ...) TOP_ORDER_##NAME,
#include "orders.def"
    TOP_ORDERS
};

extern const struct top_order_row {
    int key;
    const char *name;
    bool of_host;
    const char *effect;
} top_orders[TOP_ORDERS];

struct top_order {
    enum top_order_kind kind;
    char job[TOP_NAME], host[TOP_NAME];
};

struct top_event {
    int64_t number, generation;
    char clock[16], level[16], kind[32], job[TOP_NAME], text[512];
};

/* A row of the table: a job, a node, a rank (`part` is its local rank), or a place in `events`. */
struct top_row {
    uint32_t index, part;
};

enum top_mode { TOP_BROWSE, TOP_FILTER, TOP_CONFIRM, TOP_HELP };

/* Keys that are no characters. */
enum top_key {
    TOP_KEY_UP = 0x200000,
    TOP_KEY_DOWN,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_HOME,
    TOP_KEY_END,
    TOP_KEY_ENTER,
    TOP_KEY_ESCAPE,
    TOP_KEY_TAB,
    TOP_KEY_ERASE,
};

enum top_effect { TOP_NOTHING, TOP_QUIT, TOP_GIVE_ORDER /* state->order */ };

struct top_state {
    const struct top_snapshot *snapshot; /* the shell's */
    struct top_event *events;            /* a ring, `event_count` were ever noted */
    uint64_t event_count;
    struct top_row *rows;      /* of the view, in order */
    struct top_sort_key *keys; /* as many as `row_room`, like rows */
    size_t row_count, row_room;
    enum top_view view;
    enum top_mode mode;
    enum top_column sort[TOP_VIEWS];
    bool descending[TOP_VIEWS];
    size_t cursor, first; /* the selected row, the uppermost that is shown */
    int height, width;    /* of the terminal */
    char job[TOP_NAME];   /* nodes, ranks and events of this job alone; "": of all */
    char filter[64];      /* rows that contain it alone */
    struct top_order order;
    char message[512]; /* until the next key */
    bool message_is_bad;
    char clock[16];      /* what the shell's clock says */
    char no_events[600]; /* why none come; "": they do */
    char lost[1200];     /* why no answers come, and since when; "": they come */
};

/* Begin, without a snapshot. CT_ENOMEM. */
int top_init(struct top_state *state);
void top_deinit(struct top_state *state);

/* Show another snapshot; the selected row stays selected while it exists. The one before is not
 * used any more. */
void top_refresh(struct top_state *state, const struct top_snapshot *snapshot);

/* Note the events of an answer, a JSON object a line; returns the number of the last (0: none). */
int64_t top_add_events(struct top_state *state, const char *lines);

/* The terminal has this size. */
void top_resize(struct top_state *state, int height, int width);

/* Make the rows anew: of another view, in another order, through another filter. The selected row
 * stays selected while it is among them. Without memory there are no rows, and a message. */
void top_list(struct top_state *state);

/* Move the cursor, and what is shown with it. */
void top_move(struct top_state *state, ptrdiff_t by);

/* A key was pressed: a character, or a top_key. */
enum top_effect top_press(struct top_state *state, int key);

/* The answer to the order that was given. */
void top_answer(struct top_state *state, bool is_bad, const char *text);

/* Return the job of the selected row, or of the first; NULL: there is none. */
const struct top_job *top_job_of(const struct top_state *state);

/* ---- layout.c: what both need ---------------------------------------------------------------- */

/* Rows of the screen: title, panel of the job, head of the table, table, events, keys. */
struct top_layout {
    int panel, panel_rows, head, body, body_rows, events, event_rows, foot;
};

/* False: the terminal is too small. */
bool top_layout(const struct top_state *state, struct top_layout *ret);

/* ---- values.c -------------------------------------------------------------------------------- */

/* Put what stands in the row's column: the text, and its number for TOP_NUMBER (NaN: none). */
enum { TOP_VALUE = 768 };
double top_value(const struct top_state *state, struct top_row row, enum top_column column,
                 char text[TOP_VALUE]);

/* Return the node of a row of nodes or ranks, the worker of a row of ranks (NULL: nothing is known
 * of it), the event of a row of events. */
const struct top_node *top_node_at(const struct top_state *state, struct top_row row);
const struct top_rank *top_rank_at(const struct top_state *state, struct top_row row);
const struct top_event *top_event_at(const struct top_state *state, struct top_row row);

/* Return the text by which the rows of a TOP_TEXT or TOP_WIDE column are ordered. */
const char *top_sort_text(const struct top_state *state, struct top_row row,
                          enum top_column column);

/* Return the name of the job that the row is of. */
const char *top_job_name(const struct top_state *state, struct top_row row);

/* ---- draw.c ---------------------------------------------------------------------------------- */

/* Draw the whole screen, of the canvas' size. */
void top_draw(const struct top_state *state, struct top_canvas *canvas);

#endif
