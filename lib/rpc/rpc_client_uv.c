/* See rpc_uv.h: the caller's end.
 *
 *   ct_rpc_start -> a place in `open` -> CALL ...
 *   ANSWER, its deadline, or the connection's end -> the place is free -> on_answer
 *
 * The timer stands at the earliest deadline. */
#include "rpc/rpc_uv.h"

#include "base/assert.h"
#include "net/conn_uv.h"
#include "rpc/rpc_link_uv.h"

#include <inttypes.h>
#include <stdlib.h>

/* A call that is open. */
struct open_call {
    uint64_t id; /* 0: the place is free */
    uint64_t deadline_ms;
    ct_rpc_on_answer on_answer;
    void *context;
};

struct ct_rpc_client {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct ct_conn *conn; /* NULL once it is closed */
    bool open;
    bool leaving; /* its owner has hung up */
    bool timer_closed;
    struct ct_error failure;
    uint64_t next_id;
    int count;
    struct open_call calls[CT_RPC_OPEN_MAX];
};

/* ---- ending calls ---------------------------------------------------------------------------- */

static void end_call(struct ct_rpc_client *client, struct open_call *call,
                     const struct ct_rpc_result *result)
{
    ct_rpc_on_answer on_answer = call->on_answer;
    void *context = call->context;

    *call = (struct open_call){.id = 0};
    client->count--;
    on_answer(context, result);
}

static void fail_call(struct ct_rpc_client *client, struct open_call *call,
                      const struct ct_error *why)
{
    const struct ct_rpc_result result = {.code = why->code, .why = why};

    end_call(client, call, &result);
}

static struct open_call *find(struct ct_rpc_client *client, uint64_t id)
{
    for (int i = 0; i < CT_RPC_OPEN_MAX; i++)
        if (client->calls[i].id == id)
            return &client->calls[i];
    return NULL;
}

/* Callbacks may hang up: then nothing more is told. */
static void fail_all(struct ct_rpc_client *client)
{
    struct ct_error why = client->failure;

    for (int i = 0; i < CT_RPC_OPEN_MAX && !client->leaving; i++)
        if (client->calls[i].id != 0)
            fail_call(client, &client->calls[i], &why);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

static void arm(struct ct_rpc_client *client)
{
    uint64_t next = UINT64_MAX, now = uv_now(client->loop);

    for (int i = 0; i < CT_RPC_OPEN_MAX; i++)
        if (client->calls[i].id != 0)
            next = CT_MIN(next, client->calls[i].deadline_ms);
    if (client->leaving)
        return;
    if (next == UINT64_MAX)
        (void)uv_timer_stop(&client->timer);
    else
        (void)uv_timer_start(&client->timer, on_timer, next > now ? next - now : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_rpc_client *client = timer->data;
    struct ct_error why = {0};
    uint64_t now = uv_now(client->loop);

    for (int i = 0; i < CT_RPC_OPEN_MAX && !client->leaving; i++) {
        struct open_call *call = &client->calls[i];
        if (call->id == 0 || call->deadline_ms > now)
            continue;
        (void)ct_error_set(&why, CT_ETIMEOUT, "%s has not answered in time",
                           client->conn != NULL ? ct_conn_peer(client->conn) : "the server");
        fail_call(client, call, &why);
    }
    arm(client);
}

/* ---- the connection -------------------------------------------------------------------------- */

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_rpc_client *client = handle->data;

    client->timer_closed = true;
    if (client->conn == NULL)
        free(client);
}

static void on_open(struct ct_conn *conn)
{
    struct ct_rpc_client *client = ct_conn_user(conn);

    client->open = !client->leaving;
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct ct_rpc_client *client = ct_conn_user(conn);
    struct open_call *call = message->answer.id != 0 ? find(client, message->answer.id) : NULL;
    struct ct_error why = {0};

    if (call == NULL || client->leaving)
        return; /* its time was over */
    if (message->answer.code < 0) {
        (void)ct_error_set(&why, message->answer.code, "%s", message->answer.text);
        fail_call(client, call, &why);
    } else {
        const struct ct_rpc_result result = {.body = message->answer.body};
        end_call(client, call, &result);
    }
    arm(client);
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct ct_rpc_client *client = ct_conn_user(conn);

    client->conn = NULL;
    client->open = false;
    client->failure = *why;
    if (client->failure.code == 0)
        client->failure.code = CT_ECLOSED;
    fail_all(client);
    if (client->leaving && client->timer_closed)
        free(client);
    else
        arm(client);
}

int ct_rpc_dial(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                const struct ct_rpc_options *options, struct ct_rpc_client **ret_client,
                struct ct_error *err)
{
    static const struct ct_conn_callbacks callbacks = {
        .on_open = on_open, .on_message = on_message, .on_close = on_close};
    struct ct_conn_options conn = ct_rpc_conn_options(options, CT_FROM_CALLEE);
    struct ct_rpc_client *client = calloc(1, sizeof *client);

    if (client == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a connection to a service");
    client->loop = loop;
    int code = ct_conn_connect(loop, endpoint, &conn, &callbacks, client, &client->conn, err);
    if (code != 0) {
        free(client);
        return code;
    }
    (void)uv_timer_init(loop, &client->timer);
    client->timer.data = client;
    *ret_client = client;
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

bool ct_rpc_is_open(const struct ct_rpc_client *client)
{
    return client->open;
}

const struct ct_error *ct_rpc_failure(const struct ct_rpc_client *client)
{
    return &client->failure;
}

int ct_rpc_start(struct ct_rpc_client *client, const struct ct_rpc_request *request,
                 struct ct_error *err)
{
    const struct ct_message message = {
        .type = CT_MSG_CALL,
        .call = {.id = client->next_id + 1, .method = request->method, .body = request->body}};

    if (!client->open)
        return ct_error_set(err, CT_ECLOSED, "the connection to the service is not open");
    if (client->count == CT_RPC_OPEN_MAX)
        return ct_error_set(err, CT_ELIMIT, "%d calls wait for their answers already",
                            CT_RPC_OPEN_MAX);
    uv_update_time(client->loop); /* who calls may have computed for long */
    int code = ct_conn_send(client->conn, &message, err);
    if (code != 0)
        return code;
    struct open_call *call = find(client, 0);
    CT_ASSERT(call != NULL);
    *call = (struct open_call){
        .id = ++client->next_id,
        .deadline_ms =
            request->timeout_ms > 0 ? uv_now(client->loop) + request->timeout_ms : UINT64_MAX,
        .on_answer = request->on_answer,
        .context = request->context,
    };
    client->count++;
    arm(client);
    return 0;
}

void ct_rpc_hang_up(struct ct_rpc_client *client)
{
    if (client == NULL)
        return;
    client->leaving = true;
    client->open = false;
    if (client->conn != NULL)
        ct_conn_close(client->conn, 0, NULL);
    uv_close((uv_handle_t *)&client->timer, on_timer_closed);
}
