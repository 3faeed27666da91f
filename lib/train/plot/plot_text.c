/* A plot in a terminal; see plot.h.
 *
 * Curves are drawn into a grid of dots, 2 x 4 a cell in braille and 1 x 1 in letters, and the cells
 * then written row by row. */
#include "train/plot/plot.h"

#include "base/assert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_COLUMNS = 8 };

struct cell {
    uint8_t dots; /* of braille */
    char letter;  /* 0: none */
    bool mark;
    int run;
};

struct canvas {
    const struct ct_plot_style *style;
    struct cell *cells;
    int columns, rows, across, down; /* across, down: dots of a cell */
    bool letters;
};

/* Colours that tell runs apart on dark and light grounds. */
static const int colours[] = {36, 33, 35, 32, 34, 31, 96, 95};

static char letter_of(int run)
{
    return (char)('a' + run % 26);
}

static struct cell *cell_at(const struct canvas *canvas, int x, int y)
{
    int column = x / canvas->across, row = y / canvas->down;

    CT_ASSERT(column >= 0 && column < canvas->columns && row >= 0 && row < canvas->rows);
    return &canvas->cells[row * canvas->columns + column];
}

static void set_dot(const struct canvas *canvas, int run, int x, int y)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    struct cell *cell = cell_at(canvas, x, y);

    cell->run = run;
    if (canvas->letters)
        cell->letter = letter_of(run);
    else
        cell->dots |= bits[(unsigned)y % 4][(unsigned)x % 2];
}

static void set_mark(const struct canvas *canvas, int run, int x, int y)
{
    struct cell *cell = cell_at(canvas, x, y);

    cell->run = run;
    cell->mark = true;
    cell->letter = (char)(letter_of(run) - 'a' + 'A');
}

/* A line between two dots (Bresenham). */
static void draw_line(const struct canvas *canvas, int run, const int from[2], const int to[2])
{
    int x = from[0], y = from[1];
    int dx = abs(to[0] - x), dy = -abs(to[1] - y);
    int sx = x < to[0] ? 1 : -1, sy = y < to[1] ? 1 : -1;

    for (int error = dx + dy;;) {
        set_dot(canvas, run, x, y);
        if (x == to[0] && y == to[1])
            break;
        int twice = 2 * error;
        if (twice >= dy) {
            error += dy;
            x += sx;
        }
        if (twice <= dx) {
            error += dx;
            y += sy;
        }
    }
}

