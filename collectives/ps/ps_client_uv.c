/* See ps_client_uv.h.
 *
 * A flow is one method for a whole range: of each server's part, block by block, WINDOW calls are
 * under way. A call that is a single message is a flow of one block. */
#include "collectives/ps/ps_client_uv.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "collectives/job/job.h"
#include "collectives/ps/ps_address.h"
#include "collectives/ps/ps_update.h"
#include "rpc/rpc_uv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20, IN_FLIGHT = 4, TICK_MS = 10, SERVERS_MAX = 1024 };

struct server;

/* A call under way. */
struct under_way {
    struct server *server;
    bool used;
    size_t at, bytes; /* of the server's part */
};

struct server {
    struct ct_ps_client *client;
    int index;
    struct ct_ps_address address;
    struct ct_rpc_client *rpc;
    struct ct_ps_part part;
    struct ct_ps_holding holding;
    struct ct_bytes note;
    unsigned char note_data[CT_PS_NOTE_MAX];
    struct under_way calls[IN_FLIGHT];
    size_t next; /* of its part: the next block of the flow begins here */
    size_t end;  /* and the last one ends here */
    bool last;   /* it has been asked for */
};

/* What is being done. */
struct flow {
    enum ct_ps_method method;
    unsigned char *head; /* CT_PS_HEAD_BYTES; `at` and `bytes` are written for each block */
    size_t head_bytes;
    size_t at_word; /* where in the head `at` lies; `bytes` follows, if there is room */
    bool blocks;    /* the range in blocks; else one call */
    bool sized;     /* the head has `bytes` */
    bool some;      /* of the range from `begin` to `end` alone, with the servers that have it */
    size_t begin, end;
    const char *out; /* from `begin` on */
    char *in;
    struct ct_bytes tail; /* of a single call: what follows its head */
    struct ct_ps_pulled *pulled;
};

struct ct_ps_client {
    struct ct_ps_client_options options;
    uv_loop_t loop;
    uv_timer_t tick;
    struct server *servers;
    const struct flow *flow;
    unsigned char *body; /* of a call: head and block */
    int open;            /* calls under way */
    int code;
    struct ct_error why;
};

/* ---- the loop -------------------------------------------------------------------------------- */

static void fail(struct ct_ps_client *client, int code, const char *sentence)
{
    if (client->code != 0)
        return;
    client->code = code;
    (void)ct_error_set(&client->why, code, "%s", sentence);
}

static void on_tick(uv_timer_t *tick)
{
    struct ct_ps_client *client = tick->data;
    struct ct_error why = {0};
    int code = client->options.check(client->options.context, &why);

    if (code != 0)
        fail(client, code, why.text);
}

static int result(struct ct_ps_client *client, struct ct_error *err)
{
    if (client->code != 0 && err != NULL)
        *err = client->why;
    return client->code;
}

/* ---- flows ----------------------------------------------------------------------------------- */

static void send_call(struct server *server);

static void take(struct server *server, const struct under_way *call, struct ct_bytes body)
{
    struct ct_ps_client *client = server->client;
    const struct flow *flow = client->flow;
    struct ct_ps_pulled pulled;
    struct ct_bytes data = body;

    if (flow->method == CT_PS_HELLO) {
        int code = ct_ps_get(CT_PS_HEAD_holding, body, &server->holding, &data, &client->why);
        if (code != 0 || data.size > CT_PS_NOTE_MAX) {
            fail(client, CT_EPROTOCOL, "a parameter server holds what is no state");
            return;
        }
        memcpy(server->note_data, data.data, data.size);
        server->note = (struct ct_bytes){server->note_data, data.size};
    }
    if (flow->in == NULL)
        return;
    if (flow->pulled != NULL && ct_ps_get(CT_PS_HEAD_pulled, body, &pulled, &data, NULL) == 0 &&
        server->index == 0)
        *flow->pulled = pulled;
    if (data.size != call->bytes)
        fail(client, CT_EPROTOCOL, "a parameter server answers with a block of another size");
    else if (call->bytes > 0)
        memcpy(flow->in + server->part.at + call->at, data.data, data.size);
}

