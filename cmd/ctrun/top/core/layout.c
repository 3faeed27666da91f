/* Which rows of the screen are what; see top.h. */
#include "cmd/ctrun/top/core/top.h"

#include "base/assert.h"

enum { TALL = 20, EVENTS_FROM = 24, EVENT_ROWS = 7 };

bool top_layout(const struct top_state *state, struct top_layout *ret)
{
    int height = state->height;
    bool has_events = state->view != TOP_EVENTS && height >= EVENTS_FROM;

    *ret = (struct top_layout){
        .panel = 1,
        .panel_rows = height >= TALL ? 4
                      : height >= 12 ? 3
                                     : 1,
        .event_rows = has_events ? CT_MIN(height / 4, EVENT_ROWS) : 0,
        .foot = height - 1,
    };
    ret->head = ret->panel + ret->panel_rows;
    ret->body = ret->head + 1;
    ret->body_rows = height - 1 - ret->event_rows - ret->body;
    ret->events = ret->body + ret->body_rows;
    return height >= TOP_ROWS_LEAST && state->width >= TOP_COLUMNS_LEAST;
}
