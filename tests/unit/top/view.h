/* A `ctrun top` without a terminal: a state that answers are given to, and the screen as lines. */
#ifndef TESTS_UNIT_TOP_VIEW_H
#define TESTS_UNIT_TOP_VIEW_H

#include "base/bytes.h"
#include "cmd/ctrun/top/core/top.h"

struct view {
    struct top_state state;
    struct top_snapshot *snapshot;
    struct top_canvas canvas;
    struct ct_buf text;
};

/* Begin with a status; `view_close` frees all. */
void view_open(struct view *view, int height, int width, const char *status);
void view_close(struct view *view);

/* Another status. */
void view_refresh(struct view *view, const char *status);

/* Press these keys, one after the other; returns the last effect. */
enum top_effect view_press(struct view *view, const char *keys);

/* Draw; the screen as lines without blanks at their ends. Valid until the next call. */
const char *view_draw(struct view *view);

/* The text of a line of the last drawing; valid until the next call. */
const char *view_line(const struct view *view, int row);

/* A status of one job "night" with `nodes` nodes n0.. of `slots` slots each. Static, one at a time.
 * `extra` are more members of the job ("" or "\"a\":1,"). */
const char *view_status(int nodes, int slots, const char *extra);

#endif
