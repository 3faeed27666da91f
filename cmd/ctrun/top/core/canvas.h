/* A screen of cells, and writing on it. Nothing here knows a terminal.
 *
 * A character that is two cells wide has its code in the first and 0 in the second one. Text of
 * strangers may be written as it is: control characters and what is not UTF-8 become '?', and what
 * has no width (marks of direction, too) is left out. */
#ifndef CT_CTRUN_TOP_CANVAS_H
#define CT_CTRUN_TOP_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum top_style {
    TOP_PLAIN,
    TOP_TITLE,
    TOP_HEAD,
    TOP_SELECTED,
    TOP_STRONG,
    TOP_DIM,
    TOP_GOOD,
    TOP_WARN,
    TOP_BAD,
    TOP_CURVE,
    TOP_STYLES
};

struct top_cell {
    uint32_t code;
    uint8_t style; /* enum top_style */
};

struct top_canvas {
    int height, width;
    struct top_cell *cells;        /* the caller's: height x width */
    bool unicode;                  /* else ASCII alone */
    int (*width_of)(wchar_t code); /* 1, 2; 0 or below: none */
};

/* Fill all cells with blanks. */
void top_canvas_clear(struct top_canvas *canvas);

/* Write `text` from (row, column) on, in `room` cells at most; what is longer ends with a mark of
 * that. Returns how many cells it took. Nothing outside the canvas is written. */
int top_canvas_put(struct top_canvas *canvas, int row, int column, int room, enum top_style style,
                   const char *text);

/* The same, at the right of `room` cells. */
void top_canvas_put_right(struct top_canvas *canvas, int row, int column, int room,
                          enum top_style style, const char *text);

/* Give the cells of a row that style. */
void top_canvas_paint(struct top_canvas *canvas, int row, int column, int room,
                      enum top_style style);

/* Draw the course of `values` in `room` cells: the mean of as many values a cell as in each other,
 * between the lowest and the highest. What is not finite leaves a blank. Returns whether the
 * heights are logarithmic, as they are where the highest is a hundred times the lowest. */
bool top_canvas_put_curve(struct top_canvas *canvas, int row, int column, int room,
                          const double *values, size_t count);

#endif
