/* What rows there are, in which order, and what keys do. */
#include "view.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(top_model, .timeout = 20);

static const char *host_at(const struct view *view, size_t row)
{
    return top_node_at(&view->state, view->state.rows[row])->host;
}

Test(top_model, hosts_are_ordered_as_people_count_and_reversed)
{
    struct view view;

    view_open(&view, 24, 80, view_status(12, 2, ""));
    (void)view_press(&view, "2");
    cr_assert_eq(view.state.row_count, 12);
    cr_assert_str_eq(host_at(&view, 0), "n0");
    cr_assert_str_eq(host_at(&view, 2), "n2", "n2 comes before n10");
    cr_assert_str_eq(host_at(&view, 11), "n11");
    (void)view_press(&view, "r");
    cr_assert_str_eq(host_at(&view, 0), "n11");
    view_close(&view);
}

Test(top_model, each_column_sorts_and_the_selected_row_stays_selected)
{
    struct view view;

    view_open(&view, 24, 80, view_status(12, 2, ""));
    (void)view_press(&view, "2jjj");
    cr_assert_str_eq(host_at(&view, view.state.cursor), "n3");
    (void)view_press(&view, "sss"); /* HEARD: n11 was heard last */
    cr_assert_eq(view.state.sort[TOP_NODES], TOP_NODE_HEARD);
    cr_assert_str_eq(host_at(&view, 0), "n11");
    cr_assert_str_eq(host_at(&view, view.state.cursor), "n3");
    view_refresh(&view, view_status(8, 2, ""));
    cr_assert_str_eq(host_at(&view, view.state.cursor), "n3");
    (void)view_press(&view, "<<<");
    cr_assert_eq(view.state.sort[TOP_NODES], TOP_NODE_HOST);
    for (int i = 0; i < TOP_COLUMNS; i++) /* through all of them */
        (void)view_press(&view, "s");
    cr_assert_str_eq(host_at(&view, view.state.cursor), "n3");
    view_close(&view);
}

Test(top_model, ranks_are_those_of_nodes_in_the_round_one_row_each)
{
    struct view view;

    view_open(&view, 24, 80, view_status(3, 4, ""));
    (void)view_press(&view, "3G");
    cr_assert_eq(view.state.row_count, 12);
    cr_assert_eq(view.state.cursor, 11);
    cr_assert_str_eq(host_at(&view, 11), "n2");
    cr_assert_eq(view.state.rows[11].part, 3);
    view_close(&view);
}

Test(top_model, what_has_no_value_comes_last_whichever_way)
{
    struct view view;
    static const char status[] =
        "{\"jobs\":[{\"job\":\"a\",\"phase\":\"LOBBY\"},"
        "{\"job\":\"b\",\"phase\":\"RUNNING\",\"loss\":3},"
        "{\"job\":\"c\",\"phase\":\"RUNNING\",\"loss\":1}]}\n{\"jobs\":[{\"job\":\"d\"}]}\n";

    view_open(&view, 24, 80, status);
    view.state.sort[TOP_JOBS] = TOP_JOB_LOSS;
    top_list(&view.state);
    cr_assert_eq(view.state.row_count, 4, "two answers, one after the other");
    cr_assert_str_eq(top_job_name(&view.state, view.state.rows[0]), "c");
    cr_assert_str_eq(top_job_name(&view.state, view.state.rows[3]), "d");
    (void)view_press(&view, "r");
    cr_assert_str_eq(top_job_name(&view.state, view.state.rows[0]), "b");
    cr_assert_str_eq(top_job_name(&view.state, view.state.rows[3]), "d");
    view_close(&view);
}

