/* See page_uv.h. */
#include "rendezvous/page/page_uv.h"

#include "rendezvous/page/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UPDATE_MS = 1000, LOOK_MS = 100 };

struct ct_page_server {
    uv_timer_t timer;
    struct ct_http_server *http;
    struct ct_rdzv_server *server;
    uint64_t sent;      /* number of the last event that streams were sent */
    uint64_t update_ms; /* when they were sent the jobs */
    struct ct_page_orders orders;
    size_t orders_at_work; /* whose answer is to come */
    bool stopped, closed;  /* the timer is */
};

static void free_when_done(struct ct_page_server *page)
{
    if (page->closed && page->orders_at_work == 0)
        free(page);
}

static struct ct_page_view view_of(const struct ct_page_server *page, const struct ct_grant *reader)
{
    return (struct ct_page_view){.service = ct_rdzv_server_service(page->server),
                                 .reader = reader,
                                 .now_ms = ct_rdzv_server_now_ms(page->server)};
}

/* To the streams of each reader what he may see; a few at most, for streams are few. */
static void send_to_all(struct ct_page_server *page,
                        void (*put)(const struct ct_page_view *view, void *context,
                                    struct ct_buf *out),
                        void *context)
{
    bool is_there;
    struct ct_buf text;

    ct_buf_init(&text, 0);
    for (size_t i = 0;; i++) {
        const struct ct_grant *reader = ct_http_reader(page->http, i, &is_there);
        if (!is_there)
            break;
        const struct ct_page_view view = view_of(page, reader);
        ct_buf_clear(&text);
        put(&view, context, &text);
        if (text.size > 0 && !text.failed)
            ct_http_stream_send(page->http, reader, text.data, text.size);
    }
    ct_buf_deinit(&text);
}

static void put_events(const struct ct_page_view *view, void *context, struct ct_buf *out)
{
    uint64_t after = *(const uint64_t *)context;

    ct_page_put_events(view, &after, out);
}

static void put_update(const struct ct_page_view *view, void *context, struct ct_buf *out)
{
    (void)context;
    ct_page_put_update(view, out);
}

/* Events that are new go to all streams. */
static void send_events(struct ct_page_server *page)
{
    const struct ct_service *service = ct_rdzv_server_service(page->server);

    if (service == NULL)
        return;
    send_to_all(page, put_events, &page->sent);
    page->sent = ct_service_events(service);
}

static void send_jobs(struct ct_page_server *page, uint64_t now_ms)
{
    if (now_ms - page->update_ms < UPDATE_MS)
        return;
    page->update_ms = now_ms;
    ct_rdzv_server_look(page->server); /* who reads a stream looks all the time */
    send_to_all(page, put_update, NULL);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_page_server *page = timer->data;

    if (ct_http_streams(page->http) == 0)
        return;
    send_events(page);
    send_jobs(page, ct_rdzv_server_now_ms(page->server));
}

/* ---- orders --------------------------------------------------------------------------------- */

struct order_at_work {
    struct ct_page_server *page;
    uint64_t request;
};

static void on_ordered(void *context, int code, const char *text, size_t size)
{
    struct order_at_work *order = context;
    struct ct_page_server *page = order->page;
    struct ct_http_answer answer = ct_http_answer_new(code == 0 ? 200 : 409);

    page->orders_at_work--;
    (void)ct_buf_append(&answer.body, text, size);
    if (page->stopped)
        ct_buf_deinit(&answer.body);
    else
        ct_http_answer_later(page->http, order->request, &answer);
    free(order);
    free_when_done(page);
}

/* An order, or who asks without the token. */
static void audit_refusal(const struct ct_page_server *page, const char *peer, const char *deed,
                          const struct ct_error *why)
{
    ct_rdzv_server_audit(page->server, peer,
                         &(struct ct_service_deed){
                             .deed = deed, .role = "page", .code = why->code, .text = why->text});
}

static void on_stranger(void *user, const char *peer)
{
    const struct ct_error why = {.code = CT_EAUTH, .text = "asks without the page's token"};

    audit_refusal(user, peer, "page", &why);
}

static int read_order(struct ct_page_server *page, const struct ct_http_request *request,
                      struct ct_page_order *ret_order, struct ct_error *err)
{
    const struct ct_key_ring *ring = ct_rdzv_server_ring(page->server);

    if (ring == NULL)
        return ct_error_set(err, CT_EAUTH, "this rendezvous has no key");
    return ct_page_orders_take(&page->orders, ct_rdzv_server_now_ms(page->server), ring,
                               request->body, request->body_size, request->uid, ret_order, err);
}

static int carry_out(struct ct_page_server *page, const struct ct_http_request *request,
                     const struct ct_page_order *order)
{
    struct order_at_work *at_work = malloc(sizeof *at_work);
    char author[256];
    int code = CT_ENOMEM;

    if (at_work == NULL)
        return code;
    *at_work = (struct order_at_work){.page = page, .request = request->number};
    (void)snprintf(author, sizeof author, "%s (on the page)", order->author);
    page->orders_at_work++;
    const struct ct_msg_admin admin = {.verb = (uint8_t)order->verb,
                                       .host = order->host,
                                       .author = author,
                                       .reason = order->reason};
    code = ct_rdzv_server_order(
        page->server,
        &(struct ct_rdzv_order_of){
            .job = order->job, .peer = request->peer, .grant = order->grant, .admin = &admin},
        on_ordered, at_work);
    if (code != 0) {
        page->orders_at_work--;
        free(at_work);
    }
    return code;
}

