/* A worker whose clients use the store of its round all the time, and record what they asked and
 * were answered (tests/lib/history): a program that ctrun starts, one a slot.
 *
 *      client 0      steps: add to step/N; the rank that comes last sets done/N, all wait for it
 *      clients 1..   set, get, add, compare and set, wait, delete, by chance, of a few keys
 *      rank 0        publishes each fifth step; every rank sees, with each round, what has counted
 *
 * It speaks the worker link itself (wire.def), so that many requests are open at once, and lives on
 * when a round ends. The state of a step is its number: there is nothing to be computed or copied.
 * The files history.PID and metrics.jsonl are made in $STEPS_FOLDER, or where it runs. */
#include "base/arena.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/number/rng.h"
#include "base/str.h"
#include "history/history.h"
#include "wire/control_page.h"
#include "wire/link.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CLIENTS = 5,
    KEYS = 6,
    THINK_US = 8000, /* the most between an answer and the next request */
    STEP_US = 10000,
    PUBLISH_EVERY = 5,
    WAIT_MS = 20,
    TURN_MS = 2,
    SEND_MS = 5000,
    ARENA_BYTES = 4 << 20,
};

struct client {
    bool busy;
    uint64_t request; /* on the link */
    uint64_t number;  /* in the history */
    uint64_t next_ns; /* not before */
    struct history_op op;
    int64_t known[KEYS]; /* what it saw last */
};

enum step_stage { STEP_ADD, STEP_SET, STEP_WAIT, STEP_CLEAN_ADD, STEP_CLEAN_SET };

struct worker {
    struct ct_link link;
    const struct ct_control_page *page;
    struct history_file file;
    struct ct_rng rng;
    int metrics;
    uint64_t requests;
    struct client clients[CLIENTS];
    uint64_t generation; /* 0: in no round */
    uint32_t rank, world;
    uint64_t lineage, step; /* the state */
    enum step_stage stage;
    bool publishing;
    uint64_t publication, published_step; /* its number in the history; 0: none yet */
    uint64_t left_ns;                     /* when it left its last round, 0: this is the first */
    bool stopped;
};

static uint64_t now_ns(void)
{
    return ct_clock_mono_ns(&ct_clock_system);
}

_Noreturn static void fail(const char *what, int code)
{
    (void)fprintf(stderr, "traffic: %s: %s\n", what, ct_strerror(code));
    exit(1);
}

static void send_message(struct worker *worker, const struct ct_message *message)
{
    int code = ct_link_send(&worker->link, message, SEND_MS, NULL);

    if (code != 0)
        fail("the agent does not read", code);
}

/* ---- requests ------------------------------------------------------------------------------- */

struct words {
    char a[24], b[24];
};

static struct ct_bytes bytes_of(char text[24], int64_t number)
{
    int size = snprintf(text, 24, "%" PRId64, number);

    return (struct ct_bytes){(const unsigned char *)text, (size_t)size};
}

static struct ct_message message_of(const struct history_op *op, uint64_t request,
                                    struct words *words)
{
    uint64_t g = op->generation;
    struct ct_bytes a = bytes_of(words->a, op->a), b = bytes_of(words->b, op->b);

    switch (op->kind) {
    case HISTORY_SET:
        return (struct ct_message){.type = CT_MSG_STORE_SET, .store_set = {request, g, op->key, a}};
    case HISTORY_GET:
        return (struct ct_message){.type = CT_MSG_STORE_GET, .store_get = {request, g, op->key}};
    case HISTORY_ADD:
        return (struct ct_message){.type = CT_MSG_STORE_ADD,
                                   .store_add = {request, g, op->key, op->a}};
    case HISTORY_CAS:
        return (struct ct_message){
            .type = CT_MSG_STORE_CAS,
            .store_cas = {.request = request,
                          .generation = g,
                          .key = op->key,
                          .absent = op->a == HISTORY_ABSENT,
                          .expected = op->a == HISTORY_ABSENT ? (struct ct_bytes){0} : a,
                          .desired = b}};
    case HISTORY_WAIT:
        return (struct ct_message){.type = CT_MSG_STORE_WAIT,
                                   .store_wait = {request, g, op->key, (uint64_t)op->a}};
    default:
        return (struct ct_message){.type = CT_MSG_STORE_DELETE,
                                   .store_delete = {request, g, op->key}};
    }
}