Test(top_model, an_order_is_given_by_its_key_and_y_alone)
{
    struct view view;

    view_open(&view, 24, 80, view_status(3, 2, ""));
    cr_assert_eq(view_press(&view, "d"), TOP_NOTHING);
    cr_assert_eq(view.state.mode, TOP_BROWSE, "no host is selected under jobs");
    cr_assert_not_null(strstr(view.state.message, "which host?"));
    cr_assert_eq(view_press(&view, "2jd"), TOP_NOTHING);
    cr_assert_eq(view.state.mode, TOP_CONFIRM);
    cr_assert_not_null(strstr(view_draw(&view), "drain n1 of job night? y: yes"));
    cr_assert_eq(view_press(&view, "n"), TOP_NOTHING);
    cr_assert_eq(view.state.mode, TOP_BROWSE);
    cr_assert_eq(view_press(&view, "dq"), TOP_NOTHING, "q says no, it does not quit");
    (void)view_press(&view, "d");
    view_refresh(&view, view_status(1, 2, "")); /* n1 is gone, the question was about it */
    cr_assert_eq(view_press(&view, "y"), TOP_GIVE_ORDER);
    cr_assert_eq(view.state.order.kind, TOP_ORDER_DRAIN);
    cr_assert_str_eq(view.state.order.host, "n1");
    cr_assert_str_eq(view.state.order.job, "night");
    cr_assert_eq(view_press(&view, "1ty"), TOP_GIVE_ORDER);
    cr_assert_eq(view.state.order.kind, TOP_ORDER_TAKEOVER);
    cr_assert_str_eq(view.state.order.host, "");
    view_close(&view);
}

Test(top_model, a_cordoned_host_that_is_in_no_round_has_a_row_to_uncordon)
{
    struct view view;

    view_open(&view, 24, 100,
              view_status(2, 2,
                          "\"cordons\":[{\"host\":\"n1\",\"reason\":\"fan\"},"
                          "{\"host\":\"gone\",\"reason\":\"disk\"}],"));
    (void)view_press(&view, "2");
    cr_assert_eq(view.state.row_count, 3);
    const char *text = view_draw(&view);
    cr_assert_not_null(strstr(text, "cordoned: fan"), "%s", text);
    cr_assert_not_null(strstr(text, "cordoned: disk"), "%s", text);
    cr_assert_eq(view_press(&view, "guy"), TOP_GIVE_ORDER);
    cr_assert_str_eq(view.state.order.host, "gone");
    view_close(&view);
}

Test(top_model, a_filter_keeps_rows_that_contain_it_and_escape_ends_it)
{
    struct view view;

    view_open(&view, 24, 80, view_status(12, 2, ""));
    (void)view_press(&view, "2/N1\n");
    cr_assert_eq(view.state.row_count, 3, "n1, n10, n11");
    (void)top_press(&view.state, TOP_KEY_ESCAPE);
    cr_assert_eq(view.state.row_count, 12);
    (void)view_press(&view, "/none");
    cr_assert_eq(view.state.row_count, 0);
    cr_assert_not_null(strstr(view_draw(&view), "nothing contains"));
    cr_assert_eq(view_press(&view, "\ndy"), TOP_NOTHING, "there is nothing to drain");
    view_close(&view);
}

Test(top_model, enter_goes_from_a_job_to_its_nodes_and_ranks_and_escape_back)
{
    struct view view;
    static const char status[] =
        "{\"jobs\":[{\"job\":\"a\",\"nodes\":[{\"host\":\"x\"}]},{\"job\":\"b\",\"nodes\":["
        "{\"host\":\"y\",\"slots\":2,\"first_rank\":0},{\"host\":\"z\"}]}]}";

    view_open(&view, 24, 80, status);
    (void)view_press(&view, "j\n");
    cr_assert_eq(view.state.view, TOP_NODES);
    cr_assert_eq(view.state.row_count, 2);
    cr_assert_str_eq(host_at(&view, 0), "y");
    (void)view_press(&view, "\n");
    cr_assert_eq(view.state.view, TOP_RANKS);
    cr_assert_eq(view.state.row_count, 2);
    (void)top_press(&view.state, TOP_KEY_ESCAPE);
    cr_assert_str_eq(view.state.job, "");
    (void)top_press(&view.state, TOP_KEY_ESCAPE);
    cr_assert_eq(view.state.view, TOP_JOBS);
    cr_assert_eq(view_press(&view, "q"), TOP_QUIT);
    view_close(&view);
}