static void on_answer(void *context, const struct ct_rpc_result *answer)
{
    struct under_way *call = context;
    struct server *server = call->server;
    struct ct_ps_client *client = server->client;
    struct ct_error why = {0};

    call->used = false;
    client->open--;
    if (client->code != 0)
        return;
    if (answer->code != 0) {
        why = *answer->why;
        (void)ct_error_prefix(&why, "parameter server %d, %s", server->index,
                              ct_ps_method_name(client->flow->method));
        fail(client, answer->code, why.text);
        return;
    }
    take(server, call, answer->body);
    send_call(server);
}

static struct under_way *free_call(struct server *server)
{
    for (int i = 0; i < IN_FLIGHT; i++)
        if (!server->calls[i].used)
            return &server->calls[i];
    return NULL;
}

/* The body of a call for `bytes` from `at` on. */
static struct ct_bytes fill(struct server *server, size_t at, size_t bytes)
{
    struct ct_ps_client *client = server->client;
    const struct flow *flow = client->flow;
    const char *data = flow->out != NULL ? flow->out + (server->part.at + at - flow->begin) : NULL;
    size_t size = data != NULL ? bytes : 0;

    memcpy(client->body, flow->head, flow->head_bytes);
    if (flow->blocks)
        ct_put_le64(client->body + flow->at_word, at);
    if (flow->sized)
        ct_put_le64(client->body + flow->at_word + 8, bytes);
    if (flow->tail.size > 0)
        memcpy(client->body + flow->head_bytes, flow->tail.data, flow->tail.size);
    if (size > 0)
        memcpy(client->body + flow->head_bytes, data, size);
    return (struct ct_bytes){client->body, flow->head_bytes + flow->tail.size + size};
}

/* Ask a server for as much of the flow as may be under way. A part of no bytes is one call, so that
 * its server takes part. */
static void send_call(struct server *server)
{
    struct ct_ps_client *client = server->client;
    const struct flow *flow = client->flow;
    size_t end = server->end;
    struct under_way *call;
    struct ct_error why = {0};

    while (!server->last && client->code == 0 && (call = free_call(server)) != NULL) {
        size_t bytes = CT_MIN(end - server->next, client->options.block_bytes);
        const struct ct_rpc_request request = {.method = (uint16_t)flow->method,
                                               .body = fill(server, server->next, bytes),
                                               .timeout_ms = client->options.timeout_ms,
                                               .on_answer = on_answer,
                                               .context = call};
        *call = (struct under_way){server, true, server->next, bytes};
        int code = ct_rpc_start(server->rpc, &request, &why);
        if (code != 0) {
            call->used = false;
            const struct ct_error *gone = ct_rpc_failure(server->rpc);
            fail(client, code, gone->code != 0 ? gone->text : why.text);
            return;
        }
        client->open++;
        server->next += bytes;
        server->last = server->next == end;
    }
}

/* What the flow is to do with this server: false for nothing. */
static bool set_range(struct server *server, const struct flow *flow)
{
    const struct ct_ps_part *part = &server->part;

    server->next = 0;
    server->end = flow->blocks ? part->bytes : 0;
    server->last = false;
    if (!flow->some)
        return true;
    size_t begin = CT_MAX(flow->begin, part->at), end = CT_MIN(flow->end, part->at + part->bytes);
    if (begin >= end)
        return false;
    server->next = begin - part->at;
    server->end = end - part->at;
    return true;
}

/* Run `flow` with one server, or with all (-1). */
static int run(struct ct_ps_client *client, const struct flow *flow, int only, struct ct_error *err)
{
    client->flow = flow;
    for (int i = 0; i < client->options.servers && client->code == 0; i++) {
        struct server *server = &client->servers[i];
        if ((only < 0 || only == i) && set_range(server, flow))
            send_call(server);
    }
    while (client->code == 0 && client->open > 0)
        (void)uv_run(&client->loop, UV_RUN_ONCE);
    return result(client, err);
}

/* A head as bytes, and a flow of it. */
static struct flow flow_of(enum ct_ps_method method, enum ct_ps_head kind, const void *head,
                           unsigned char bytes[CT_PS_HEAD_BYTES])
{
    return (struct flow){
        .method = method, .head = bytes, .head_bytes = ct_ps_put(kind, head, bytes)};
}

/* ---- finding the servers --------------------------------------------------------------------- */

