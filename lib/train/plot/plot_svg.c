/* Plots as an SVG document; see plot.h.
 *
 * Lengths are pixels of a picture 860 wide; a path has steps in tenths of a pixel, relative to the
 * point before, which are the shortest. The evaluations of a few runs have circles besides. */
#include "train/plot/plot.h"

#include "base/assert.h"
#include "base/str.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* POINT_BYTES: of a point in a path, at most. OTHER_BYTES, PANEL_BYTES, CIRCLE_BYTES, LABEL_BYTES:
 * of what is no path. CIRCLES: of a curve, where CIRCLED of them or fewer have any. */
enum {
    WIDTH = 860,
    LEFT = 70,
    RIGHT = 20,
    TOP = 34,
    AREA_WIDTH = WIDTH - LEFT - RIGHT,
    AREA_HEIGHT = 260,
    PANEL = TOP + AREA_HEIGHT + 46,
    LINE = 20,
    COLOURS = 8,
    POINT_BYTES = 16,
    OTHER_BYTES = 4096,
    LABEL_BYTES = 800,
    PANEL_BYTES = 4096,
    LEAST_COLUMNS = 16,
    CIRCLES = 60,
    CIRCLE_BYTES = 64,
    CIRCLED = 6
};

/* Okabe and Ito's colours, darker or lighter than theirs where the ground asks for it, which people
 * with any sight tell apart. Classes: c0, f0 lines and circles of a run, b ground, t values of an
 * axis, g grid, a axes, h titles, l curves, m those of evaluations, w in the legend. */
static const char style[] =
    "<style>"
    "svg{font:13px system-ui,sans-serif}.b{fill:#fff}text{fill:#222}"
    ".t{fill:#666;font-size:12px}.g{stroke:#e4e4e4}.a{stroke:#666;fill:none}"
    ".h{font-weight:600}.l{fill:none;stroke-width:1.6;stroke-linejoin:round}"
    ".m{stroke-dasharray:6 3;stroke-width:2}.w{stroke-width:3}"
    ".c0{stroke:#0072b2}.f0{fill:#0072b2}.c1{stroke:#d55e00}.f1{fill:#d55e00}"
    ".c2{stroke:#007f5c}.f2{fill:#007f5c}.c3{stroke:#b0437f}.f3{fill:#b0437f}"
    ".c4{stroke:#8a6d00}.f4{fill:#8a6d00}.c5{stroke:#2f8fc4}.f5{fill:#2f8fc4}"
    ".c6{stroke:#7a4fb5}.f6{fill:#7a4fb5}.c7{stroke:#555555}.f7{fill:#555555}"
    "@media(prefers-color-scheme:dark){"
    ".b{fill:#161a1d}text{fill:#e6e6e6}.t{fill:#a0a0a0}.g{stroke:#2c3236}"
    ".a{stroke:#a0a0a0}"
    ".c0{stroke:#56b4e9}.f0{fill:#56b4e9}.c1{stroke:#ff9147}.f1{fill:#ff9147}"
    ".c2{stroke:#2fc99a}.f2{fill:#2fc99a}.c3{stroke:#e58fc0}.f3{fill:#e58fc0}"
    ".c4{stroke:#f0e442}.f4{fill:#f0e442}.c5{stroke:#8ecbff}.f5{fill:#8ecbff}"
    ".c6{stroke:#b99af0}.f6{fill:#b99af0}.c7{stroke:#bbbbbb}.f7{fill:#bbbbbb}"
    "}</style>\n";

/* Of runs whose colour is used already. */
static const char faint[] = " opacity=\".6\"";

/* Text between tags, at most `most` bytes of it: markup becomes entities, and what is no character
 * of XML a question mark. */
static void put_escaped(struct ct_buf *to, const char *text, size_t most)
{
    size_t length = strlen(text);
    size_t valid = ct_utf8_valid_prefix(text, CT_MIN(length, most));

    for (size_t i = 0; i < valid; i++) {
        unsigned char byte = (unsigned char)text[i];

        if (byte == '<' || byte == '>' || byte == '&' || byte == '"')
            (void)ct_buf_printf(to, "&#%d;", byte);
        else
            (void)ct_buf_append(to, byte < 0x20 || byte == 0x7F ? "?" : &text[i], 1);
    }
    (void)ct_buf_puts(to, valid == length ? "" : length > most ? "..." : "?");
}

