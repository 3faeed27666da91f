/* See flight_job.h. */
#include "flight_job.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/str.h"
#include "diagnose/verdict.h"

#include <inttypes.h>
#include <stdlib.h>

enum { AT_A_TIME = 4 }; /* nodes */

/* ---- asking -----------------------------------------------------------------------------------*/

/* Ask the next nodes; a whole set of them at the begin and when those before do not answer. */
static void ask_more(struct flight_job *job, uint32_t count, struct ct_message *ret_next)
{
    count = CT_MIN(count, job->count - job->queried);
    if (count == 0)
        return;
    *ret_next = (struct ct_message){.type = CT_MSG_FLIGHT_QUERY, .flight_query = job->query};
    ret_next->flight_query.generation = job->generation;
    ret_next->flight_query.first = job->queried;
    ret_next->flight_query.count = count;
    job->queried += count;
}

static int begin(struct flight_job *job, const struct ct_msg_round *m)
{
    if (m->node_count == 0 || m->node_count > CT_WIRE_NODES || m->world == 0)
        return CT_EPROTOCOL;
    job->nodes = calloc(m->node_count, sizeof *job->nodes);
    if (job->nodes == NULL)
        return CT_ENOMEM;
    job->generation = m->generation;
    job->count = m->node_count;
    job->world = m->world;
    return ct_traces_init(&job->traces, m->generation, m->world);
}

static int receive_round(struct flight_job *job, const struct ct_msg_round *m)
{
    int code = job->generation == 0 ? begin(job, m) : 0;

    if (code != 0 || m->generation != job->generation || m->first != job->known ||
        m->nodes.count > job->count - job->known)
        return code;
    for (uint32_t i = 0; i < m->nodes.count; i++) {
        struct flight_node *node = &job->nodes[job->known++];

        (void)ct_str_copy(node->host, sizeof node->host, m->nodes.data[i].host);
        node->first_rank = m->nodes.data[i].first_rank;
        node->slots = m->nodes.data[i].slots;
    }
    return 0;
}

static void receive_reply(struct flight_job *job, const struct ct_msg_flight_reply *m)
{
    if (m->generation != job->generation || m->node >= job->queried || job->nodes[m->node].replied)
        return;
    struct flight_node *node = &job->nodes[m->node];
    node->replied = true;
    node->code = m->code;
    job->replied++;
    if (m->traces.size > 0 && node->code == 0)
        node->code = ct_traces_add_frame(&job->traces, m->traces.data, m->traces.size);
    if (ct_buf_append(&node->text, m->text.data, m->text.size) != 0)
        job->code = CT_ENOMEM;
}

bool flight_job_receive(void *context, const struct ct_message *message,
                        struct ct_message *ret_next)
{
    struct flight_job *job = context;
    uint32_t more = message == NULL ? AT_A_TIME : 1;

    if (message != NULL && message->type == CT_MSG_ROUND && job->queried == 0) {
        job->code = receive_round(job, &message->round);
        more = job->known > 0 && job->known == job->count ? AT_A_TIME : 0;
    } else if (message != NULL && message->type == CT_MSG_FLIGHT_REPLY) {
        receive_reply(job, &message->flight_reply);
    } else if (message != NULL) {
        return false;
    }
    if (job->code != 0 || (job->count > 0 && job->replied == job->count))
        return true;
    ask_more(job, more, ret_next);
    return message == NULL && ret_next->type == 0;
}

/* ---- telling ----------------------------------------------------------------------------------*/

/* Why a node's ranks are missing; NULL: they are not. */
static const char *absence(const struct flight_node *node)
{
    if (!node->replied)
        return "does not answer: is its ctrun stopped?";
    if (node->code == CT_EUNAVAILABLE)
        return "is not connected to the rendezvous";
    return node->code != 0 ? "has more ranks or groups than an answer may hold" : NULL;
}

