/* How nodes and ranks are, as their agents tell while somebody looks: figures.h. */
#include "admin_bench.h"

#include "rendezvous/history/figures.h"
#include "rendezvous/service/service_state.h"

TestSuite(figures, .timeout = 20);

static void heartbeat(struct bench *b, uint32_t node, uint64_t seq, uint64_t now_ms)
{
    ct_service_message(
        b->service, now_ms, b->nodes[node].link,
        &(struct ct_message){
            .type = CT_MSG_HEARTBEAT,
            .heartbeat = {.generation = 1, .seq = seq, .acting = 1, .recovered = 1}});
}

static void tell(struct bench *b, uint32_t node, uint64_t now_ms)
{
    static const struct ct_wire_rank_figures ranks[] = {
        {.rank = 2, .pid = 41, .step = 7, .memory = 4096, .step_s = 0.25, .awaits = -1},
        {.rank = 3, .pid = 42, .life = 1, .step = 6, .waits_s = 1.5, .awaits = 2}};
    struct ct_message message = {
        .type = CT_MSG_FIGURES,
        .figures = {.generation = 1, .memory = 1024, .memory_total = 2048, .load = 0.5}};

    message.figures.trouble = "GPU 3: Xid 79";
    message.figures.ranks.data = ranks;
    message.figures.ranks.count = CT_COUNT(ranks);
    ct_service_message(b->service, now_ms, b->nodes[node].link, &message);
}

static bool metrics_have(struct bench *b, uint64_t now_ms, const char *line)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_service_metrics(b->service, now_ms, NULL, &text);
    bool have = strstr(ct_buf_str(&text), line) != NULL;
    ct_buf_deinit(&text);
    return have;
}

Test(figures, nodes_are_asked_only_while_somebody_looks)
{
    struct bench b;

    begin(&b, 2);
    heartbeat(&b, 1, 10, 2000);
    cr_assert_not(b.nodes[1].watched);
    tell(&b, 1, 2000);
    cr_assert_not(metrics_have(&b, 2000, "rank=\"2\""), "nobody asked for it");
    ct_service_look(b.service, 2000);
    heartbeat(&b, 1, 11, 2100);
    cr_assert(b.nodes[1].watched);
    tell(&b, 1, 2100);
    cr_assert(metrics_have(&b, 2200, "ctrun_rank_step{job_id=\"digits\",rank=\"2\"} 7\n"));
    cr_assert(
        metrics_have(&b, 2200, "ctrun_rank_wait_seconds{job_id=\"digits\",rank=\"3\"} 1.5\n"));
    cr_assert(
        metrics_have(&b, 2200, "ctrun_node_gpu_faulty{job_id=\"digits\",node=\"node1/1\"} 1\n"));
    cr_assert_not(metrics_have(&b, 2200, "ctrun_node_load{job_id=\"digits\",node=\"node0/0\"}"));
    heartbeat(&b, 1, 12, 2000 + CT_SERVICE_LOOK_MS);
    cr_assert_not(b.nodes[1].watched);
    end(&b);
}

Test(figures, status_has_them_and_what_is_old_is_not_shown)
{
    struct bench b;

    begin(&b, 2);
    hello(&b, &b.operator, "digits", "admin");
    (void)ask(&b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_STATUS, .json = 1});
    tell(&b, 1, 1000);
    const char *text =
        ask(&b, "digits", &(struct ct_msg_admin){.verb = CT_ADMIN_STATUS, .json = 1});
    cr_assert_not_null(strstr(text, "\"gpu_trouble\":\"GPU 3: Xid 79\",\"ranks\":[{\"rank\":2,"
                                    "\"pid\":41,\"state\":\"runs\",\"memory\":4096,\"step\":7,"
                                    "\"step_s\":0.25},{\"rank\":3,\"pid\":42,"
                                    "\"state\":\"stopped\",\"memory\":0,\"step\":6,"
                                    "\"waits_s\":1.5,\"awaits\":2}]"),
                       "%s", text);
    cr_assert(metrics_have(&b, 1000 + CT_FIGURES_MS - 1, "rank=\"2\""));
    cr_assert_not(metrics_have(&b, 1000 + CT_FIGURES_MS, "rank=\"2\""));
    end(&b);
}

Test(figures, another_agent_in_the_place_has_none_of_its_predecessors)
{
    struct ct_figures figures = {.of = NULL};
    const struct ct_id a = {1, 1}, b = {2, 1};
    const struct ct_wire_rank_figures ranks[3] = {{.rank = 5}, {.rank = 6}, {.rank = 7}};
    struct ct_msg_figures m = {.trouble = "", .ranks = {.data = ranks, .count = 1}};

    cr_assert_null(ct_figures_find(&figures, 40, a, 0));
    ct_figures_keep(&figures, 40, a, 0, &m);
    m.ranks.count = 3;
    ct_figures_keep(&figures, 40, a, 1, &m);
    cr_assert_eq(ct_figures_find(&figures, 40, a, 1)->count, 3);
    cr_assert_eq(ct_figures_find(&figures, 40, a, 1)->ranks[2].rank, 7);
    cr_assert_null(ct_figures_find(&figures, 40, b, 1));
    cr_assert_null(ct_figures_find(&figures, 39, a, 1));
    m.ranks.count = 0;
    ct_figures_keep(&figures, 40, b, 2, &m);
    cr_assert_eq(ct_figures_find(&figures, 40, b, 2)->count, 0);
    ct_figures_deinit(&figures);
}

/* An answer has a limit: of a large job the last nodes come without what their agents tell. */
Test(figures, they_leave_half_of_a_bounded_status_to_the_nodes)
{
    static const size_t limits[] = {0, 8192, 1200};
    static const int told[] = {2, 2, 1};
    struct bench b;

    begin(&b, 2);
    ct_service_look(b.service, 1000);
    tell(&b, 0, 1000);
    tell(&b, 1, 1000);
    for (size_t i = 0; i < CT_COUNT(limits); i++) {
        struct ct_buf text;
        int count = 0;

        ct_buf_init(&text, limits[i]);
        ct_admin_describe_json(b.service->jobs, 1100, SIZE_MAX, &text);
        for (const char *at = ct_buf_str(&text); (at = strstr(at, "gpu_trouble")) != NULL; at++)
            count++;
        cr_assert_eq(count, told[i], "limit %zu: %s", limits[i], ct_buf_str(&text));
        cr_assert(!text.failed && strstr(ct_buf_str(&text), "node1") != NULL);
        ct_buf_deinit(&text);
    }
    end(&b);
}