/* Tenths, as short as they can be: "12", "-.4". */
static void put_tenths(struct ct_buf *to, int64_t tenths, bool separate)
{
    int64_t whole = llabs(tenths) / 10, rest = llabs(tenths) % 10;

    (void)ct_buf_puts(to, tenths < 0 ? "-" : separate ? " " : "");
    if (whole != 0 || rest == 0)
        (void)ct_buf_printf(to, "%lld", (long long)whole);
    if (rest != 0)
        (void)ct_buf_printf(to, ".%lld", (long long)rest);
}

struct panel {
    const struct ct_plot *plot;
    int top;
    size_t columns;
    bool circles;
    struct ct_plot_axis x, y;
    struct ct_buf *to;
};

static double x_of(double place)
{
    return LEFT + place * AREA_WIDTH;
}

static double y_of(const struct panel *panel, double place)
{
    return panel->top + TOP + (1 - place) * AREA_HEIGHT;
}

static void put_path(const struct panel *panel, const struct ct_plot_curve *curve,
                     const struct ct_plot_point *points, size_t count)
{
    int64_t last_x = 0, last_y = 0;
    struct ct_buf *to = panel->to;

    (void)ct_buf_printf(to, "<path class=\"l c%d%s\"%s d=\"", curve->run % COLOURS,
                        curve->marks ? " m" : "", curve->run >= COLOURS ? faint : "");
    for (size_t i = 0; i < count; i++) {
        int64_t x = llround(10 * x_of(points[i].x)), y = llround(10 * y_of(panel, points[i].y));
        bool moves = points[i].after_gap;
        bool alone = moves && (i + 1 == count || points[i + 1].after_gap);

        (void)ct_buf_puts(to, moves ? "M" : "l");
        put_tenths(to, moves ? x : x - last_x, false);
        put_tenths(to, moves ? y : y - last_y, true);
        (void)ct_buf_puts(to, alone ? "h.1" : ""); /* a dot */
        last_x = x + (alone ? 1 : 0);
        last_y = y;
    }
    (void)ct_buf_puts(to, "\"/>\n");
    if (!curve->marks || count > CIRCLES || !panel->circles)
        return;
    for (size_t i = 0; i < count; i++)
        (void)ct_buf_printf(to, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n",
                            curve->run % COLOURS, x_of(points[i].x), y_of(panel, points[i].y));
}

static int put_curves(const struct panel *panel)
{
    int code = 0;

    for (size_t i = 0; i < panel->plot->count && code == 0; i++) {
        const struct ct_plot_curve *curve = &panel->plot->curves[i];
        struct ct_plot_point *points = NULL;
        size_t count = 0;

        code = ct_plot_thin(curve, &panel->x, &panel->y, panel->columns, &points, &count);
        if (code == 0 && count > 0)
            put_path(panel, curve, points, count);
        free(points);
    }
    return code;
}

