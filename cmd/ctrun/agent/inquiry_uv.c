/* See inquiry_uv.h. */
#include "inquiry_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "diagnose/backtrace_uv.h"
#include "diagnose/traces.h"
#include "job/round.h"
#include "node_state_uv.h"
#include "recorders_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUESTIONS = 8, ASKERS = 2, NODE_MS = 700, VERDICT_MS = 5000, TEXT_BYTES = 2000 };

/* What a store request was for: | purpose 8 | question 24 | node 32 |. */
enum { FOR_QUESTION = 1, FOR_CLAIM, FOR_NODE, FOR_VERDICT, FOR_NOTHING };

struct asker {
    void (*done)(void *context, const struct inquiry_answer *answer);
    void *context;
};

struct inquiry {
    struct node *node;
    uv_timer_t limit;
    uint64_t generation;   /* of the round that it listens in; 0: none */
    uint32_t number;       /* of the next question */
    struct ct_buf verdict; /* of this round, once there is one: what follows it is its echo */
    struct inquiry_answer answer;
    int64_t reported; /* the rank that this node has called hanging; -1: none */
    struct asker askers[ASKERS];
    int asker_count;
    bool collects;
    uint32_t awaited;        /* nodes that have not answered */
    struct ct_traces traces; /* collected so far */
    struct ct_buf own;       /* the last TRACES frame of this node */
    uint64_t own_generation;
};

/* ---- the store --------------------------------------------------------------------------------*/

static void request(struct inquiry *inquiry, uint32_t purpose, uint32_t index,
                    struct ct_message *message)
{
    struct node *node = inquiry->node;
    const struct ct_call call = {INQUIRY_CALLER,
                                 (uint64_t)purpose << 56 | (uint64_t)inquiry->number << 32 | index,
                                 inquiry->generation};
    struct ct_call back;
    uint64_t number;

    if (node->agent == NULL || ct_calls_add(&node->calls, &call, &number) != 0)
        return;
    if (ct_agent_store(node->agent, number, message) != 0)
        (void)ct_calls_remove(&node->calls, number, &back);
}

static void key_of(const struct inquiry *inquiry, char key[64], const char *what, uint32_t index)
{
    if (index != UINT32_MAX)
        (void)snprintf(key, 64, "ct/trace/%u/%s/%u", inquiry->number, what, index);
    else
        (void)snprintf(key, 64, "ct/trace/%u/%s", inquiry->number, what);
}

static void await_key(struct inquiry *inquiry, uint32_t purpose, const char *what, uint32_t index,
                      uint64_t timeout_ms)
{
    char key[64];

    key_of(inquiry, key, what, index);
    request(inquiry, purpose, index,
            &(struct ct_message){.type = CT_MSG_STORE_WAIT,
                                 .store_wait = {.generation = inquiry->generation,
                                                .key = key,
                                                .timeout_ms = timeout_ms}});
}

static void set_key(struct inquiry *inquiry, const char *what, uint32_t index, const void *data,
                    size_t size)
{
    char key[64];

    key_of(inquiry, key, what, index);
    request(
        inquiry, FOR_NOTHING, 0,
        &(struct ct_message){
            .type = CT_MSG_STORE_SET,
            .store_set = {.generation = inquiry->generation, .key = key, .value = {data, size}}});
}

/* ---- what this node sees ----------------------------------------------------------------------*/

static enum ct_trace_life life_of(bool gone, bool stopped, const char *doing)
{
    if (gone)
        return stopped ? CT_TRACE_DOWN : CT_TRACE_ENDED;
    return strncmp(doing, "stopped", 7) == 0 ? CT_TRACE_STOPPED : CT_TRACE_RUNS;
}

static void add_rank(struct inquiry *inquiry, uint32_t i, struct ct_ticks_pair now,
                     struct ct_traces *traces)
{
    const struct node *node = inquiry->node;
    struct ct_worker_trace worker;
    char doing[128] = "";

