/* Real agents and a real server over sockets, on one loop. */
#include "cluster.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(link, .timeout = 60);

static bool all_run(const struct cluster *c)
{
    for (size_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].agent != NULL && c->nodes[i].generation == 0)
            return false;
    return true;
}

static bool all_closed(const struct cluster *c)
{
    for (size_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].agent != NULL && !c->nodes[i].closed)
            return false;
    return true;
}

static void form_and_end(bool tcp)
{
    struct cluster c;
    cluster_init(&c, tcp, 3, 3);
    struct node *b = cluster_add(&c, "node10", -1);
    struct node *a = cluster_add(&c, "node2", -1);
    struct node *z = cluster_add(&c, "zebra", 0);
    cr_assert(cluster_until(&c, all_run));
    cr_assert_eq(z->self, 0);
    cr_assert_eq(a->self, 1);
    cr_assert_eq(b->self, 2);
    cr_assert_eq(b->world, 6);
    cr_assert_str_eq(b->first_host, "zebra");
    ct_agent_done(a->agent, 1);
    ct_agent_done(b->agent, 1);
    ct_agent_done(z->agent, 1);
    cr_assert(cluster_until(&c, all_closed));
    cr_assert_eq(a->result.status, 0);
    cluster_deinit(&c);
}

Test(link, a_job_forms_runs_and_ends_over_a_unix_socket)
{
    form_and_end(false);
}

Test(link, a_job_forms_runs_and_ends_over_tcp)
{
    form_and_end(true);
}

static bool all_run_second(const struct cluster *c)
{
    for (size_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].agent != NULL && c->nodes[i].generation != 2)
            return false;
    return true;
}

Test(link, a_failure_restarts_all_nodes_once_and_then_ends_the_job_with_its_cause)
{
    struct cluster c;
    cluster_init(&c, false, 2, 2);
    c.params.max_restarts = 1;
    struct node *a = cluster_add(&c, "a", -1);
    struct node *b = cluster_add(&c, "b", -1);
    cr_assert(cluster_until(&c, all_run));
    struct ct_wire_failure failure = {
        .code = CT_EWORKER, .rank = 3, .local_rank = 1, .pid = 77, .signal = 9};
    ct_agent_failure(b->agent, 1, &failure);
    cr_assert(cluster_until(&c, all_run_second));
    cr_assert_eq(a->reason, CT_RDZV_REASON_FAILURE);
    cr_assert_eq(a->restarts, 1);
    cr_assert_eq(a->self, 0);
    failure.text = "last words";
    ct_agent_failure(b->agent, 2, &failure);
    cr_assert(cluster_until(&c, all_closed));
    cr_assert_eq(a->result.status, 137);
    cr_assert_eq(a->result.cause.rank, 3);
    cr_assert_eq(a->result.cause.pid, 77);
    cr_assert_str_eq(a->result.cause.host, "b");
    cr_assert_str_eq(a->result.cause.text, "last words");
    cluster_deinit(&c);
}

Test(link, a_killed_agent_is_missed_within_a_fraction_of_the_lease)
{
    struct cluster c;
    cluster_init(&c, true, 1, 3);
    c.params.max_restarts = 1;
    c.params.lease_ms = 8000;
    struct node *a = cluster_add(&c, "a", -1);
    cluster_add(&c, "b", -1);
    struct node *d = cluster_add(&c, "c", -1);
    cr_assert(cluster_until(&c, all_run));
    uint64_t before = uv_hrtime();
    cluster_kill(a);
    cr_assert(cluster_until(&c, all_run_second));
    cr_assert_lt((uv_hrtime() - before) / 1000000, 4000);
    cr_assert_eq(d->reason, CT_RDZV_REASON_LOST);
    cr_assert_eq(d->self, 1);
    cr_assert_eq(d->node_count, 2);
    cluster_deinit(&c);
}

static bool has_reply(const struct node *node)
{
    return node->reply_count > 0;
}

