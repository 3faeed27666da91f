/* A small HTTP/1.1 server for metrics and status: GET, and POST where it is allowed, one answer a
 * connection; on loopback or AF_UNIX, and beyond with an identity: TLS and a token (web_tls.h), on
 * loopback as well then.
 *
 *   GET /metrics HTTP/1.1        -> handler(request) -> status, content type, body -> close
 *   GET /events HTTP/1.1         -> handler(request) -> a stream -> ct_http_stream_send ...
 *
 * Bounds: 8 KiB of request with its body, 5 s for it, 32 connections, 8 MiB of answer, 1 MiB that
 * a reader of a stream is behind. Above them a client gets 400, 405, 408, 411, 413, 431 or 503; an
 * answer above its limit is 500, one not made in time 504; a slow stream ends. Of connections
 * with TLS, whose beginning costs a signature, 50 a second are taken; the others are closed. When
 * all places are taken, one of whoever has most of them is closed for a newcomer, or one that has
 * asked for nothing (web_places.h). Four connections are accepted per turn of the loop, so that a
 * crowd here keeps nothing else on it waiting.
 *
 * Without a token a request must name the server by an address or as "localhost" (421 otherwise): a
 * page of another site whose name was made to point here reads nothing. Who lacks a token gets 401;
 * the owner may know others than the identity's, whose holders see less. Answers forbid scripts and
 * styles of others. */
#ifndef CT_NET_HTTP_UV_H
#define CT_NET_HTTP_UV_H

#include "base/bytes.h"
#include "base/error.h"
#include "net/endpoint.h"
#include "net/http_request.h"
#include "net/web_tls.h"

#include <stdbool.h>
#include <uv.h>

struct ct_http_server;

struct ct_http_answer {
    int status; /* 200 unless the handler says otherwise */
    const char
        *content_type;  /* static text; "text/plain; charset=utf-8" unless it says otherwise */
    struct ct_buf body; /* empty, limit 8 MiB: the handler appends */
    bool stream;        /* the answer goes on with what ct_http_stream_send sends */
    bool later;         /* the rest of this is nothing yet: ct_http_answer_later brings it */
};

/* Who asks. */
struct ct_http_visitor {
    const char *token; /* terminated; "": none */
    size_t size;
    int64_t uid;     /* of one on this machine; -1: not known */
    bool is_secured; /* by TLS */
};

/* Answer one request. Called on the loop's thread; must not block. */
typedef void (*ct_http_handler)(void *user, const struct ct_http_request *request,
                                struct ct_http_answer *answer);

/* Zero in a number means its default. */
struct ct_http_options {
    ct_http_handler handler;
    void *user;
    uint32_t request_ms;  /* for a request, and again for its answer; default 5000 */
    uint32_t connections; /* at once; default 32 */
    bool may_post;        /* a request may have a body */
    void (*on_refused)(void *user, const char *peer); /* who lacks the token; may be NULL */

    /* May he read who has not the identity's token? `ret_is_reader`: what `ret_reader` allows
     * alone. NULL: with TLS nobody, in clear everybody. */
    bool (*admit)(void *user, const struct ct_http_visitor *visitor, bool *ret_is_reader,
                  struct ct_grant *ret_reader);
    struct ct_web_identity *identity; /* NULL: loopback and AF_UNIX only. Owned, also on failure */
};

/* Listen and serve. Errors as ct_listener_start. */
int ct_http_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                  const struct ct_http_options *options, struct ct_http_server **ret_server,
                  struct ct_error *err);

/* Return an empty answer of this status. */
struct ct_http_answer ct_http_answer_new(int status);

/* Answer a request whose answer was to come later; its body is taken over. Too late, or gone: it is
 * dropped. */
void ct_http_answer_later(struct ct_http_server *server, uint64_t number,
                          struct ct_http_answer *answer);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_http_endpoint(const struct ct_http_server *server);

/* Return how many streams are open. */
size_t ct_http_streams(const struct ct_http_server *server);

/* Return whose streams are open, each once, by an index from 0: what its readers may see; NULL:
 * everything. `ret_is_there` is false behind the last one. */
const struct ct_grant *ct_http_reader(const struct ct_http_server *server, size_t index,
                                      bool *ret_is_there);

/* Send to all open streams of a reader; copies. */
void ct_http_stream_send(struct ct_http_server *server, const struct ct_grant *reader,
                         const char *data, size_t size);

/* Close all streams: their readers may not be the same any more. */
void ct_http_end_streams(struct ct_http_server *server);

/* Close the listener and every connection; frees itself when the loop has run. */
void ct_http_stop(struct ct_http_server *server);

#endif