static int draw_curve(const struct canvas *canvas, const struct ct_plot_curve *curve,
                      const struct ct_plot_axis *x, const struct ct_plot_axis *y)
{
    int width = canvas->columns * canvas->across, height = canvas->rows * canvas->down;
    struct ct_plot_point *points = NULL;
    int last[2] = {0, 0};
    size_t count = 0;
    int code = ct_plot_thin(curve, x, y, (size_t)width, &points, &count);

    for (size_t i = 0; i < count; i++) {
        const int at[2] = {(int)lround(points[i].x * (width - 1)),
                           (int)lround((1 - points[i].y) * (height - 1))};
        if (curve->marks)
            set_mark(canvas, curve->run, at[0], at[1]);
        else
            draw_line(canvas, curve->run, points[i].after_gap ? at : last, at);
        memcpy(last, at, sizeof last);
    }
    free(points);
    return code;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void put_coloured(const struct ct_plot_style *style, int run, const char *text,
                         struct ct_buf *to)
{
    if (style->colours)
        (void)ct_buf_printf(to, "\033[%dm%s\033[0m", colours[(size_t)run % CT_COUNT(colours)],
                            text);
    else
        (void)ct_buf_puts(to, text);
}

static void put_cell(const struct canvas *canvas, const struct cell *cell, struct ct_buf *to)
{
    char text[4] = " ";

    if (canvas->letters || (cell->mark && !canvas->style->unicode)) {
        text[0] = cell->letter != 0 ? cell->letter : ' ';
    } else if (cell->mark) {
        memcpy(text, "\xE2\x97\x8F", 4); /* U+25CF */
    } else if (cell->dots != 0) {
        text[0] = (char)0xE2; /* U+2800 and up */
        text[1] = (char)(0xA0 + (cell->dots >> 6));
        text[2] = (char)(0x80 + (cell->dots & 0x3F));
        text[3] = '\0';
    }
    if (text[0] == ' ')
        (void)ct_buf_puts(to, " ");
    else
        put_coloured(canvas->style, cell->run, text, to);
}

static void put_row(const struct canvas *canvas, int row, struct ct_buf *to)
{
    int last = canvas->columns;
    const struct cell *cells = &canvas->cells[row * canvas->columns];

    while (last > 0 && cells[last - 1].dots == 0 && cells[last - 1].letter == 0)
        last--;
    for (int i = 0; i < last; i++)
        put_cell(canvas, &cells[i], to);
}

static void put_rows(const struct canvas *canvas, const struct ct_plot_ticks *ticks, int gutter,
                     struct ct_buf *to)
{
    bool unicode = canvas->style->unicode;

    for (int row = 0; row < canvas->rows; row++) {
        const char *text = "";
        for (int i = 0; i < ticks->count; i++)
            if (row == (int)lround((1 - ticks->place[i]) * (canvas->rows - 1)))
                text = ticks->text[i];
        (void)ct_buf_printf(to, "%*s %s", gutter, text,
                            text[0] == '\0' ? (unicode ? "│" : "|") : (unicode ? "┤" : "+"));
        put_row(canvas, row, to);
        (void)ct_buf_puts(to, "\n");
    }
}

/* The axis below, and its values; one that would touch its neighbour is left out. */
static void put_bottom(const struct canvas *canvas, const struct ct_plot_axis *x, int gutter,
                       const char *name, struct ct_buf *to)
{
    bool unicode = canvas->style->unicode;
    int end = 0, free_until = canvas->columns - (int)strlen(name) - 1;
    struct ct_plot_ticks ticks;
    struct ct_buf texts;

    ct_buf_init(&texts, 0);
    ct_plot_ticks(x, CT_MIN(CT_MAX(canvas->columns / 10, 3), CT_PLOT_TICKS), &ticks);
    (void)ct_buf_printf(to, "%*s %s", gutter, "", unicode ? "└" : "+");
    for (int column = 0; column < canvas->columns; column++) {
        bool tick = false;
        for (int i = 0; i < ticks.count; i++) {
            int length = (int)strlen(ticks.text[i]);
            int at = (int)lround(ticks.place[i] * (canvas->columns - 1));
            int start = CT_MAX(at - (length - 1) / 2, 0);

            tick = tick || column == at;
            if (column != at || (start < end + 1 && end > 0) || start + length > free_until)
                continue;
            (void)ct_buf_printf(&texts, "%*s%s", start - end, "", ticks.text[i]);
            end = start + length;
        }
        (void)ct_buf_puts(to, tick ? (unicode ? "┬" : "+") : (unicode ? "─" : "-"));
    }
    (void)ct_buf_printf(to, "\n%*s  %s%*s%s\n", gutter, "", ct_buf_str(&texts),
                        CT_MAX(canvas->columns - end - (int)strlen(name), 1), "", name);
    ct_buf_deinit(&texts);
}

static void put_legend(const struct canvas *canvas, const char *const *labels, int runs,
                       struct ct_buf *to)
{
    for (int i = 0; i < runs; i++) {
        char letter[2] = {letter_of(i), '\0'};
        const char *sign = canvas->letters          ? letter
                           : canvas->style->unicode ? "\xE2\x94\x81" /* U+2501 */
                                                    : "-";

        (void)ct_buf_puts(to, "  ");
        put_coloured(canvas->style, i, sign, to);
        (void)ct_buf_printf(to, "  %.*s\n", CT_MAX(canvas->style->width - 5, 8), labels[i]);
    }
}

static int draw(struct canvas *canvas, const struct ct_plot *plot, const struct ct_plot_axis *x,
                const struct ct_plot_axis *y)
{
    int code = 0;

    canvas->cells = calloc((size_t)canvas->columns * (size_t)canvas->rows, sizeof *canvas->cells);
    if (canvas->cells == NULL)
        return CT_ENOMEM;
    for (int marks = 0; marks < 2; marks++) /* on top */
        for (size_t i = 0; i < plot->count && code == 0; i++)
            if (plot->curves[i].marks == (marks == 1))
                code = draw_curve(canvas, &plot->curves[i], x, y);
    return code;
}

int ct_plot_text(const struct ct_plot *plot, const char *const *labels, int runs,
                 const struct ct_plot_style *style, struct ct_buf *to)
{
    bool letters = !style->unicode || (runs > 1 && !style->colours);
    struct canvas canvas = {.style = style,
                            .rows = CT_MAX(style->rows, 2),
                            .across = letters ? 1 : 2,
                            .down = letters ? 1 : 4,
                            .letters = letters};
    struct ct_plot_axis x, y;
    struct ct_plot_ticks ticks;
    int gutter = 0;

    if (!ct_plot_axes(plot, &x, &y)) {
        (void)ct_buf_printf(to, "%s: no value that can be drawn\n", plot->title);
        return to->failed ? CT_ENOMEM : 0;
    }
    ct_plot_ticks(&y, CT_MIN(CT_MAX(canvas.rows / 3, 3), CT_PLOT_TICKS), &ticks);
    for (int i = 0; i < ticks.count; i++)
        gutter = CT_MAX(gutter, (int)strlen(ticks.text[i]));
    canvas.columns = CT_MAX(style->width - gutter - 2, LEAST_COLUMNS);
    int code = draw(&canvas, plot, &x, &y);
    if (code == 0) {
        (void)ct_buf_printf(to, "%s%s\n", plot->title, plot->log ? ", logarithmic" : "");
        put_rows(&canvas, &ticks, gutter, to);
        put_bottom(&canvas, &x, gutter, plot->x_name, to);
        if (labels != NULL)
            put_legend(&canvas, labels, runs, to);
    }
    free(canvas.cells);
    return code == 0 && to->failed ? CT_ENOMEM : code;
}
