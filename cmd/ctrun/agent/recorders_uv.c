/* See recorders_uv.h. */
#include "recorders_uv.h"

#include "base/assert.h"
#include "base/fs.h"
#include "diagnose/traces.h"
#include "node_state_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is left in the log folder -----------------------------------------------------------*/

/* A recorder on its way to a file: a copy, for the worker may go. */
struct page {
    uv_work_t work;
    char path[4096];
    struct ct_ticks_pair now;
    struct ct_worker_record record;
};

static void write_page(uv_work_t *work)
{
    struct page *page = work->data;
    struct ct_error err = {0};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    if (ct_flight_print_json(&page->record, page->now, CT_FLIGHT_ENTRIES, &text) == 0)
        (void)ct_fs_replace(page->path, text.data, text.size, &err);
    ct_buf_deinit(&text);
}

static void on_written(uv_work_t *work, int status)
{
    (void)status;
    free(work->data);
}

static void keep(struct node *node, uint32_t rank, const struct ct_worker_record *record)
{
    struct page *page = aligned_alloc(_Alignof(struct page), sizeof *page);

    if (page == NULL)
        return;
    page->work.data = page;
    page->now = ct_ticks_now();
    memcpy((void *)&page->record, record, sizeof page->record);
    (void)snprintf(page->path, sizeof page->path, "%s/flight_rank_%04u.g%llu.json",
                   node->job->folder.path, rank, (unsigned long long)node->round->generation);
    if (uv_queue_work(&node->loop, &page->work, write_page, on_written) != 0)
        free(page);
}

static uint32_t first_rank(const struct node *node)
{
    return node->round->own->first_rank;
}

/* The record of a rank that has made a call; NULL: it has none. */
static const struct ct_worker_record *record_of(const struct node *node, uint32_t local_rank)
{
    struct ct_worker_trace worker;

    if (!ct_workers_running(node->workers) ||
        !ct_workers_trace(node->workers, local_rank, &worker) || worker.record == NULL ||
        ct_flight_turns(&worker.record->flight) == 0)
        return NULL;
    return worker.record;
}

void recorders_keep(struct node *node)
{
    for (uint32_t i = 0; node->job->folder.stays && i < node->job->slots; i++) {
        const struct ct_worker_record *record = record_of(node, i);

        if (record != NULL)
            keep(node, first_rank(node) + i, record);
    }
}

/* ---- what an operator is told -----------------------------------------------------------------*/

/* The recorders that are wanted, with so many calls each; the buffer has a limit. */
static void print(const struct node *node, const struct ct_msg_flight_query *query, uint32_t calls,
                  struct ct_buf *to)
{
    ct_buf_clear(to);
    for (uint32_t i = 0; i < node->job->slots; i++) {
        const struct ct_worker_record *record = record_of(node, i);

        if (record == NULL || (query->rank >= 0 && (uint32_t)query->rank != first_rank(node) + i))
            continue;
        if (query->json == 0) {
            (void)ct_flight_print(record, ct_ticks_now(), calls, to);
            continue;
        }
        if (to->size > 0)
            (void)ct_buf_puts(to, ",");
        (void)ct_flight_print_json(record, ct_ticks_now(), calls, to);
    }
}

/* As many calls as there is room for: half as many again and again. */
static void print_fitting(const struct node *node, const struct ct_msg_flight_query *query,
                          struct ct_buf *to)
{
    enum { CALL_BYTES = 100 }; /* a call takes more */
    uint32_t calls =
        CT_MIN(query->calls, CT_WIRE_FLIGHT_REPLY_BYTES / CALL_BYTES / node->job->slots);

    print(node, query, calls, to);
    while (to->failed && calls > 0) {
        calls /= 2;
        print(node, query, calls, to);
    }
    if (to->failed)
        ct_buf_clear(to);
}

void recorders_reply(struct node *node, const struct ct_msg_flight_query *query)
{
    struct ct_traces traces;
    struct ct_buf frame, text;

    if (node->agent == NULL || agent_core_is_ending(&node->core) || node->round == NULL ||
        node->round->generation != query->generation)
        return; /* the round is over: the operator asks again */
    struct ct_msg_flight_reply reply = {
        .generation = query->generation, .asker = query->asker, .node = node->round->self};
    ct_buf_init(&frame, CT_WIRE_FLIGHT_REPLY_BYTES);
    ct_buf_init(&text, CT_WIRE_FLIGHT_REPLY_BYTES);
    reply.code = ct_traces_init(&traces, query->generation, node->job->slots);
    if (reply.code == 0) {
        inquiry_collect(node->inquiry, &traces);
        reply.code = ct_traces_print_frame(&traces, &frame);
    }
    if (reply.code == 0) {
        print_fitting(node, query, &text);
        reply.traces = (struct ct_bytes){(const unsigned char *)frame.data, frame.size};
        reply.text = (struct ct_bytes){(const unsigned char *)text.data, text.size};
    }
    ct_agent_flight_reply(node->agent, &reply);
    ct_traces_deinit(&traces);
    ct_buf_deinit(&frame);
    ct_buf_deinit(&text);
}