static void take_order(struct ct_page_server *page, const struct ct_http_request *request,
                       struct ct_http_answer *out)
{
    struct ct_page_order order;
    struct ct_error err = {.text = "the order cannot be carried out now: give it again"};
    int code = read_order(page, request, &order, &err);

    if (code != 0)
        audit_refusal(page, request->peer, "order", &err);
    out->later = code == 0; /* its answer may come before this returns */
    if (code == 0)
        code = carry_out(page, request, &order);
    if (code == 0)
        return;
    out->later = false;
    out->status = code == CT_EDATA ? 400 : code == CT_EAUTH ? 403 : 503;
    (void)ct_buf_puts(&out->body, err.text);
}

/* Whom the page may take orders from, and the nonce for one. */
static void offer_orders(const struct ct_page_server *page, struct ct_http_answer *out)
{
    char nonce[CT_PAGE_NONCE];

    if (ct_rdzv_server_ring(page->server) == NULL) {
        (void)ct_buf_puts(&out->body, "none: this rendezvous has no key\n");
        return;
    }
    ct_page_orders_nonce(&page->orders, ct_rdzv_server_now_ms(page->server), nonce);
    (void)ct_buf_puts(&out->body, nonce);
}

/* ---- what is asked for ---------------------------------------------------------------------- */

static void answer(void *user, const struct ct_http_request *request, struct ct_http_answer *out)
{
    struct ct_page_server *page = user;
    const struct ct_page_view view = view_of(page, request->reader);
    uint64_t after = request->last_event;

    if (request->body != NULL && strcmp(request->path, "/orders") == 0) {
        take_order(page, request, out);
        return;
    }
    if (request->body != NULL) {
        out->status = 405;
        (void)ct_buf_puts(&out->body, "orders go to /orders\n");
        return;
    }
    if (strcmp(request->path, "/orders") == 0) {
        offer_orders(page, out);
        return;
    }
    if (strcmp(request->path, "/status") == 0) {
        ct_rdzv_server_describe(page->server, request->reader, &out->body);
        return;
    }
    ct_rdzv_server_look(page->server);
    switch (ct_page_put(&view, request->path, &out->body, &out->content_type)) {
    case CT_PAGE_NONE:
        out->status = 404;
        (void)ct_buf_puts(&out->body, "no such page; there are / /status /status.json /metrics "
                                      "/events /healthz /orders\n");
        break;
    case CT_PAGE_PUT:
        break;
    case CT_PAGE_EVENTS:
        if (ct_http_streams(page->http) > 0)
            send_events(page); /* to the others: what this one is told now does not come again */
        out->stream = true;
        ct_page_put_update(&view, &out->body);
        ct_page_put_events(&view, &after, &out->body);
        page->sent = view.service != NULL ? ct_service_events(view.service) : 0;
    }
}

/* Who has not the page's own token: who has a key's, sees the jobs that it is for. In clear,
 * without one, everybody on this machine sees everything; this user and root where keys are several
 * users'. */
static bool admit(void *user, const struct ct_http_visitor *visitor, bool *ret_is_reader,
                  struct ct_grant *ret_reader)
{
    const struct ct_page_server *page = user;
    const struct ct_key_ring *ring = ct_rdzv_server_ring(page->server);
    const struct ct_grant *grant =
        ring != NULL ? ct_key_ring_find_token(ring, visitor->token, visitor->size) : NULL;

    if (grant != NULL && ct_grant_may(grant, CT_RIGHT_READ, NULL, visitor->uid, NULL) == 0) {
        *ret_is_reader = true;
        *ret_reader = *grant;
        ret_reader->user_count = 0; /* he is one of them */
        return true;
    }
    return !visitor->is_secured && (visitor->size == 0 || ring == NULL) &&
           (!ct_rdzv_server_has_ring_file(page->server) || visitor->uid == 0 ||
            visitor->uid == (int64_t)geteuid());
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
    struct ct_http_options options = {.handler = answer,
                                      .user = page,
                                      .on_refused = on_stranger,
                                      .admit = admit,
                                      .may_post = ct_rdzv_server_ring(server) != NULL};
    unsigned char random[16];
    struct ct_endpoint endpoint;

    if (page == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the status page");
    page->server = server;
    int rc = ct_endpoint_parse(where->endpoint, -1, &endpoint, err);
    if (rc == 0 && uv_random(NULL, NULL, random, sizeof random, 0, NULL) != 0)
        rc = ct_error_set(err, CT_EOS, "no random numbers for the status page");
    if (rc == 0)
        rc = load_identity(where, &options.identity, err);
    if (rc == 0)
        rc = ct_http_start(loop, &endpoint, &options, &page->http, err);
    if (rc != 0) {
        free(page);
        return rc;
    }
    ct_page_orders_init(&page->orders, random);
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

void ct_page_keys_changed(struct ct_page_server *page)
{
    if (page != NULL)
        ct_http_end_streams(page->http);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_page_server *page = handle->data;

    page->closed = true;
    free_when_done(page);
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
    page->stopped = true;
    ct_http_stop(page->http);
    uv_close((uv_handle_t *)&page->timer, on_timer_closed);
}