    if (!ct_workers_trace(node->workers, i, &worker))
        return;
    if (!worker.ended)
        ct_diagnose_state(worker.pid, doing, sizeof doing);
    bool gone = worker.ended || strcmp(doing, "ended") == 0; /* its end may not be known yet */
    const struct ct_trace_source source = {
        .rank = node->round->own->first_rank + i,
        .pid = (int)worker.pid,
        .life = life_of(gone, worker.stopped, doing),
        .status = worker.ended ? ct_exit_shell_status(worker.end) : -1,
        .host = node->job->host,
        .doing = doing,
        .record = worker.record,
    };
    (void)ct_traces_add(traces, &source, now);
}

void inquiry_collect(struct inquiry *inquiry, struct ct_traces *traces)
{
    const struct node *node = inquiry->node;
    uint32_t before = traces->all.ranks.count;

    if (ct_workers_running(node->workers))
        for (uint32_t i = 0; i < node->job->slots; i++)
            add_rank(inquiry, i, ct_ticks_now(), traces);
    if (traces->all.ranks.count == before && inquiry->own_generation == inquiry->generation)
        (void)ct_traces_add_frame(traces, inquiry->own.data, inquiry->own.size);
}

/* Look, and keep what was seen. */
static void snapshot(struct inquiry *inquiry)
{
    struct ct_traces traces;

    if (ct_traces_init(&traces, inquiry->generation, inquiry->node->job->slots) != 0)
        return;
    inquiry_collect(inquiry, &traces);
    ct_buf_clear(&inquiry->own);
    if (traces.all.ranks.count > 0 && ct_traces_print_frame(&traces, &inquiry->own) == 0)
        inquiry->own_generation = inquiry->generation;
    ct_traces_deinit(&traces);
}

/* ---- the verdict ------------------------------------------------------------------------------*/

static bool is_here(const struct node *node, uint32_t rank)
{
    uint32_t first = node->round->own->first_rank;

    return rank >= first && rank < first + node->job->slots;
}

void inquiry_reported(struct inquiry *inquiry, uint32_t rank)
{
    inquiry->reported = rank;
}

/* People have read it already, with fewer words? */
static bool is_echo(const struct inquiry *inquiry, const struct inquiry_answer *answer)
{
    return !inquiry->node->log.json && inquiry->reported == (int64_t)answer->rank &&
           (answer->kind == CT_VERDICT_MISSING || answer->kind == CT_VERDICT_STUCK ||
            answer->kind == CT_VERDICT_DEAD);
}

/* The round has its verdict; printed where it matters. */
static void set_verdict(struct inquiry *inquiry, const struct inquiry_answer *answer, bool print)
{
    if (answer->kind == CT_VERDICT_NONE || inquiry->answer.kind != CT_VERDICT_NONE)
        return;
    ct_buf_clear(&inquiry->verdict);
    (void)ct_buf_puts(&inquiry->verdict, answer->text);
    inquiry->answer =
        (struct inquiry_answer){answer->kind, answer->rank, ct_buf_str(&inquiry->verdict)};
    if (!print)
        return;
    ct_log_event(&inquiry->node->log, is_echo(inquiry, answer) ? CT_LOG_DEBUG : CT_LOG_WARN,
                 "verdict", "%s", answer->text);
    recorders_keep(inquiry->node);
}

/* This question is answered: who asked is told, and the next one may come. */
static void finish(struct inquiry *inquiry, const struct inquiry_answer *answer)
{
    struct asker askers[ASKERS];
    int count = inquiry->asker_count;
    bool mine =
        count > 0 || inquiry->node->round->self == 0 || is_here(inquiry->node, answer->rank);

    memcpy(askers, inquiry->askers, sizeof askers);
    inquiry->asker_count = 0;
    inquiry->collects = false;
    (void)uv_timer_stop(&inquiry->limit);
    ct_traces_deinit(&inquiry->traces);
    set_verdict(inquiry, answer, mine);
    for (int i = 0; i < count; i++)
        askers[i].done(askers[i].context, answer);
}