Test(link, the_store_is_shared_by_the_nodes_and_waits)
{
    struct cluster c;
    cluster_init(&c, false, 2, 2);
    struct node *a = cluster_add(&c, "a", -1);
    struct node *b = cluster_add(&c, "b", -1);
    cr_assert(cluster_until(&c, all_run));
    struct ct_message wait = {.type = CT_MSG_STORE_WAIT,
                              .store_wait = {.request = 5, .generation = 1, .key = "k"}};
    cr_assert_eq(ct_agent_store(a->agent, 41, &wait), 0);
    struct ct_message set = {.type = CT_MSG_STORE_SET,
                             .store_set = {.request = 5, .generation = 1, .key = "k"}};
    set.store_set.value = (struct ct_bytes){(const unsigned char *)"hello", 5};
    cr_assert_eq(ct_agent_store(b->agent, 42, &set), 0);
    cr_assert(cluster_until_node(a, has_reply));
    cr_assert(cluster_until_node(b, has_reply));
    cr_assert_eq(a->replies[0].request, 41);
    cr_assert_eq(a->replies[0].code, 0);
    cr_assert_str_eq(a->replies[0].value, "hello");
    cr_assert_eq(b->replies[0].request, 42);
    cluster_deinit(&c);
}

static bool has_failed(const struct node *node)
{
    return node->failed;
}

Test(link, a_node_that_is_not_wanted_is_told_why)
{
    struct cluster c;
    cluster_init(&c, true, 2, 2);
    cluster_add(&c, "a", 0);
    struct node *b = cluster_add(&c, "b", 0);
    cr_assert(cluster_until_node(b, has_failed));
    cr_assert_not_null(strstr(b->error.text, "node rank 0 of host b is already taken by host a"),
                       "%s", b->error.text);
    c.params.max_restarts = 7;
    struct node *d = cluster_add(&c, "d", 1);
    cr_assert(cluster_until_node(d, has_failed));
    cr_assert_not_null(strstr(d->error.text, "--max_restarts 7 here, 0 on the nodes before"), "%s",
                       d->error.text);
    cluster_deinit(&c);
}

Test(link, a_job_that_is_never_complete_ends_and_says_who_is_missing)
{
    struct cluster c;
    cluster_init(&c, false, 3, 3);
    c.params.join_timeout_ms = 600;
    struct node *a = cluster_add(&c, "a", 0);
    struct node *b = cluster_add(&c, "b", 2);
    cr_assert(cluster_until(&c, all_closed));
    cr_assert_eq(a->result.status, 75);
    cr_assert_not_null(strstr(b->result.cause.text, "2 of 3 joined: a, b); node rank 1 missing"),
                       "%s", b->result.cause.text);
    cr_assert_not_null(strstr(a->waiting, "waiting for "), "%s", a->waiting);
    cluster_deinit(&c);
}

static bool second_has_failed(const struct cluster *c)
{
    return c->nodes[1].failed;
}

Test(link, a_server_of_one_job_refuses_another)
{
    struct cluster c;
    cluster_init_for(&c, "mine");
    (void)cluster_add_for(&c, "a", "mine");
    struct node *b = cluster_add_for(&c, "b", "yours");
    cr_assert(cluster_until(&c, second_has_failed));
    cr_assert_not_null(strstr(b->error.text, "serves job mine alone"), "%s", b->error.text);
    cluster_deinit(&c);
}

Test(link, one_server_serves_many_jobs)
{
    struct cluster c;
    cluster_init(&c, false, 2, 2);
    const char *jobs[] = {"red", "blue", "red", "blue"};
    for (size_t i = 0; i < 4; i++) {
        const char *hosts[] = {"a", "b", "c", "d"};
        (void)cluster_add_for(&c, hosts[i], jobs[i]);
    }
    cr_assert(cluster_until(&c, all_run));
    cr_assert_eq(ct_rdzv_server_jobs(c.server), 2);
    cr_assert_str_eq(c.nodes[2].first_host, "a");
    cr_assert_str_eq(c.nodes[3].first_host, "b");
    cluster_deinit(&c);
}
