/* Parts of the screen that have files of their own; see top.h. */
#ifndef CT_CTRUN_TOP_DRAW_H
#define CT_CTRUN_TOP_DRAW_H

#include "cmd/ctrun/top/core/top.h"

struct drawn_text {
    const char *text;
    enum top_style style;
};

/* Return the style of a job's phase. */
enum top_style top_style_of_phase(const char *phase);

/* draw_panel.c: draw the selected job: progress, its losses, what it waits for and since when. */
void top_draw_panel(const struct top_state *state, struct top_canvas *canvas,
                    const struct top_layout *layout);

#endif
