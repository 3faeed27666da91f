/* The page on a libuv loop: an HTTP server, and a timer for the streams that are open. It has
 * /status, a line a job, as well. */
#ifndef CT_RENDEZVOUS_PAGE_UV_H
#define CT_RENDEZVOUS_PAGE_UV_H

#include "net/http_uv.h"
#include "rendezvous/page/page.h"
#include "rendezvous/server/server_uv.h"

struct ct_page_server;

/* Serve the page of `server`, which outlives it. Errors as ct_http_start. */
int ct_page_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                  struct ct_rdzv_server *server, struct ct_page_server **ret_page,
                  struct ct_error *err);

/* Return the address that it listens on, with the actual port. */
const struct ct_endpoint *ct_page_endpoint(const struct ct_page_server *page);

/* Close all; frees itself when the loop has run. NULL is ignored. */
void ct_page_stop(struct ct_page_server *page);

#endif
