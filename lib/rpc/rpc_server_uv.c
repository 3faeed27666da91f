/* See rpc_uv.h: the service's end.
 *
 *   connection -> caller -> CALL: its id is open -> on_call ... ct_rpc_answer: closed again
 *
 * A caller is freed when its connection is, after on_gone. */
#include "rpc/rpc_uv.h"

#include "base/assert.h"
#include "net/listen_uv.h"
#include "rpc/rpc_link_uv.h"

#include <inttypes.h>
#include <stdlib.h>

struct ct_rpc_caller {
    struct ct_rpc_server *server;
    struct ct_conn *conn;
    struct ct_rpc_caller *next, **from; /* among the server's */
    void *user;
    uint64_t open[CT_RPC_OPEN_MAX]; /* ids; 0: free */
};

struct ct_rpc_server {
    struct ct_rpc_service service;
    struct ct_listener *listener;
    struct ct_rpc_caller *callers;
    bool stopping;
};

/* ---- open calls ------------------------------------------------------------------------------ */

static uint64_t *find(struct ct_rpc_caller *caller, uint64_t id)
{
    for (int i = 0; i < CT_RPC_OPEN_MAX; i++)
        if (caller->open[i] == id)
            return &caller->open[i];
    return NULL;
}

static int send_answer(struct ct_rpc_caller *caller, const struct ct_msg_answer *answer)
{
    const struct ct_message message = {.type = CT_MSG_ANSWER, .answer = *answer};
    uint64_t *place = find(caller, answer->id);

    CT_ASSERT(answer->id != 0 && place != NULL);
    *place = 0;
    return ct_conn_send(caller->conn, &message, NULL);
}

int ct_rpc_answer(struct ct_rpc_caller *caller, uint64_t id, struct ct_bytes body)
{
    const struct ct_msg_answer answer = {.id = id, .body = body};

    return send_answer(caller, &answer);
}

int ct_rpc_refuse(struct ct_rpc_caller *caller, uint64_t id, int code, const char *sentence)
{
    struct ct_error cut = {0};

    CT_ASSERT(code < 0);
    (void)ct_error_set(&cut, code, "%.800s", sentence);
    const struct ct_msg_answer answer = {.id = id, .code = code, .text = cut.text};
    return send_answer(caller, &answer);
}

/* ---- callers --------------------------------------------------------------------------------- */

static void free_when_done(struct ct_rpc_server *server)
{
    if (server->stopping && server->callers == NULL)
        free(server);
}

static void on_open(struct ct_conn *conn)
{
    struct ct_rpc_server *server = ct_conn_user(conn);
    struct ct_rpc_caller *caller = calloc(1, sizeof *caller);

    if (caller == NULL) {
        ct_conn_set_user(conn, NULL);
        ct_conn_close(conn, CT_ENOMEM, "no memory for another caller");
        return;
    }
    *caller = (struct ct_rpc_caller){
        .server = server, .conn = conn, .next = server->callers, .from = &server->callers};
    if (server->callers != NULL)
        server->callers->from = &caller->next;
    server->callers = caller;
    ct_conn_set_user(conn, caller);
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct ct_rpc_caller *caller = ct_conn_user(conn);
    const struct ct_msg_call *call = &message->call;

    if (caller == NULL || caller->server->stopping)
        return;
    uint64_t *place = find(caller, 0);
    if (call->id == 0 || find(caller, call->id) != NULL) {
        ct_conn_close(conn, CT_EPROTOCOL, "a call has a number that is open already, or none");
        return;
    }
    if (place == NULL) {
        ct_conn_close(conn, CT_ELIMIT, "the caller has more calls open than it may have");
        return;
    }
    *place = call->id;
    caller->server->service.on_call(caller->server->service.context, caller, call);
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct ct_rpc_caller *caller = ct_conn_user(conn);

    if (caller == NULL)
        return;
    struct ct_rpc_server *server = caller->server;
    if (!server->stopping)
        server->service.on_gone(server->service.context, caller, why);
    *caller->from = caller->next;
    if (caller->next != NULL)
        caller->next->from = caller->from;
    free(caller);
    free_when_done(server);
}

void *ct_rpc_caller_user(const struct ct_rpc_caller *caller)
{
    return caller->user;
}

void ct_rpc_caller_set_user(struct ct_rpc_caller *caller, void *user)
{
    caller->user = user;
}

void ct_rpc_drop(struct ct_rpc_caller *caller, int code, const char *sentence)
{
    ct_conn_close(caller->conn, code, sentence);
}

/* ---- the server ------------------------------------------------------------------------------ */

int ct_rpc_serve(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                 const struct ct_rpc_options *options, const struct ct_rpc_service *service,
                 struct ct_rpc_server **ret_server, struct ct_error *err)
{
    static const struct ct_conn_callbacks callbacks = {
        .on_open = on_open, .on_message = on_message, .on_close = on_close};
    const struct ct_listener_options listener = {
        .conn = ct_rpc_conn_options(options, CT_FROM_CALLER),
        .max_connections = options->callers_max > 0 ? options->callers_max : CT_RPC_CALLERS,
    };
    struct ct_rpc_server *server = calloc(1, sizeof *server);

    if (server == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a service");
    server->service = *service;
    int code =
        ct_listener_start(loop, endpoint, &listener, &callbacks, server, &server->listener, err);
    if (code != 0) {
        free(server);
        return code;
    }
    *ret_server = server;
    return 0;
}

const struct ct_endpoint *ct_rpc_server_endpoint(const struct ct_rpc_server *server)
{
    return ct_listener_endpoint(server->listener);
}

void ct_rpc_stop(struct ct_rpc_server *server)
{
    if (server == NULL)
        return;
    server->stopping = true;
    ct_listener_stop(server->listener);
    for (struct ct_rpc_caller *caller = server->callers; caller != NULL; caller = caller->next)
        ct_conn_close(caller->conn, 0, NULL);
    free_when_done(server);
}