static void put_axes(const struct panel *panel)
{
    struct ct_buf *to = panel->to;
    struct ct_plot_ticks ticks;
    int bottom = panel->top + TOP + AREA_HEIGHT;

    ct_plot_ticks(&panel->y, 7, &ticks);
    for (int i = 0; i < ticks.count; i++) {
        double y = y_of(panel, ticks.place[i]);
        (void)ct_buf_printf(to,
                            "<path class=\"g\" d=\"M%d %.1fh%d\"/>"
                            "<text class=\"t\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                            LEFT, y, AREA_WIDTH, LEFT - 8, y + 4, ticks.text[i]);
    }
    ct_plot_ticks(&panel->x, 9, &ticks);
    for (int i = 0; i < ticks.count; i++)
        (void)ct_buf_printf(
            to,
            "<path class=\"a\" d=\"M%.1f %dv5\"/>"
            "<text class=\"t\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
            x_of(ticks.place[i]), bottom, x_of(ticks.place[i]), bottom + 20, ticks.text[i]);
    (void)ct_buf_printf(to, "<path class=\"a\" d=\"M%d %dV%dh%d\"/>\n", LEFT, panel->top + TOP,
                        bottom, AREA_WIDTH);
    (void)ct_buf_printf(to, "<text class=\"t\" x=\"%d\" y=\"%d\" text-anchor=\"end\">",
                        WIDTH - RIGHT, bottom + 38);
    put_escaped(to, panel->plot->x_name, 40);
    (void)ct_buf_puts(to, "</text>\n");
}

/* Above the picture what it is; below it what it does not show. */
static void put_words(const struct panel *panel, bool drawn)
{
    const struct ct_plot *plot = panel->plot;
    struct ct_buf *to = panel->to;
    size_t gaps = 0;
    bool marks = false;

    for (size_t i = 0; i < plot->count; i++) {
        gaps += ct_plot_gaps(&plot->curves[i], plot->log);
        marks = marks || plot->curves[i].marks;
    }
    (void)ct_buf_printf(to, "<text class=\"h\" x=\"%d\" y=\"%d\">", LEFT, panel->top + 22);
    put_escaped(to, plot->title, 80);
    (void)ct_buf_printf(to, "%s%s%s</text>\n", plot->log ? ", logarithmic" : "",
                        marks ? "; dashed: evaluations" : "",
                        drawn ? "" : ": no value that can be drawn");
    if (gaps > 0)
        (void)ct_buf_printf(
            to, "<text class=\"t\" x=\"%d\" y=\"%d\">%zu not finite%s: gaps</text>\n", LEFT,
            panel->top + TOP + AREA_HEIGHT + 38, gaps, plot->log ? " or not above 0" : "");
}

static int put_panel(struct panel *panel)
{
    bool drawn = ct_plot_axes(panel->plot, &panel->x, &panel->y);

    put_words(panel, drawn);
    if (!drawn)
        return 0;
    put_axes(panel);
    return put_curves(panel);
}

static void put_legend(const char *const *labels, int runs, int top, struct ct_buf *to)
{
    for (int i = 0; i < runs; i++) {
        int y = top + i * LINE;

        (void)ct_buf_printf(to,
                            "<path class=\"l w c%d\"%s d=\"M%d %dh24\"/>"
                            "<text x=\"%d\" y=\"%d\">",
                            i % COLOURS, i >= COLOURS ? faint : "", LEFT, y, LEFT + 34, y + 4);
        put_escaped(to, labels[i], 110);
        (void)ct_buf_puts(to, "</text>\n");
    }
}

/* Decide for the whole to fit: the columns of a curve, 0 for too many curves, and circles. */
static size_t find_columns(const struct ct_plot *plots, size_t count, int runs, bool *ret_circles)
{
    size_t curves = 0, marked = 0;
    size_t other = OTHER_BYTES + count * PANEL_BYTES + (size_t)runs * LABEL_BYTES;

    for (size_t i = 0; i < count; i++) {
        curves += plots[i].count;
        for (size_t k = 0; k < plots[i].count; k++)
            marked += plots[i].curves[k].marks;
    }
    *ret_circles = marked <= CIRCLED;
    other += curves * 128 + (*ret_circles ? marked * CIRCLES * CIRCLE_BYTES : 0);
    if (other > CT_PLOT_SVG_BYTES)
        return 0;
    size_t columns = (CT_PLOT_SVG_BYTES - other) / CT_MAX(curves, (size_t)1) / (4 * POINT_BYTES);
    return columns < LEAST_COLUMNS ? 0 : CT_MIN(columns, (size_t)AREA_WIDTH);
}

int ct_plot_svg(const struct ct_plot *plots, size_t count, const char *const *labels, int runs,
                struct ct_buf *to)
{
    int height = (int)count * PANEL + runs * LINE + 24;
    struct panel panel = {.to = to};
    panel.columns = find_columns(plots, count, runs, &panel.circles);
    int code = panel.columns == 0 ? CT_ELIMIT : 0;

    if (code != 0)
        return code;
    (void)ct_buf_printf(to,
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                        "width=\"%d\" height=\"%d\" role=\"img\">\n<title>",
                        WIDTH, height, WIDTH, height);
    for (size_t i = 0; i < count; i++) {
        (void)ct_buf_puts(to, i > 0 ? ", " : "");
        put_escaped(to, plots[i].title, 40);
    }
    (void)ct_buf_puts(to, "</title>\n");
    (void)ct_buf_puts(to, style);
    (void)ct_buf_printf(to, "<rect width=\"%d\" height=\"%d\" class=\"b\"/>\n", WIDTH, height);
    for (size_t i = 0; i < count && code == 0; i++) {
        panel.plot = &plots[i];
        panel.top = (int)i * PANEL;
        code = put_panel(&panel);
    }
    put_legend(labels, runs, (int)count * PANEL + 14, to);
    (void)ct_buf_puts(to, "</svg>\n");
    return code == 0 && to->failed ? CT_ENOMEM : code;
}
