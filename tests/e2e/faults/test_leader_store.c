/* The node that leads the rendezvous is killed while clients on all nodes use the store of their
 * round and publish: what they were answered has an order (tests/lib/history). */
#include "drill.h"
#include "e2e.h"
#include "history/history.h"
#include "nodes/cluster.h"

#include <criterion/criterion.h>
#include <signal.h>

TestSuite(leader_store, .init = drill_enter, .fini = drill_leave, .timeout = 60);

enum { NODES = 3, OPS = 1500 };

/* Answers in rounds after `generation`. */
static size_t answers_after(const struct history *history, uint64_t generation)
{
    size_t count = 0;

    for (size_t i = 0; i < history->count; i++)
        count += history->ops[i].end_ns != HISTORY_OPEN && history->ops[i].code == 0 &&
                 history->ops[i].generation > generation;
    return count;
}

static uint64_t newest_round(const struct history *history)
{
    uint64_t newest = 0;

    for (size_t i = 0; i < history->count; i++)
        if (history->ops[i].generation > newest)
            newest = history->ops[i].generation;
    return newest;
}

/* Some lines may be half there: then there are more in a moment. */
static bool has_answers(void *context)
{
    const uint64_t *generation = context;
    struct history history = {0};
    char text[HISTORY_TEXT];

    bool enough = history_read(&history, ".", text) && answers_after(&history, *generation) >= OPS;
    history_deinit(&history);
    return enough;
}

static uint64_t round_now(void)
{
    struct history history = {0};
    char text[HISTORY_TEXT];

    cr_assert(history_read(&history, ".", text), "%s", text);
    uint64_t generation = newest_round(&history);
    history_deinit(&history);
    return generation;
}

Test(leader_store, what_clients_are_answered_is_linearizable_when_the_leader_is_killed)
{
    static const char *const words[] = {"--log.level=debug", NULL};
    const struct drill_job job = {.nodes = "2:3",
                                  .lease = "5s",
                                  .restarts = 3,
                                  .program = proc_program("../tests/programs/store_traffic"),
                                  .endpoints = "10.78.0.1:29400",
                                  .options = words};
    struct history history = {0};
    struct history_report report;
    char text[HISTORY_TEXT];
    uint64_t generation = 0;

    cluster_up(NODES);
    for (int i = 0; i < NODES; i++)
        (void)drill_node(i, i, &job);
    (void)proc_wait_text(drill_proc(0), "is held by 3 hosts", 20);
    proc_until(has_answers, &generation, 20, "answers of the store");
    generation = round_now();
    drill_signal(drill_proc(0), SIGKILL);
    proc_until(has_answers, &generation, 20, "answers of the next round's store");
    drill_signal(drill_proc(1), SIGINT);
    for (int i = 1; i < NODES; i++)
        cr_assert_eq(proc_finish(drill_proc(i), 20), 128 + SIGINT);
    cr_assert(history_read(&history, ".", text), "%s", text);
    cr_assert(history_check(&history, &report), "%s", report.text);
    cr_log_info("%zu answered, %zu open, %zu objects, %zu published", report.answered, report.open,
                report.objects, report.published);
    cr_assert_geq(report.answered, 2 * OPS);
    cr_assert_gt(report.published, 0);
    cr_assert_geq(report.seen, 2 * NODES - 1, "of %d rounds", 2);
    history_deinit(&history);
}
