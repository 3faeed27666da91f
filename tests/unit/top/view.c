/* See view.h. */
#include "view.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* As in a UTF-8 locale: ideographs are two cells wide, marks of direction have no width. */
static int width_of(wchar_t code)
{
    if (code >= 0x4e00 && code < 0xa000)
        return 2;
    return code >= 0x200b && code <= 0x202e ? 0 : 1;
}

void view_open(struct view *view, int height, int width, const char *status)
{
    cr_assert_eq(top_init(&view->state), 0);
    view->snapshot = NULL;
    view->canvas = (struct top_canvas){
        .height = height,
        .width = width,
        .unicode = true,
        .width_of = width_of,
        .cells = calloc((size_t)height * (size_t)width, sizeof *view->canvas.cells)};
    ct_buf_init(&view->text, 0);
    top_resize(&view->state, height, width);
    view_refresh(view, status);
}

void view_close(struct view *view)
{
    top_deinit(&view->state);
    top_snapshot_free(view->snapshot);
    free(view->canvas.cells);
    ct_buf_deinit(&view->text);
}

void view_refresh(struct view *view, const char *status)
{
    struct ct_error err = {0};
    struct top_snapshot *next = top_snapshot_new(status, &err);

    cr_assert_not_null(next, "%s", err.text);
    top_refresh(&view->state, next);
    top_snapshot_free(view->snapshot);
    view->snapshot = next;
}

enum top_effect view_press(struct view *view, const char *keys)
{
    enum top_effect effect = TOP_NOTHING;

    for (; *keys != '\0'; keys++)
        effect = top_press(&view->state, *keys == '\n' ? TOP_KEY_ENTER : *keys);
    return effect;
}

static void put_code(struct ct_buf *to, uint32_t code)
{
    const char three[] = {(char)(0xe0 | code >> 12), (char)(0x80 | (code >> 6 & 0x3f)),
                          (char)(0x80 | (code & 0x3f))};
    const char two[] = {(char)(0xc0 | code >> 6), (char)(0x80 | (code & 0x3f))};
    const char one = (char)code;

    if (code >= 0x800)
        (void)ct_buf_append(to, three, sizeof three);
    else if (code >= 0x80)
        (void)ct_buf_append(to, two, sizeof two);
    else if (code != 0)
        (void)ct_buf_append(to, &one, 1);
}

static void put_line(const struct view *view, int row, struct ct_buf *to)
{
    const struct top_cell *cells = &view->canvas.cells[row * view->canvas.width];
    int width = view->canvas.width;

    while (width > 0 && cells[width - 1].code == ' ')
        width--;
    for (int i = 0; i < width; i++)
        put_code(to, cells[i].code);
}

const char *view_draw(struct view *view)
{
    ct_buf_clear(&view->text);
    top_draw(&view->state, &view->canvas);
    for (int row = 0; row < view->canvas.height; row++) {
        put_line(view, row, &view->text);
        (void)ct_buf_puts(&view->text, "\n");
    }
    return ct_buf_str(&view->text);
}

const char *view_line(const struct view *view, int row)
{
    static struct ct_buf line;

    ct_buf_clear(&line);
    put_line(view, row, &line);
    return ct_buf_str(&line);
}

const char *view_status(int nodes, int slots, const char *extra)
{
    static struct ct_buf text;

    ct_buf_clear(&text);
    (void)ct_buf_printf(&text,
                        "{\"jobs\":[{\"job\":\"night\",\"phase\":\"RUNNING\",\"phase_s\":12,"
                        "\"why\":\"job night runs\",\"generation\":2,\"world\":%d,\"nodes_min\":1,"
                        "\"nodes_max\":9,\"restarts\":0,\"max_restarts\":3,\"step\":50,"
                        "\"steps\":200,\"percent\":25,\"loss\":2.5,\"samples_per_s\":640,"
                        "\"eta_s\":30,\"journal\":\"in order\",%s\"nodes\":[",
                        nodes * slots, extra);
    for (int i = 0; i < nodes; i++)
        (void)ct_buf_printf(
            &text,
            "%s{\"host\":\"n%d\",\"state\":\"ACTING\",\"slots\":%d,\"node_rank\":%d,"
            "\"first_rank\":%d,\"heard_s\":%d,\"connected\":true,\"leaving\":false}",
            i > 0 ? "," : "", i, slots, i, i * slots, nodes - i);
    (void)ct_buf_puts(&text, "]}]}\n");
    return ct_buf_str(&text);
}
