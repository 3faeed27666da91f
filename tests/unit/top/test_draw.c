/* The screen, cell by cell. */
#include "view.h"

#include "base/assert.h"
#include "base/str.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(top_draw, .timeout = 20);

#define CURVE                                                                       \
    "\"curve\":{\"loss\":[8,7,6,5,4,3,2,1]},\"restart_reason\":\"rank 3 on n1 was " \
    "ended by SIGKILL\","

Test(top_draw, a_running_job_shows_progress_losses_and_why_it_was_restarted)
{
    struct view view;

    view_open(&view, 24, 110, view_status(2, 2, CURVE));
    (void)view_draw(&view);
    cr_assert_str_eq(view_line(&view, 1),
                     "night  running 0:12  step 50/200  [=====>              ]  loss 2.5  "
                     "640 samples/s  0:30 left");
    cr_assert_str_eq(view_line(&view, 2), "loss █▇▆▅▄▃▂▁  8 to 1");
    cr_assert_str_eq(view_line(&view, 3), "restarted because rank 3 on n1 was ended by SIGKILL");
    cr_assert_eq(strncmp(view_line(&view, 5), "JOB▲ ", strlen("JOB▲ ")), 0);
    view_close(&view);
}

Test(top_draw, what_agents_tell_of_nodes_and_workers_is_shown_and_ordered)
{
    static const char status[] =
        "{\"jobs\":[{\"job\":\"a\",\"nodes\":[{\"host\":\"x\",\"slots\":2,\"first_rank\":0,"
        "\"connected\":true,\"state\":\"ACTING\",\"memory\":1073741824,"
        "\"memory_total\":8589934592,\"load\":1.5,\"gpu_trouble\":\"GPU 3 is lost\",\"ranks\":["
        "{\"rank\":0,\"pid\":71,\"state\":\"runs\",\"memory\":1048576,\"step\":9,"
        "\"step_s\":0.025,\"waits_s\":3.25,\"awaits\":1},"
        "{\"rank\":1,\"pid\":72,\"state\":\"stopped\",\"memory\":2097152,\"step\":8}]},"
        "{\"host\":\"y\",\"slots\":1,\"first_rank\":2,\"connected\":true,\"ranks\":["
        "{\"rank\":7}]}]}]}";
    struct view view;
    struct top_layout layout;

    view_open(&view, 24, 120, status);
    cr_assert(top_layout(&view.state, &layout));
    (void)view_press(&view, "2");
    (void)view_draw(&view);
    const char *line = view_line(&view, layout.body);
    cr_assert_not_null(strstr(line, "1.5     1.0/8.0 GiB"), "%s", line);
    cr_assert_not_null(strstr(line, "GPU 3 is lost"), "%s", line);
    (void)view_press(&view, "3ssss"); /* WAITS */
    cr_assert_eq(view.state.sort[TOP_RANKS], TOP_RANK_STEP_TIME);
    (void)view_press(&view, "s");
    (void)view_draw(&view);
    line = view_line(&view, layout.body);
    cr_assert_not_null(
        strstr(line, "runs              9       25    3.2 s for 1       1 M       71"), "%s", line);
    line = view_line(&view, layout.body + 1);
    cr_assert_not_null(
        strstr(line, "stopped           8        -              -       2 M       72"), "%s", line);
    line = view_line(&view, layout.body + 2);
    cr_assert_null(strstr(line, "7"), "of another rank than the node's nothing is taken: %s", line);
    view_close(&view);
}

Test(top_draw, a_job_that_waits_says_for_what_and_since_when)
{
    struct view view;

    view_open(&view, 15, 60,
              "{\"jobs\":[{\"job\":\"night\",\"phase\":\"PAUSED\",\"phase_s\":75,\"why\":\"job "
              "night: waiting for 1 more node\",\"journal\":\"disk full\"}]}");
    (void)view_draw(&view);
    cr_assert_str_eq(view_line(&view, 3), "no new round can begin: disk full");
    view_close(&view);
    view_open(&view, 15, 60,
              "{\"jobs\":[{\"job\":\"night\",\"phase\":\"PAUSED\",\"phase_s\":75,\"why\":\"job "
              "night: waiting for 1 more node\",\"journal\":\"in order\"}]}");
    (void)view_draw(&view);
    cr_assert_str_eq(view_line(&view, 3), "for 1:15: job night: waiting for 1 more node");
    view_close(&view);
}

Test(top_draw, without_unicode_everything_is_ascii)
{
    struct view view;

    view_open(&view, 24, 80, view_status(2, 2, CURVE));
    view.canvas.unicode = false;
    for (const char *text = view_draw(&view); *text != '\0'; text++)
        cr_assert((*text >= ' ' && *text < 0x7f) || *text == '\n', "%02x", (unsigned char)*text);
    cr_assert_str_eq(view_line(&view, 2), "loss #*+=~-._  8 to 1");
    cr_assert_eq(strncmp(view_line(&view, 5), "JOB^ ", 5), 0);
    view_close(&view);
}

