/* A small HTTP/1.1 server for metrics and status: GET only, one answer a connection, loopback or
 * AF_UNIX only (it knows no key).
 *
 *   GET /metrics HTTP/1.1        -> handler(path) -> status, content type, body -> close
 *
 * Bounds: 8 KiB of request, 5 s for it, 32 connections, 8 MiB of answer. A client above them
 * gets 400, 405, 408, 431 or 503; an answer above its limit becomes 500. */
#ifndef CT_NET_HTTP_UV_H
#define CT_NET_HTTP_UV_H

#include "base/bytes.h"
#include "base/error.h"
#include "net/endpoint.h"

#include <uv.h>

struct ct_http_server;

struct ct_http_answer {
    int status; /* 200 unless the handler says otherwise */
    const char
        *content_type;  /* static text; "text/plain; charset=utf-8" unless it says otherwise */
    struct ct_buf body; /* empty, limit 8 MiB: the handler appends */
};

/* Answer one request; `path` without the query. Called on the loop's thread; must not block. */
typedef void (*ct_http_handler)(void *user, const char *path, struct ct_http_answer *answer);

/* Zero in a number means its default. */
struct ct_http_options {
    ct_http_handler handler;
    void *user;
    uint32_t request_ms;  /* for a request, and again for its answer; default 5000 */
    uint32_t connections; /* at once; default 32 */
};

/* Listen and serve. Errors as ct_listener_start. */
int ct_http_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                  const struct ct_http_options *options, struct ct_http_server **ret_server,
                  struct ct_error *err);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_http_endpoint(const struct ct_http_server *server);

/* Close the listener and every connection; frees itself when the loop has run. */
void ct_http_stop(struct ct_http_server *server);

#endif
