/* What the status page costs a rendezvous: its paths for one job of N nodes and for J jobs of one.
 *
 *     page [NODES [JOBS]]            10000 nodes, 1000 jobs
 *
 * One line a path: milliseconds (median of 21) and bytes. At a scrape a second one per cent of a
 * core is 10 ms. */
#include "rendezvous/page/page.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 21 };

static void on_send(void *context, void *peer, const struct ct_message *message)
{
    (void)context, (void)peer, (void)message;
}

static void on_close(void *context, void *peer, int code, const char *sentence)
{
    (void)context, (void)peer, (void)code;
    (void)fprintf(stderr, "a connection is closed: %s\n", sentence);
}

static void on_announce(void *context, const char *job, const char *sentence)
{
    (void)context, (void)job, (void)sentence;
}

static void join(struct ct_service *service, uint64_t node, const char *job, uint32_t nodes)
{
    uint64_t link = ct_service_open(service, service);
    char host[32];

    (void)snprintf(host, sizeof host, "node%llu", (unsigned long long)node);
    const struct ct_message hello = {.type = CT_MSG_HELLO,
                                     .hello = {.protocol = CT_WIRE_PROTOCOL,
                                               .job = job,
                                               .host = host,
                                               .incarnation = {node + 1, 1},
                                               .role = "agent"}};
    const struct ct_message message = {.type = CT_MSG_JOIN,
                                       .join = {.seq = 1,
                                                .incarnation = {node + 1, 1},
                                                .slots = 8,
                                                .node_rank = -1,
                                                .slurm_node = -1,
                                                .nodes_min = nodes,
                                                .nodes_max = nodes,
                                                .host = host,
                                                .address = "10.0.0.1",
                                                .role = "default",
                                                .settings = "",
                                                .join_timeout_ms = 60000,
                                                .last_call_ms = 1,
                                                .lease_ms = 60000,
                                                .prepare_ms = 60000,
                                                .grow_ms = 100,
                                                .autonomy_ms = 600000}};
    ct_service_message(service, 1, link, &hello);
    ct_service_message(service, 1, link, &message);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const struct ct_service *service, const char *path)
{
    double times_ms[TIMES];
    size_t size = 0;

    for (int i = 0; i < TIMES; i++) {
        uint64_t begun_ns = ct_clock_mono_ns(&ct_clock_system);
        const char *type;
        struct ct_buf out;

        ct_buf_init(&out, 0);
        const struct ct_page_view view = {.service = service, .now_ms = 2};
        if (ct_page_put(&view, path, &out, &type) == CT_PAGE_EVENTS)
            ct_page_put_update(&view, &out);
        size = out.size;
        ct_buf_deinit(&out);
        times_ms[i] = (double)(ct_clock_mono_ns(&ct_clock_system) - begun_ns) / 1e6;
    }
    qsort(times_ms, TIMES, sizeof *times_ms, compare);
    (void)printf("  %-14s %8.3f ms %10zu bytes\n", path, times_ms[TIMES / 2], size);
}

static void measure_all(const char *what, uint32_t jobs, uint32_t nodes)
{
    static const char *const paths[] = {"/", "/events", "/metrics"};
    const struct ct_service_io io = {.send = on_send, .close = on_close, .announce = on_announce};
    const struct ct_service_limits limits = {.jobs = jobs};
    struct ct_service *service = ct_service_new(&limits, &io, 1);
    char job[32];

    CT_ASSERT(service != NULL);
    for (uint32_t i = 0; i < jobs; i++) {
        (void)snprintf(job, sizeof job, "job%u", i);
        for (uint32_t k = 0; k < nodes; k++)
            join(service, (uint64_t)i * nodes + k, job, nodes);
    }
    (void)printf("%s\n", what);
    for (size_t i = 0; i < CT_COUNT(paths); i++)
        measure(service, paths[i]);
    ct_service_free(service);
}

int main(int argc, char **argv)
{
    uint32_t nodes = argc > 1 ? (uint32_t)atoi(argv[1]) : 10000;
    uint32_t jobs = argc > 2 ? (uint32_t)atoi(argv[2]) : 1000;
    char what[64];

    (void)snprintf(what, sizeof what, "one job of %u nodes", nodes);
    measure_all(what, 1, nodes);
    (void)snprintf(what, sizeof what, "%u jobs of one node", jobs);
    measure_all(what, jobs, 1);
    return 0;
}