Test(top_model, ten_thousand_nodes_are_listed_in_order_and_one_screen_of_them_is_shown)
{
    struct view view;

    view_open(&view, 60, 200, view_status(10000, 8, ""));
    (void)view_press(&view, "3");
    cr_assert_eq(view.state.row_count, 80000);
    for (size_t i = 0; i < 80000; i++)
        cr_assert_eq(view.state.rows[i].index * 8 + view.state.rows[i].part, i);
    (void)view_press(&view, "2sssG"); /* by HEARD: n0 was heard longest ago */
    cr_assert_str_eq(host_at(&view, 9999), "n0");
    struct top_layout layout;
    cr_assert(top_layout(&view.state, &layout));
    cr_assert_eq(view.state.first + (size_t)layout.body_rows, 10000);
    (void)view_draw(&view);
    cr_assert_eq(strncmp(view_line(&view, layout.body + layout.body_rows - 1), "n0 ", 3), 0);
    view_refresh(&view, view_status(5, 8, ""));
    cr_assert_str_eq(host_at(&view, view.state.cursor), "n0");
    cr_assert_eq(view.state.first, 0);
    view_close(&view);
}

Test(top_model, events_are_a_ring_newest_first_of_which_each_has_its_place)
{
    struct view view;
    struct ct_buf lines;

    ct_buf_init(&lines, 0);
    view_open(&view, 24, 80, view_status(1, 1, ""));
    for (int i = 1; i <= TOP_EVENTS_KEPT + 10; i++)
        (void)ct_buf_printf(
            &lines,
            "{\"time\":\"2026-03-01T10:00:02.125Z\",\"number\":%d,\"job\":\"night\","
            "\"generation\":1,\"event\":\"checkpoint\",\"text\":\"step %d\"}\n",
            i, i);
    (void)ct_buf_puts(&lines, "this is no record\n");
    cr_assert_eq(top_add_events(&view.state, ct_buf_str(&lines)), TOP_EVENTS_KEPT + 10);
    (void)view_press(&view, "4");
    cr_assert_eq(view.state.row_count, TOP_EVENTS_KEPT);
    cr_assert_str_eq(top_event_at(&view.state, view.state.rows[0])->text, "step 266");
    cr_assert_str_eq(top_event_at(&view.state, view.state.rows[255])->text, "step 11");
    ct_buf_deinit(&lines);
    view_close(&view);
}

Test(top_model, an_answer_that_is_none_has_a_sentence)
{
    static const char *const answers[] = {"[]", "{\"jobs\":1}", "{\"jobs\":[", "x",
                                          "{\"jobs\":[]} trailing"};
    for (size_t i = 0; i < CT_COUNT(answers); i++) {
        struct ct_error err = {0};

        cr_assert_null(top_snapshot_new(answers[i], &err), "%s", answers[i]);
        cr_assert_not_null(strstr(err.text, "same version"), "%s: %s", answers[i], err.text);
    }
}

Test(top_model, an_answer_of_odd_types_has_no_values_and_harms_nobody)
{
    struct view view;

    view_open(&view, 24, 80,
              "{\"jobs\":[1,null,\"x\",{\"job\":7,\"nodes\":{},\"curve\":[],\"cordons\":3},"
              "{\"nodes\":[1,{\"host\":[],\"slots\":1e300,\"first_rank\":-5}],\"loss\":\"a\","
              "\"curve\":{\"loss\":[null,\"x\",1]}}]}");
    cr_assert_eq(view.state.row_count, 5);
    for (const char *keys = "1234"; *keys != '\0'; keys++) {
        (void)view_press(&view, (char[]){*keys, '\0'});
        cr_assert_not_null(strstr(view_draw(&view), "ctrun top"));
    }
    view_close(&view);
}