/* Jobs, hosts, reasons and events are strangers' words. */
Test(top_draw, names_of_strangers_write_no_control_character_and_no_more_than_their_cells)
{
    static const char evil[] = "\\u001b[2J\\u009b31m\\r\\n\\t\\u0007\\u202eevil\\u4e00\\u4e00";
    struct view view;
    struct ct_buf status, events;

    ct_buf_init(&status, 0);
    ct_buf_init(&events, 0);
    (void)ct_buf_printf(&status,
                        "{\"jobs\":[{\"job\":\"%s\",\"phase\":\"%s\",\"why\":\"%s\","
                        "\"restart_reason\":\"%s\",\"journal\":\"%s\",\"store_waits\":[\"%s\"],"
                        "\"cordons\":[{\"host\":\"%s\",\"reason\":\"%s\"}],\"nodes\":[{\"host\":"
                        "\"%s\",\"state\":\"%s\",\"slots\":1,\"first_rank\":0}]}]}",
                        evil, evil, evil, evil, evil, evil, evil, evil, evil, evil);
    (void)ct_buf_printf(&events, "{\"number\":1,\"job\":\"%s\",\"event\":\"%s\",\"text\":\"%s\"}\n",
                        evil, evil, evil);
    view_open(&view, 30, 90, ct_buf_str(&status));
    cr_assert_eq(top_add_events(&view.state, ct_buf_str(&events)), 1);
    for (const char *keys = "1d2dn34/\x1b"; *keys != '\0'; keys++) {
        (void)view_press(&view, (char[]){*keys, '\0'});
        const char *text = view_draw(&view);
        cr_assert_not_null(strstr(text, "evil"), "it is shown");
        for (; *text != '\0'; text++)
            cr_assert(*text == '\n' || ct_str_control(text) == 0, "%02x", (unsigned char)*text);
        for (int i = 0; i < 30 * 90; i++)
            cr_assert(view.canvas.cells[i].code != 0x202e &&
                      view.canvas.cells[i].style < TOP_STYLES);
    }
    ct_buf_deinit(&status);
    ct_buf_deinit(&events);
    view_close(&view);
}

Test(top_draw, wide_characters_take_two_cells_and_are_never_halved)
{
    struct top_cell cells[8];
    struct view view;

    view_open(&view, 24, 80, view_status(1, 1, ""));
    struct top_canvas canvas = view.canvas;
    canvas.cells = cells;
    canvas.height = 1;
    canvas.width = 8;
    for (int room = 0; room <= 8; room++) {
        top_canvas_clear(&canvas);
        int used = top_canvas_put(&canvas, 0, 0, room, TOP_PLAIN, "一一一");
        cr_assert_leq(used, room);
        for (int i = 0; i < 8; i++) {
            bool is_first = cells[i].code == 0x4e00;
            cr_assert(!is_first || (i < 7 && cells[i + 1].code == 0), "room %d", room);
            cr_assert(cells[i].code != 0 || (i > 0 && cells[i - 1].code == 0x4e00), "room %d",
                      room);
            cr_assert(i < room || cells[i].code == ' ', "room %d", room);
        }
        cr_assert(room == 0 || room >= 6 || cells[room - 1].code == 0x2026 ||
                      cells[room - 2].code == 0x2026,
                  "it says that it goes on: %d", room);
    }
    view_close(&view);
}

/* Each size, each view, with long names: nothing is written outside (the sanitizers see it). */
Test(top_draw, every_size_from_one_cell_to_250_by_80_is_drawn)
{
    static const int sizes[][2] = {{1, 1},   {1, 250}, {80, 1},   {8, 40},   {15, 60},
                                   {24, 80}, {30, 41}, {80, 250}, {12, 100}, {200, 39}};

    for (size_t i = 0; i < CT_COUNT(sizes); i++) {
        struct view view;

        view_open(&view, sizes[i][0], sizes[i][1], view_status(40, 2, CURVE));
        for (const char *keys = "12dn34h 2d"; *keys != '\0'; keys++) {
            (void)view_press(&view, (char[]){*keys, '\0'});
            (void)view_draw(&view);
        }
        bool fits = sizes[i][0] >= TOP_ROWS_LEAST && sizes[i][1] >= TOP_COLUMNS_LEAST;
        cr_assert_eq(strstr(view_draw(&view), "drain n0") != NULL, fits, "%d x %d", sizes[i][0],
                     sizes[i][1]);
        view_close(&view);
    }
}

Test(top_draw, a_smaller_terminal_keeps_the_selected_row_on_the_screen)
{
    struct view view;

    view_open(&view, 80, 250, view_status(60, 2, ""));
    (void)view_press(&view, "2G");
    cr_assert_not_null(strstr(view_draw(&view), "\nn59 "));
    top_resize(&view.state, 15, 60);
    view.canvas.height = 15;
    view.canvas.width = 60;
    const char *text = view_draw(&view);
    cr_assert_not_null(strstr(text, "\nn59 "), "%s", text);
    cr_assert_null(strstr(text, "\nn40 "), "%s", text);
    view_close(&view);
}

Test(top_draw, a_rendezvous_that_is_gone_is_said_in_the_first_line)
{
    struct view view;

    view_open(&view, 24, 80, view_status(2, 2, ""));
    (void)strcpy(view.state.lost, "no answer since 10:00:02, trying again: refused");
    (void)view_draw(&view);
    cr_assert_eq(strncmp(view_line(&view, 0), "no answer since 10:00:02", 24), 0);
    cr_assert_eq(view.canvas.cells[0].style, TOP_BAD);
    view_close(&view);
}
