/* See canvas.h. */
#include "cmd/ctrun/top/core/canvas.h"

#include "base/assert.h"
#include "base/str.h"

#include <math.h>
#include <string.h>

enum { LOGARITHMIC_FROM = 100 };

void top_canvas_clear(struct top_canvas *canvas)
{
    for (int i = 0; i < canvas->height * canvas->width; i++)
        canvas->cells[i] = (struct top_cell){.code = ' ', .style = TOP_PLAIN};
}

static struct top_cell *cell_at(const struct top_canvas *canvas, int row, int column)
{
    return &canvas->cells[row * canvas->width + column];
}

/* The character that `*text` begins with, which moves behind it; '?' for what is not UTF-8. */
static uint32_t next_code(const char **text)
{
    const unsigned char *at = (const unsigned char *)*text;
    size_t size = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;

    if (ct_str_control(*text) > 0 || ct_utf8_valid_prefix(*text, strnlen(*text, size)) < size) {
        *text += CT_MAX(ct_str_control(*text), (size_t)1);
        return '?';
    }
    uint32_t code = size == 1 ? at[0] : at[0] & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++)
        code = code << 6 | (at[i] & 0x3fu);
    *text += size;
    return code;
}

/* How wide a character is here. */
static int width_of(const struct top_canvas *canvas, uint32_t *code)
{
    if (*code < 0x80)
        return 1;
    if (!canvas->unicode) {
        *code = '?';
        return 1;
    }
    int width = canvas->width_of((wchar_t)*code);
    return CT_MIN(CT_MAX(width, 0), 2);
}

static void set(const struct top_canvas *canvas, int row, int column, uint32_t code,
                enum top_style style)
{
    *cell_at(canvas, row, column) = (struct top_cell){.code = code, .style = (uint8_t)style};
}

int top_canvas_put(struct top_canvas *canvas, int row, int column, int room, enum top_style style,
                   const char *text)
{
    int used = 0;

    if (row < 0 || row >= canvas->height || column < 0)
        return 0;
    room = CT_MAX(CT_MIN(room, canvas->width - column), 0);
    while (*text != '\0') {
        uint32_t code = next_code(&text);
        int width = width_of(canvas, &code);

        if (used + width > room) { /* the mark takes the place of the last one */
            while (used > 0 && (used >= room || cell_at(canvas, row, column + used)->code == 0))
                used--;
            for (int i = used; i < room; i++)
                set(canvas, row, column + i, ' ', style);
            if (room > 0)
                set(canvas, row, column + used, canvas->unicode ? 0x2026 : '~', style);
            return room;
        }
        for (int i = 0; i < width; i++)
            set(canvas, row, column + used + i, i == 0 ? code : 0, style);
        used += width;
    }
    return used;
}

/* How many cells a text takes, `most` at most. */
static int measure(const struct top_canvas *canvas, const char *text, int most)
{
    int used = 0;

    while (*text != '\0' && used < most) {
        uint32_t code = next_code(&text);

        used += width_of(canvas, &code);
    }
    return CT_MIN(used, most);
}

void top_canvas_put_right(struct top_canvas *canvas, int row, int column, int room,
                          enum top_style style, const char *text)
{
    int used = measure(canvas, text, room);

    (void)top_canvas_put(canvas, row, column + room - used, used, style, text);
}

void top_canvas_paint(struct top_canvas *canvas, int row, int column, int room,
                      enum top_style style)
{
    if (row < 0 || row >= canvas->height)
        return;
    for (int i = CT_MAX(column, 0); i < CT_MIN(column + room, canvas->width); i++)
        cell_at(canvas, row, i)->style = (uint8_t)style;
}

/* The mean of the values that belong to a cell of `room`; NaN where none is finite. */
static double mean_of(const double *values, size_t count, size_t cell, size_t room)
{
    double sum = 0, finite = 0;
    size_t end = CT_MAX((cell + 1) * count / room, cell * count / room + 1);

    for (size_t i = cell * count / room; i < CT_MIN(end, count); i++)
        if (isfinite(values[i]))
            sum += values[i], finite++;
    return finite > 0 ? sum / finite : NAN;
}

/* Where a value stands between the lowest and the highest: 0 to 7. */
static uint32_t step_of(double value, double low, double high, bool logarithmic)
{
    double part = high > low ? (value - low) / (high - low) : 0;

    if (logarithmic && high > low)
        part = log(value / low) / log(high / low);
    return (uint32_t)fmin(part * 8, 7);
}

bool top_canvas_put_curve(struct top_canvas *canvas, int row, int column, int room,
                          const double *values, size_t count)
{
    static const char steps[] = "_.-~=+*#";
    double low = INFINITY, high = -INFINITY;
    int cells = (int)CT_MIN((size_t)CT_MAX(CT_MIN(room, canvas->width - column), 0), count);

    for (int i = 0; i < cells; i++) {
        double mean = mean_of(values, count, (size_t)i, (size_t)cells);
        low = fmin(low, mean);
        high = fmax(high, mean);
    }
    bool logarithmic = low > 0 && high > low * LOGARITHMIC_FROM;
    for (int i = 0; i < cells; i++) {
        double mean = mean_of(values, count, (size_t)i, (size_t)cells);
        uint32_t step = isfinite(mean) ? step_of(mean, low, high, logarithmic) : 0;
        uint32_t code = canvas->unicode ? 0x2581 + step : (uint32_t)steps[step];

        set(canvas, row, column + i, isfinite(mean) ? code : ' ', TOP_CURVE);
    }
    return logarithmic;
}