static void ask(struct worker *worker, struct client *client)
{
    struct words words;

    client->busy = true;
    client->request = ++worker->requests;
    client->op.generation = worker->generation;
    client->op.begin_ns = now_ns();
    client->number = history_invoke(&worker->file, &client->op);
    const struct ct_message message = message_of(&client->op, client->request, &words);
    send_message(worker, &message);
}

static struct history_op op_of(enum history_kind kind, const char *format, uint64_t number)
{
    struct history_op op = {.kind = kind, .end_ns = HISTORY_OPEN};

    (void)snprintf(op.key, sizeof op.key, "%s%" PRIu64, format, number);
    return op;
}

/* What a client of chance asks next. Values occur once. */
static void ask_anything(struct worker *worker, struct client *client)
{
    static const enum history_kind kinds[] = {
        HISTORY_SET, HISTORY_SET, HISTORY_SET, HISTORY_GET, HISTORY_GET,  HISTORY_GET,
        HISTORY_ADD, HISTORY_ADD, HISTORY_CAS, HISTORY_CAS, HISTORY_WAIT, HISTORY_DELETE,
    };
    uint64_t key = ct_rng_below(&worker->rng, KEYS);

    client->op = op_of(kinds[ct_rng_below(&worker->rng, CT_COUNT(kinds))], "k", key);
    client->op.a = (int64_t)(ct_rng_next(&worker->rng) >> 16);
    client->op.b = (int64_t)(ct_rng_next(&worker->rng) >> 16);
    if (client->op.kind == HISTORY_ADD)
        client->op.a = (int64_t)(1 + ct_rng_below(&worker->rng, 9));
    if (client->op.kind == HISTORY_CAS)
        client->op.a = client->known[key];
    if (client->op.kind == HISTORY_WAIT)
        client->op.a = WAIT_MS;
    ask(worker, client);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void publish(struct worker *worker)
{
    struct history_op op = {.kind = HISTORY_PUBLISH,
                            .key = "-",
                            .generation = worker->generation,
                            .a = (int64_t)worker->step,
                            .begin_ns = now_ns()};
    const struct ct_message message = {.type = CT_MSG_PUBLISH,
                                       .publish = {.generation = worker->generation,
                                                   .step = worker->step,
                                                   .digest = worker->step}};

    worker->publishing = true;
    worker->published_step = worker->step;
    worker->publication = history_invoke(&worker->file, &op);
    send_message(worker, &message);
}

/* All ranks have the step. */
static void end_step(struct worker *worker)
{
    char line[128];

    if (worker->rank != 0)
        return;
    int size =
        snprintf(line, sizeof line, "{\"kind\":\"train\",\"step\":%" PRIu64 ",\"time\":%.6f}\n",
                 worker->step, (double)ct_clock_wall_ns(&ct_clock_system) * 1e-9);
    if (write(worker->metrics, line, (size_t)size) != size)
        fail("metrics.jsonl", CT_EIO);
    if (worker->step % PUBLISH_EVERY == 0 && !worker->publishing)
        publish(worker);
}

static void ask_step(struct worker *worker, struct client *client)
{
    uint64_t old = worker->step - 1; /* nobody waits for its keys any more */

    switch (worker->stage) {
    case STEP_ADD:
        worker->step++;
        client->op = op_of(HISTORY_ADD, "step/", worker->step);
        client->op.a = 1;
        break;
    case STEP_SET:
        client->op = op_of(HISTORY_SET, "done/", worker->step);
        client->op.a = 1;
        break;
    case STEP_WAIT:
        client->op = op_of(HISTORY_WAIT, "done/", worker->step);
        break;
    case STEP_CLEAN_ADD:
        client->op = op_of(HISTORY_DELETE, "step/", old);
        break;
    case STEP_CLEAN_SET:
        client->op = op_of(HISTORY_DELETE, "done/", old);
        break;
    }
    ask(worker, client);
}

/* The step's client was answered: what it asks next. */
static void follow_step(struct worker *worker, struct client *client, int code, int64_t value)
{
    switch (worker->stage) {
    case STEP_ADD:
        worker->stage = code == 0 && value == worker->world ? STEP_SET : STEP_WAIT;
        break;
    case STEP_SET:
        worker->stage = STEP_CLEAN_ADD;
        break;
    case STEP_CLEAN_ADD:
        worker->stage = STEP_CLEAN_SET;
        break;
    case STEP_CLEAN_SET:
        worker->stage = STEP_WAIT;
        break;
    case STEP_WAIT:
        if (code != 0)
            break; /* the round will end */
        end_step(worker);
        worker->stage = STEP_ADD;
        client->next_ns = now_ns() + STEP_US * 1000;
        break;
    }
}

static void ask_all(struct worker *worker)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &worker->clients[i];
        if (client->busy || now_ns() < client->next_ns)
            continue;
        if (i == 0)
            ask_step(worker, client);
        else
            ask_anything(worker, client);
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

static int64_t value_of(const struct history_op *op, const struct ct_msg_store_reply *reply)
{
    char text[24] = "";
    int64_t value = HISTORY_ABSENT;

    if (op->kind == HISTORY_ADD)
        return reply->number;
    if (reply->value.size >= sizeof text)
        fail("a value that nobody set", CT_EPROTOCOL);
    if (reply->value.size > 0)
        memcpy(text, reply->value.data, reply->value.size);
    if (text[0] != '\0' && ct_parse_i64(text, &value) != 0)
        fail("a value that nobody set", CT_EPROTOCOL);
    return value;
}

/* What a client knows of a key of chance when its request has taken effect. */
static void note_known(struct client *client, int64_t value)
{
    const struct history_op *op = &client->op;
    bool is_told = op->kind != HISTORY_SET && op->kind != HISTORY_DELETE;

    if (op->key[0] != 'k')
        return;
    client->known[op->key[1] - '0'] =
        is_told ? value : (op->kind == HISTORY_SET ? op->a : HISTORY_ABSENT);
}

static void take_reply(struct worker *worker, const struct ct_msg_store_reply *reply)
{
    struct client *client = worker->clients;

    while (client < worker->clients + CLIENTS &&
           (!client->busy || client->request != reply->request))
        client++;
    if (client == worker->clients + CLIENTS)
        return; /* of a round that it has left */
    int64_t value = reply->code == 0 ? value_of(&client->op, reply) : HISTORY_ABSENT;
    uint64_t end_ns = now_ns();
    history_answer(&worker->file, client->number, end_ns, reply->code, value);
    client->busy = false;
    client->next_ns = end_ns + ct_rng_below(&worker->rng, THINK_US) * 1000;
    note_known(client, value);
    if (client == &worker->clients[0]) {
        client->next_ns = reply->code == 0 ? end_ns : client->next_ns;
        follow_step(worker, client, reply->code, value);
    }
}

static void take_published(struct worker *worker, const struct ct_msg_published *answer)
{
    if (!worker->publishing || answer->generation != worker->generation ||
        answer->step != worker->published_step)
        return;
    worker->publishing = false;
    history_answer(&worker->file, worker->publication, now_ns(), answer->code, 0);
}

/* What has counted was looked up after all had left the round before. */
static void see(struct worker *worker, const struct ct_msg_assign *assign)
{
    const struct history_op op = {.kind = HISTORY_SEE,
                                  .key = "-",
                                  .generation = assign->generation,
                                  .a = (int64_t)assign->published_generation,
                                  .begin_ns = worker->left_ns};

    uint64_t number = history_invoke(&worker->file, &op);
    history_answer(&worker->file, number, now_ns(), 0, (int64_t)assign->published_step);
}

static void take_assignment(struct worker *worker, const struct ct_msg_assign *assign)
{
    const struct ct_message survive = {.type = CT_MSG_READY, .ready = {.survivable = 1}};
    const struct ct_message recovered = {.type = CT_MSG_RECOVERED,
                                         .recovered = {.generation = assign->generation}};

    if (assign->generation <= worker->lineage)
        return;
    see(worker, assign);
    if (worker->left_ns == 0)
        send_message(worker, &survive);
    worker->generation = worker->lineage = assign->generation;
    worker->rank = assign->rank;
    worker->world = assign->world;
    worker->step = assign->base_rank >= 0 ? assign->base_step : assign->published_step;
    worker->stage = STEP_ADD;
    for (int i = 0; i < CLIENTS; i++)
        for (int k = 0; k < KEYS; k++)
            worker->clients[i].known[k] = HISTORY_ABSENT;
    send_message(worker, &recovered);
}

static void take_message(struct worker *worker, const struct ct_message *message)
{
    switch (message->type) {
    case CT_MSG_STORE_REPLY:
        take_reply(worker, &message->store_reply);
        break;
    case CT_MSG_PUBLISHED:
        take_published(worker, &message->published);
        break;
    case CT_MSG_ASSIGN:
        take_assignment(worker, &message->assign);
        break;
    case CT_MSG_STOP:
        worker->stopped = true;
        break;
    default:
        break;
    }
}

/* ---- rounds --------------------------------------------------------------------------------- */

/* The round is over or a newer one waits: what is open stays open. */
static void leave(struct worker *worker)
{
    const struct ct_message ready = {.type = CT_MSG_READY,
                                     .ready = {.generation = worker->generation,
                                               .survivable = 1,
                                               .lineage = worker->lineage,
                                               .step = worker->step,
                                               .digest = worker->step}};

    for (int i = 0; i < CLIENTS; i++)
        worker->clients[i].busy = false;
    worker->publishing = false;
    worker->generation = 0;
    worker->left_ns = now_ns();
    send_message(worker, &ready);
}

static void run(struct worker *worker)
{
    struct ct_message message;
    struct ct_arena arena;

    while (!worker->stopped) {
        uint64_t generation = worker->generation;
        if (generation != 0 && (ct_control_page_revoked(worker->page, generation) ||
                                ct_control_page_boundary_due(worker->page, generation)))
            leave(worker);
        if (worker->generation != 0)
            ask_all(worker);
        ct_arena_init(&arena, ARENA_BYTES);
        int code = ct_link_receive(&worker->link, TURN_MS, &arena, &message, NULL);
        while (code == 0) {
            take_message(worker, &message);
            code = ct_link_receive(&worker->link, 0, &arena, &message, NULL);
        }
        ct_arena_deinit(&arena);
        if (code != CT_ETIMEOUT)
            fail("the agent is gone", code);
    }
}

static int descriptor(const char *name)
{
    const char *text = getenv(name);

    if (text == NULL)
        fail(name, CT_EUSAGE);
    return (int)strtol(text, NULL, 10);
}

int main(void)
{
    static struct worker worker;
    const char *folder = getenv("STEPS_FOLDER");
    char name[16], path[PATH_MAX];

    folder = folder != NULL ? folder : ".";
    (void)snprintf(name, sizeof name, "%d", (int)getpid());
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    worker.metrics = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int code = history_open_file(&worker.file, folder, name);
    if (worker.metrics < 0 || code != 0)
        fail(folder, CT_ECANTCREAT);
    ct_rng_init(&worker.rng, now_ns() ^ (uint64_t)getpid() << 32);
    ct_link_init(&worker.link, descriptor("CTRUN_CONTROL_FD"), CT_FROM_AGENT);
    code = ct_control_page_open(descriptor("CTRUN_PAGE_FD"), &worker.page, NULL);
    if (code != 0)
        fail("CTRUN_PAGE_FD", code);
    run(&worker);
    ct_link_deinit(&worker.link);
    ct_control_page_unmap(worker.page);
    history_close_file(&worker.file);
    (void)close(worker.metrics);
    return 0;
}