static int find(struct server *server, struct ct_error *err)
{
    struct ct_ps_client *client = server->client;
    const struct ct_kv *kv = &client->options.job->kv;
    unsigned char bytes[CT_PS_ADDRESS_BYTES];
    struct ct_kv_value value = {bytes, sizeof bytes};
    char key[CT_PS_ADDRESS_KEY];
    struct ct_rpc_options options = {.name = client->options.job->run_id};

    if (kv->wait == NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "parameter servers are workers of their own: start them by ctrun");
    int code = kv->wait(kv->context, ct_ps_address_key(server->index, key), &value,
                        client->options.timeout_ms);
    if (code != 0)
        return ct_error_set(err, code, "parameter server %d does not say where it is: %s",
                            server->index, ct_strerror(code));
    code = ct_ps_address_get(&server->address, bytes, value.size, err);
    if (code != 0)
        return code;
    options.key = server->address.encrypted ? &server->address.key : NULL;
    return ct_rpc_dial(&client->loop, &server->address.endpoint, &options, &server->rpc, err);
}

static int await_open(struct server *server, struct ct_error *err)
{
    struct ct_ps_client *client = server->client;

    while (client->code == 0 && !ct_rpc_is_open(server->rpc)) {
        const struct ct_error *failure = ct_rpc_failure(server->rpc);
        if (failure->code != 0)
            fail(client, failure->code, failure->text);
        else
            (void)uv_run(&client->loop, UV_RUN_ONCE);
    }
    return result(client, err);
}

static int send_hello(struct server *server, struct ct_error *err)
{
    const struct ct_ps_client_options *options = &server->client->options;
    const uint64_t *token = server->address.token;
    const struct ct_ps_hello hello = {
        .version = CT_PS_VERSION,
        .token0 = token[0],
        .token1 = token[1],
        .token2 = token[2],
        .token3 = token[3],
        .generation = options->job->assignment.generation,
        .worker = (uint64_t)options->worker,
        .workers = (uint64_t)options->workers,
        .hash = options->hash,
        .flat_bytes = options->flat_bytes,
    };
    unsigned char bytes[CT_PS_HEAD_BYTES];
    struct flow flow = flow_of(CT_PS_HELLO, CT_PS_HEAD_hello, &hello, bytes);

    return run(server->client, &flow, server->index, err);
}

static int find_servers(struct ct_ps_client *client, struct ct_error *err)
{
    int code = 0;

    (void)uv_timer_start(&client->tick, on_tick, TICK_MS, TICK_MS);
    for (int i = 0; i < client->options.servers && code == 0; i++) {
        struct server *server = &client->servers[i];
        server->client = client;
        server->index = i;
        server->part = ct_ps_part(client->options.flat_bytes, i, client->options.servers);
        code = find(server, err);
        if (code == 0)
            code = await_open(server, err);
        if (code == 0)
            code = send_hello(server, err);
    }
    return code;
}

int ct_ps_client_new(struct ct_ps_client **ret_client, const struct ct_ps_client_options *options,
                     struct ct_error *err)
{
    struct ct_ps_client *client = calloc(1, sizeof *client);

    CT_ASSERT(options->servers > 0 && options->servers <= SERVERS_MAX);
    if (client == NULL || uv_loop_init(&client->loop) != 0) {
        free(client);
        return ct_error_set(err, CT_ENOMEM, "no memory to talk to parameter servers");
    }
    client->options = *options;
    if (options->block_bytes == 0)
        client->options.block_bytes = BLOCK_BYTES;
    CT_ASSERT(client->options.block_bytes <= CT_PS_BLOCK_MAX);
    (void)uv_timer_init(&client->loop, &client->tick);
    client->tick.data = client;
    client->servers = calloc((size_t)options->servers, sizeof *client->servers);
    client->body = malloc(CT_PS_HEAD_BYTES + CT_PS_NOTE_MAX + client->options.block_bytes);
    int code = client->servers != NULL && client->body != NULL
                   ? find_servers(client, err)
                   : ct_error_set(err, CT_ENOMEM, "no memory to talk to parameter servers");
    if (code != 0) {
        ct_ps_client_free(client);
        return code;
    }
    *ret_client = client;
    return 0;
}

