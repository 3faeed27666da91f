/* The page on a libuv loop: an HTTP server, and a timer for the streams that are open. It has
 * /status, a line a job, as well, and takes orders where the rendezvous has a key (order.h). */
#ifndef CT_RENDEZVOUS_PAGE_UV_H
#define CT_RENDEZVOUS_PAGE_UV_H

#include "net/http_uv.h"
#include "rendezvous/page/page.h"
#include "rendezvous/server/server_uv.h"

struct ct_page_server;

/* Where, and to whom: beyond loopback with TLS and a token alone (net/web_tls.h). */
struct ct_page_where {
    const char *endpoint;    /* "host:port" or "unix:PATH" */
    const char *certificate; /* PEM file; "" or NULL: none */
    const char *token_file;  /* likewise */
};

/* Serve the page of `server`, which outlives it. CT_EUSAGE for an endpoint that is none, or one of
 * the two files alone; errors as ct_web_identity_load and ct_http_start. */
int ct_page_start(uv_loop_t *loop, const struct ct_page_where *where, struct ct_rdzv_server *server,
                  struct ct_page_server **ret_page, struct ct_error *err);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_page_endpoint(const struct ct_page_server *page);

/* The rendezvous has read its keys again: streams are closed, for their readers to ask anew. NULL
 * is ignored. */
void ct_page_keys_changed(struct ct_page_server *page);

/* Close all; frees itself when the loop has run. NULL is ignored. */
void ct_page_stop(struct ct_page_server *page);

#endif
