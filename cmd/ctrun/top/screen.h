/* The terminal of `ctrun top`: ncurses, and nothing else. One at a time. */
#ifndef CT_CTRUN_TOP_SCREEN_H
#define CT_CTRUN_TOP_SCREEN_H

#include "cmd/ctrun/top/core/top.h"

/* Whether standard input and output are a terminal that can place text: 0, or CT_EUSAGE with the
 * sentence. Changes nothing. */
int top_screen_check(struct ct_error *err);

/* Take it, after the check. CT_EUSAGE where it cannot; nothing was changed then. */
int top_screen_open(struct ct_error *err);

/* Give it back as it was. */
void top_screen_close(void);

/* Its size now. */
void top_screen_size(int *ret_height, int *ret_width);

/* Return the next key that was pressed, a character or a top_key; 0: none. A change of the size is
 * no key. */
int top_screen_key(void);

/* Draw the state; cells that did not change are not sent. CT_ENOMEM. */
int top_screen_show(const struct top_state *state);

#endif
