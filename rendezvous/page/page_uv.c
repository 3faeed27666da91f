/* See page_uv.h. */
#include "rendezvous/page/page_uv.h"

#include <stdlib.h>
#include <string.h>

enum { UPDATE_MS = 1000, LOOK_MS = 100 };

struct ct_page_server {
    uv_timer_t timer;
    struct ct_http_server *http;
    struct ct_rdzv_server *server;
    uint64_t sent;      /* number of the last event that streams were sent */
    uint64_t update_ms; /* when they were sent the jobs */
};

/* Events that are new go to all streams. */
static void send_events(struct ct_page_server *page)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_page_put_events(ct_rdzv_server_service(page->server), ct_rdzv_server_now_ms(page->server),
                       &page->sent, &text);
    if (text.size > 0 && !text.failed)
        ct_http_stream_send(page->http, text.data, text.size);
    ct_buf_deinit(&text);
}

static void send_jobs(struct ct_page_server *page, uint64_t now_ms)
{
    struct ct_buf text;

    if (now_ms - page->update_ms < UPDATE_MS)
        return;
    page->update_ms = now_ms;
    ct_rdzv_server_look(page->server); /* who reads a stream looks all the time */
    ct_buf_init(&text, 0);
    ct_page_put_update(ct_rdzv_server_service(page->server), now_ms, &text);
    if (!text.failed)
        ct_http_stream_send(page->http, text.data, text.size);
    ct_buf_deinit(&text);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_page_server *page = timer->data;

    if (ct_http_streams(page->http) == 0)
        return;
    send_events(page);
    send_jobs(page, ct_rdzv_server_now_ms(page->server));
}

static void answer(void *user, const struct ct_http_request *request, struct ct_http_answer *out)
{
    struct ct_page_server *page = user;
    const struct ct_service *service = ct_rdzv_server_service(page->server);
    uint64_t now_ms = ct_rdzv_server_now_ms(page->server), after = request->last_event;

    if (strcmp(request->path, "/status") == 0) {
        ct_rdzv_server_describe(page->server, &out->body);
        return;
    }
    ct_rdzv_server_look(page->server);
    switch (ct_page_put(service, now_ms, request->path, &out->body, &out->content_type)) {
    case CT_PAGE_NONE:
        out->status = 404;
        (void)ct_buf_puts(&out->body, "no such page; there are / /status /status.json /metrics "
                                      "/events /healthz\n");
        break;
    case CT_PAGE_PUT:
        break;
    case CT_PAGE_EVENTS:
        if (ct_http_streams(page->http) > 0)
            send_events(page); /* to the others: what this one is told now does not come again */
        out->stream = true;
        ct_page_put_update(service, now_ms, &out->body);
        ct_page_put_events(service, now_ms, &after, &out->body);
        page->sent = service != NULL ? after : 0;
    }
}

/* The certificate and the token, if they are given. */
static int load_identity(const struct ct_page_where *where, struct ct_web_identity **ret_identity,
                         struct ct_error *err)
{
    bool has_certificate = where->certificate != NULL && where->certificate[0] != '\0';
    bool has_token = where->token_file != NULL && where->token_file[0] != '\0';

    if (has_certificate != has_token)
        return ct_error_set(err, CT_EUSAGE,
                            "--status_tls FILE and --status_token FILE go together: %s is missing",
                            has_token ? "--status_tls" : "--status_token");
    return has_certificate
               ? ct_web_identity_load(where->certificate, where->token_file, ret_identity, err)
               : 0;
}

int ct_page_start(uv_loop_t *loop, const struct ct_page_where *where, struct ct_rdzv_server *server,
                  struct ct_page_server **ret_page, struct ct_error *err)
{
    struct ct_page_server *page = calloc(1, sizeof *page);
    struct ct_http_options options = {.handler = answer, .user = page};
    struct ct_endpoint endpoint;

    if (page == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the status page");
    page->server = server;
    int rc = ct_endpoint_parse(where->endpoint, -1, &endpoint, err);
    if (rc == 0)
        rc = load_identity(where, &options.identity, err);
    if (rc == 0)
        rc = ct_http_start(loop, &endpoint, &options, &page->http, err);
    if (rc != 0) {
        free(page);
        return rc;
    }
    (void)uv_timer_init(loop, &page->timer);
    page->timer.data = page;
    (void)uv_timer_start(&page->timer, on_timer, LOOK_MS, LOOK_MS);
    uv_unref((uv_handle_t *)&page->timer);
    *ret_page = page;
    return 0;
}

const struct ct_endpoint *ct_page_endpoint(const struct ct_page_server *page)
{
    return ct_http_endpoint(page->http);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void ct_page_stop(struct ct_page_server *page)
{
    if (page == NULL)
        return;
    if (ct_http_streams(page->http) > 0) { /* how it ended: written before they are closed */
        send_events(page);
        page->update_ms = 0;
        send_jobs(page, ct_rdzv_server_now_ms(page->server));
    }
    ct_http_stop(page->http);
    uv_close((uv_handle_t *)&page->timer, on_timer_closed);
}