static void judge(struct inquiry *inquiry)
{
    struct inquiry_answer answer = {.kind = CT_VERDICT_NONE, .text = ""};
    struct ct_verdict verdict;
    struct ct_buf text, value;

    ct_buf_init(&text, TEXT_BYTES);
    ct_buf_init(&value, 0);
    if (ct_verdict_find(&inquiry->traces.all, &verdict)) {
        ct_verdict_print(&verdict, &text);
        answer = (struct inquiry_answer){verdict.kind, verdict.culprit->rank, ct_buf_str(&text)};
    }
    (void)ct_buf_printf(&value, "%d %u %s", (int)answer.kind, answer.rank, answer.text);
    if (inquiry->collects)
        set_key(inquiry, "verdict", UINT32_MAX, value.data, value.size);
    finish(inquiry, &answer);
    ct_buf_deinit(&text);
    ct_buf_deinit(&value);
}

/* What another agent found. */
static void receive_verdict(struct inquiry *inquiry, const struct ct_msg_store_reply *reply)
{
    char text[TEXT_BYTES + 64];
    unsigned rank;
    int kind, at = 0;

    if (reply->code != 0 || reply->value.size >= sizeof text)
        return;
    memcpy(text, reply->value.data, reply->value.size);
    text[reply->value.size] = '\0';
    if (sscanf(text, "%d %u %n", &kind, &rank, &at) != 2 || kind < 0 || kind > CT_VERDICT_DEAD)
        return;
    finish(inquiry, &(struct inquiry_answer){(enum ct_verdict_kind)kind, rank, text + at});
}

static void on_limit(uv_timer_t *timer)
{
    struct inquiry *inquiry = timer->data;

    if (inquiry->traces.all.ranks.count == 0)
        inquiry_collect(inquiry, &inquiry->traces);
    judge(inquiry); /* with what has come */
}

/* ---- questions --------------------------------------------------------------------------------*/

static void await_question(struct inquiry *inquiry)
{
    if (++inquiry->number <= QUESTIONS)
        await_key(inquiry, FOR_QUESTION, "asked", UINT32_MAX, 0);
}

void inquiry_begin(struct inquiry *inquiry)
{
    const struct ct_round *round = inquiry->node->round;

    inquiry->generation = round->generation;
    inquiry->number = 0;
    inquiry->reported = -1;
    inquiry->answer = (struct inquiry_answer){.kind = CT_VERDICT_NONE, .text = ""};
    if (round->node_count > 1)
        await_question(inquiry);
}

/* Somebody asks: say what this node sees, and hear what comes of it. */
static void answer_question(struct inquiry *inquiry)
{
    snapshot(inquiry);
    if (inquiry->own_generation == inquiry->generation)
        set_key(inquiry, "node", inquiry->node->round->self, inquiry->own.data, inquiry->own.size);
    await_key(inquiry, FOR_VERDICT, "verdict", UINT32_MAX, VERDICT_MS);
}

static void collect(struct inquiry *inquiry)
{
    const struct ct_round *round = inquiry->node->round;

    inquiry->collects = true;
    inquiry->awaited = round->node_count;
    for (uint32_t i = 0; i < round->node_count; i++)
        await_key(inquiry, FOR_NODE, "node", i, NODE_MS);
}

static void receive_node(struct inquiry *inquiry, const struct ct_msg_store_reply *reply)
{
    if (!inquiry->collects)
        return;
    if (reply->code == 0)
        (void)ct_traces_add_frame(&inquiry->traces, reply->value.data, reply->value.size);
    if (--inquiry->awaited == 0)
        judge(inquiry);
}

void inquiry_reply(struct inquiry *inquiry, uint64_t number, const struct ct_msg_store_reply *reply)
{
    const struct node *node = inquiry->node;

    if (agent_core_is_ending(&node->core) || node->round == NULL ||
        node->round->generation != inquiry->generation)
        return;
    if ((number >> 32 & 0xffffff) != inquiry->number)
        return; /* of a question that is answered */
    switch (number >> 56) {
    case FOR_QUESTION:
        if (reply->code == 0)
            answer_question(inquiry);
        break;
    case FOR_CLAIM:
        if (reply->code == 0 && reply->number == 1)
            collect(inquiry);
        break;
    case FOR_NODE:
        receive_node(inquiry, reply);
        break;
    case FOR_VERDICT:
        receive_verdict(inquiry, reply);
        await_question(inquiry);
        break;
    default:
        break;
    }
}

