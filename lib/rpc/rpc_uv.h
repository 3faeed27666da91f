/* Remote calls: a request, and its answer or its failure, over a connection of lib/net.
 *
 *     client                                         server
 *     ct_rpc_dial                                    ct_rpc_serve
 *     ct_rpc_start(method, body) --- CALL id --->    on_call(caller, call)
 *                                                      now or later:
 *     on_answer(0, body)         <-- ANSWER id ---   ct_rpc_answer(caller, id, body)
 *     on_answer(code, sentence)  <-- ANSWER id ---   ct_rpc_refuse(caller, id, code, sentence)
 *     on_answer(CT_ETIMEOUT)     the call's time is over: a late answer is dropped
 *     on_answer(CT_ECLOSED)      the server is gone: every open call ends this way
 *
 * Every call ends exactly once. Answers may come in any order. The service defines its methods and
 * the contents of a body.
 *
 * Bounds: a body has at most CT_RPC_BODY_MAX bytes; CT_RPC_OPEN_MAX calls are open at a time on a
 * connection, and a caller that makes more is disconnected; `queue_limit` bytes are queued for a
 * peer that does not read. So a server holds at most that for each of its callers.
 *
 * Both ends run on the thread of a libuv loop, and callbacks may call anything here. No function
 * blocks, logs or exits. */
#ifndef CT_RPC_RPC_UV_H
#define CT_RPC_RPC_UV_H

#include "keys/key.h"
#include "net/endpoint.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <uv.h>

enum {
    CT_RPC_OPEN_MAX = 64,
    CT_RPC_BODY_MAX = CT_WIRE_VALUE_BYTES,
};

/* Of both ends; zero means the default. */
struct ct_rpc_options {
    const struct ct_key *key; /* TLS 1.3 under it; NULL: in clear, on loopback alone. Copied */
    const char *name;         /* with a key: what it is the key of. Copied */
    size_t queue_limit;       /* bytes that may wait for the peer: default 16 MiB */
    uint32_t connect_ms;      /* client: until it gives up dialling; default 60000 */
    uint32_t callers_max;     /* server: connections at a time; default 1024 */
};

/* ---- client ---------------------------------------------------------------------------------- */

struct ct_rpc_client;

/* How a call ended: 0 and the answer's body, a view until the callback returns; or a negative code,
 * which `why` repeats with its sentence. */
struct ct_rpc_result {
    int code;
    struct ct_bytes body;
    const struct ct_error *why;
};
typedef void (*ct_rpc_on_answer)(void *context, const struct ct_rpc_result *result);

/* Dial `endpoint`, again and again until it answers or connect_ms are over. Calls may be made once
 * it is open. 0, CT_ENOMEM, CT_EUNSUPPORTED. */
int ct_rpc_dial(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                const struct ct_rpc_options *options, struct ct_rpc_client **ret_client,
                struct ct_error *err);

/* Return whether calls can be made; return why none can be made any more, code 0 while the client
 * still tries. */
bool ct_rpc_is_open(const struct ct_rpc_client *client);
const struct ct_error *ct_rpc_failure(const struct ct_rpc_client *client);

/* Call. The body is copied. `timeout_ms` from now (0: none). 0, and on_answer follows, never from
 * inside; CT_ECLOSED when the client is not open, CT_ELIMIT when CT_RPC_OPEN_MAX calls are open or
 * the body is too long, and no callback follows. */
struct ct_rpc_request {
    uint16_t method;
    struct ct_bytes body;
    uint64_t timeout_ms;
    ct_rpc_on_answer on_answer;
    void *context;
};
int ct_rpc_start(struct ct_rpc_client *client, const struct ct_rpc_request *request,
                 struct ct_error *err);

/* Hang up: open calls are dropped without a callback. Freed by a later iteration of the loop. NULL
 * is ignored. */
void ct_rpc_hang_up(struct ct_rpc_client *client);

/* ---- server ---------------------------------------------------------------------------------- */

struct ct_rpc_server;
struct ct_rpc_caller; /* one connection; valid until its on_gone has returned */

struct ct_rpc_service {
    /* Called for each call; `call` and its body are valid until it returns. It may answer at
     * once. */
    void (*on_call)(void *context, struct ct_rpc_caller *caller, const struct ct_msg_call *call);
    /* The caller has hung up or is lost. Not called for connections that ct_rpc_stop closes. */
    void (*on_gone)(void *context, struct ct_rpc_caller *caller, const struct ct_error *why);
    void *context;
};

/* Listen on `endpoint` (port 0: any). 0, or as ct_listener_start. */
int ct_rpc_serve(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                 const struct ct_rpc_options *options, const struct ct_rpc_service *service,
                 struct ct_rpc_server **ret_server, struct ct_error *err);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_rpc_server_endpoint(const struct ct_rpc_server *server);

/* Answer call `id`, which is open on this caller. 0; CT_ECLOSED when it has just been lost. */
int ct_rpc_answer(struct ct_rpc_caller *caller, uint64_t id, struct ct_bytes body);

/* Answer with a failure: `code` is negative, the sentence is truncated if too long. */
int ct_rpc_refuse(struct ct_rpc_caller *caller, uint64_t id, int code, const char *sentence);

/* Return the service's pointer of a caller. */
void *ct_rpc_caller_user(const struct ct_rpc_caller *caller);
void ct_rpc_caller_set_user(struct ct_rpc_caller *caller, void *user);

/* Close one caller's connection. on_gone follows, not from inside. */
void ct_rpc_drop(struct ct_rpc_caller *caller, int code, const char *sentence);

/* Listen no more, write out the answers that were given, and hang up on all. Frees itself once the
 * loop has run. NULL is ignored. */
void ct_rpc_stop(struct ct_rpc_server *server);

#endif