static void print_text(const struct flight_job *job, const struct ct_verdict *verdict,
                       struct ct_buf *to)
{
    for (uint32_t i = 0; i < job->count; i++)
        (void)ct_buf_puts(to, ct_buf_str(&job->nodes[i].text));
    (void)ct_buf_printf(to, "generation %" PRIu64 ", %u nodes, %u ranks, of which %u were seen\n",
                        job->generation, job->count, job->world, job->traces.all.ranks.count);
    for (uint32_t i = 0; i < job->count; i++) {
        const struct flight_node *node = &job->nodes[i];

        if (absence(node) != NULL)
            (void)ct_buf_printf(to, "node %u (host %s, ranks %u to %u) %s\n", i, node->host,
                                node->first_rank, node->first_rank + node->slots - 1,
                                absence(node));
    }
    if (verdict == NULL) {
        (void)ct_buf_puts(to, "no verdict: nobody is waited for longer than a second\n");
        return;
    }
    ct_verdict_print(verdict, to);
    (void)ct_buf_puts(to, "\n");
}

static void put_string(struct ct_buf *to, const char *key, const char *text)
{
    (void)ct_buf_printf(to, "\"%s\":", key);
    ct_json_string(to, text);
}

static void print_verdict_json(const struct ct_verdict *verdict, struct ct_buf *to)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_verdict_print(verdict, &text);
    (void)ct_buf_printf(to, "{\"kind\":\"%s\",\"rank\":%u,\"waiting\":%u,\"since_s\":%.3f,",
                        ct_verdict_name(verdict->kind), verdict->culprit->rank, verdict->waiting,
                        (double)verdict->since_ms / 1e3);
    put_string(to, "host", verdict->culprit->host);
    (void)ct_buf_puts(to, ",");
    put_string(to, "text", ct_buf_str(&text));
    (void)ct_buf_puts(to, "}");
    ct_buf_deinit(&text);
}

static void print_json(const struct flight_job *job, const struct ct_verdict *verdict,
                       struct ct_buf *to)
{
    (void)ct_buf_printf(to, "{\"generation\":%" PRIu64 ",\"world\":%u,\"seen\":%u,\"nodes\":[",
                        job->generation, job->world, job->traces.all.ranks.count);
    for (uint32_t i = 0; i < job->count; i++) {
        const struct flight_node *node = &job->nodes[i];

        (void)ct_buf_printf(to, "%s{\"node\":%u,\"first_rank\":%u,\"slots\":%u,", i > 0 ? "," : "",
                            i, node->first_rank, node->slots);
        put_string(to, "host", node->host);
        (void)ct_buf_puts(to, ",");
        put_string(to, "absence", absence(node) != NULL ? absence(node) : "");
        (void)ct_buf_puts(to, "}");
    }
    (void)ct_buf_puts(to, "],\n\"verdict\":");
    if (verdict != NULL)
        print_verdict_json(verdict, to);
    else
        (void)ct_buf_puts(to, "null");
    (void)ct_buf_puts(to, ",\n\"ranks\":[");
    const char *separator = "";
    for (uint32_t i = 0; i < job->count; i++) {
        if (job->nodes[i].text.size == 0)
            continue;
        (void)ct_buf_printf(to, "%s%s", separator, ct_buf_str(&job->nodes[i].text));
        separator = ",";
    }
    (void)ct_buf_puts(to, "]}\n");
}

int flight_job_print(const struct flight_job *job, struct ct_buf *to)
{
    struct ct_verdict verdict;
    bool found = ct_verdict_find(&job->traces.all, &verdict) && ct_verdict_stands(&verdict);

    if (job->code != 0)
        return job->code;
    if (job->query.json != 0)
        print_json(job, found ? &verdict : NULL, to);
    else
        print_text(job, found ? &verdict : NULL, to);
    return to->failed ? CT_ENOMEM : 0;
}

void flight_job_deinit(struct flight_job *job)
{
    ct_traces_deinit(&job->traces);
    for (uint32_t i = 0; job->nodes != NULL && i < job->count; i++)
        ct_buf_deinit(&job->nodes[i].text);
    free(job->nodes);
    job->nodes = NULL;
}