static void ask(struct inquiry *inquiry)
{
    char key[64];

    snapshot(inquiry); /* its workers may be gone when the question comes back */
    key_of(inquiry, key, "asked", UINT32_MAX);
    request(inquiry, FOR_CLAIM, 0,
            &(struct ct_message){
                .type = CT_MSG_STORE_ADD,
                .store_add = {.generation = inquiry->generation, .key = key, .delta = 1}});
}

void inquiry_start(struct inquiry *inquiry, uint64_t limit_ms,
                   void (*done)(void *context, const struct inquiry_answer *answer), void *context)
{
    const struct ct_round *round = inquiry->node->round;
    static const struct inquiry_answer none = {.kind = CT_VERDICT_NONE, .text = ""};
    bool is_open = inquiry->asker_count > 0;

    if (inquiry->generation == round->generation && inquiry->answer.kind != CT_VERDICT_NONE) {
        done(context, &inquiry->answer);
        return;
    }
    if (inquiry->asker_count == ASKERS || inquiry->generation != round->generation) {
        done(context, &none);
        return;
    }
    if (!is_open && ct_traces_init(&inquiry->traces, round->generation, round->world) != 0) {
        done(context, &none);
        return;
    }
    inquiry->askers[inquiry->asker_count++] = (struct asker){done, context};
    if (is_open)
        return;
    if (round->node_count > 1 && inquiry->number <= QUESTIONS && inquiry->node->agent != NULL) {
        (void)uv_timer_start(&inquiry->limit, on_limit, limit_ms, 0);
        ask(inquiry);
        return;
    }
    inquiry_collect(inquiry, &inquiry->traces);
    judge(inquiry);
}

/* ---- failures ---------------------------------------------------------------------------------*/

bool inquiry_due(const struct inquiry *inquiry, const struct ct_wire_failure *failure)
{
    struct ct_worker_trace worker;
    struct ct_record_view view;

    if (failure->code == CT_EHUNG ||
        !ct_workers_trace(inquiry->node->workers, (uint32_t)failure->local_rank, &worker))
        return false;
    ct_worker_record_read(worker.record, &view);
    for (uint32_t i = 0; i < view.group_count; i++)
        if (view.groups[i].failure == CT_ETIMEOUT || view.groups[i].failure == CT_EMISMATCH ||
            view.groups[i].failure == CT_ECLOSED)
            return true;
    return false;
}

void inquiry_dead(struct inquiry *inquiry, uint32_t rank)
{
    struct ct_traces traces;
    struct ct_verdict verdict;
    struct ct_buf text;

    if (inquiry->answer.kind != CT_VERDICT_NONE ||
        ct_traces_init(&traces, inquiry->generation, inquiry->node->job->slots) != 0)
        return;
    inquiry_collect(inquiry, &traces);
    ct_buf_init(&text, TEXT_BYTES);
    if (ct_verdict_dead(&traces.all, rank, &verdict)) {
        ct_verdict_print(&verdict, &text);
        set_verdict(inquiry, &(struct inquiry_answer){verdict.kind, rank, ct_buf_str(&text)}, true);
    }
    ct_buf_deinit(&text);
    ct_traces_deinit(&traces);
}

/* ---- life -------------------------------------------------------------------------------------*/

struct inquiry *inquiry_new(struct node *node)
{
    struct inquiry *inquiry = calloc(1, sizeof *inquiry);

    if (inquiry == NULL)
        return NULL;
    inquiry->node = node;
    ct_buf_init(&inquiry->own, 0);
    ct_buf_init(&inquiry->verdict, 0);
    (void)uv_timer_init(&node->loop, &inquiry->limit);
    inquiry->limit.data = inquiry;
    return inquiry;
}

void inquiry_close(struct inquiry *inquiry)
{
    if (inquiry != NULL)
        uv_close((uv_handle_t *)&inquiry->limit, NULL);
}

void inquiry_free(struct inquiry *inquiry)
{
    if (inquiry == NULL)
        return;
    ct_traces_deinit(&inquiry->traces);
    ct_buf_deinit(&inquiry->own);
    ct_buf_deinit(&inquiry->verdict);
    free(inquiry);
}