void ct_ps_client_free(struct ct_ps_client *client)
{
    if (client == NULL)
        return;
    for (int i = 0; i < client->options.servers && client->servers != NULL; i++) {
        ct_rpc_hang_up(client->servers[i].rpc);
        ct_net_key_wipe(&client->servers[i].address.key);
    }
    uv_close((uv_handle_t *)&client->tick, NULL);
    while (uv_run(&client->loop, UV_RUN_DEFAULT) != 0)
        ;
    CT_ASSERT(uv_loop_close(&client->loop) == 0);
    free(client->servers);
    free(client->body);
    free(client);
}

struct ct_ps_holding ct_ps_client_holding(const struct ct_ps_client *client, int server,
                                          struct ct_bytes *ret_note)
{
    CT_ASSERT(server >= 0 && server < client->options.servers);
    if (ret_note != NULL)
        *ret_note = client->servers[server].note;
    return client->servers[server].holding;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Of a head: where `member` lies on the wire, all fields having eight bytes. */
#define AT(head, member) offsetof(struct ct_ps_##head, member)

int ct_ps_client_store(struct ct_ps_client *client, int range, const void *data,
                       struct ct_error *err)
{
    const struct ct_ps_block block = {.range = (uint64_t)range};
    unsigned char bytes[CT_PS_HEAD_BYTES];
    struct flow flow = flow_of(CT_PS_STORE, CT_PS_HEAD_block, &block, bytes);

    flow.at_word = AT(block, at);
    flow.blocks = flow.sized = true;
    flow.out = data;
    return run(client, &flow, -1, err);
}

int ct_ps_client_fetch(struct ct_ps_client *client, int range, void *data, struct ct_error *err)
{
    const struct ct_ps_block block = {.range = (uint64_t)range};
    unsigned char bytes[CT_PS_HEAD_BYTES];
    struct flow flow = flow_of(CT_PS_FETCH, CT_PS_HEAD_block, &block, bytes);

    flow.at_word = AT(block, at);
    flow.blocks = flow.sized = true;
    flow.in = data;
    return run(client, &flow, -1, err);
}

int ct_ps_client_begin(struct ct_ps_client *client, const struct ct_ps_begin *begin,
                       struct ct_bytes note, struct ct_error *err)
{
    unsigned char bytes[CT_PS_HEAD_BYTES];
    struct flow flow = flow_of(CT_PS_BEGIN, CT_PS_HEAD_begin, begin, bytes);

    flow.tail = note;
    return run(client, &flow, -1, err);
}

int ct_ps_client_push(struct ct_ps_client *client, uint64_t step, size_t at, const void *gradient,
                      size_t bytes, struct ct_error *err)
{
    const struct ct_ps_push push = {.step = step};
    unsigned char head[CT_PS_HEAD_BYTES];
    struct flow flow = flow_of(CT_PS_PUSH, CT_PS_HEAD_push, &push, head);

    flow.at_word = AT(push, at);
    flow.blocks = flow.some = true;
    flow.begin = at;
    flow.end = at + bytes;
    flow.out = gradient;
    return run(client, &flow, -1, err);
}

int ct_ps_client_commit(struct ct_ps_client *client, const struct ct_ps_commit *commit,
                        struct ct_bytes note, struct ct_error *err)
{
    unsigned char bytes[CT_PS_HEAD_BYTES];
    struct flow flow = flow_of(CT_PS_COMMIT, CT_PS_HEAD_commit, commit, bytes);

    flow.tail = note;
    return run(client, &flow, -1, err);
}

int ct_ps_client_pull(struct ct_ps_client *client, uint64_t step, void *params,
                      struct ct_ps_pulled *ret_pulled, struct ct_error *err)
{
    const struct ct_ps_pull pull = {.step = step};
    unsigned char bytes[CT_PS_HEAD_BYTES];
    struct flow flow = flow_of(CT_PS_PULL, CT_PS_HEAD_pull, &pull, bytes);

    flow.at_word = AT(pull, at);
    flow.blocks = flow.sized = true;
    flow.in = params;
    flow.pulled = ret_pulled;
    return run(client, &flow, -1, err);
}

int ct_ps_client_bye(struct ct_ps_client *client, enum ct_ps_end reason, struct ct_error *err)
{
    const struct ct_ps_bye bye = {.reason = reason};
    unsigned char bytes[CT_PS_HEAD_BYTES];
    struct flow flow = flow_of(CT_PS_BYE, CT_PS_HEAD_bye, &bye, bytes);

    return run(client, &flow, -1, err);
}
