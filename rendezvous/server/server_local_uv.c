/* An operator of this process (the page's): a link of the service without a connection. What the
 * service sends there is the answer; the link is closed by a timer, as the service may be at work
 * when it answers. */
#include "rendezvous/server/server_state_uv.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 4000 /* within the time of an HTTP answer */ };

/* `peer` first: the service's pointer is to it. */
struct ct_server_local {
    struct ct_server_peer peer;
    uv_timer_t timer;
    void (*on_answer)(void *context, int code, const char *text, size_t size); /* NULL: told */
    void *context;
    char origin[CT_ENDPOINT_TEXT]; /* whose order it is, ... */
    struct ct_grant grant;         /* ... and his key */
};

static void on_timer(uv_timer_t *timer);

static void tell(struct ct_server_local *local, int code, const char *text, size_t size)
{
    void (*on_answer)(void *context, int code, const char *text, size_t size) = local->on_answer;

    local->on_answer = NULL;
    (void)uv_timer_start(&local->timer, on_timer, 0, 0);
    if (on_answer != NULL)
        on_answer(local->context, code, text, size);
}

void ct_server_local_close(struct ct_server_peer *peer, int code, const char *sentence)
{
    tell((struct ct_server_local *)peer, code, sentence, strlen(sentence));
}

void ct_server_local_send(struct ct_server_peer *peer, const struct ct_message *message)
{
    if (message->type == CT_MSG_ADMIN_REPLY)
        tell((struct ct_server_local *)peer, message->admin_reply.code,
             (const char *)message->admin_reply.text.data, message->admin_reply.text.size);
    else if (message->type == CT_MSG_REFUSE)
        ct_server_local_close(peer, message->refuse.code, message->refuse.text);
    else
        ct_server_local_close(peer, CT_EUNAVAILABLE,
                              "another daemon leads now: give the order on its page");
}

struct ct_server_origin ct_server_local_origin(const struct ct_server_peer *peer)
{
    const struct ct_server_local *local = (const struct ct_server_local *)peer;

    return (struct ct_server_origin){.peer = local->origin, .grant = &local->grant};
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_server_local *local = handle->data;
    struct ct_rdzv_server *server = local->peer.server;

    free(local);
    ct_server_handle_closed(server);
}

/* It is answered, or nobody does. */
static void on_timer(uv_timer_t *timer)
{
    struct ct_server_local *local = timer->data;

    if (local->on_answer != NULL)
        ct_server_local_close(&local->peer, CT_ETIMEOUT,
                              "no answer yet; what became of it is under What happened");
    ct_server_drop_peer(&local->peer, false);
    uv_close((uv_handle_t *)timer, on_closed);
}

int ct_rdzv_server_order(struct ct_rdzv_server *server, const struct ct_rdzv_order_of *order,
                         void (*on_answer)(void *context, int code, const char *text, size_t size),
                         void *context)
{
    struct ct_server_local *local;
    struct ct_message hello = {
        .type = CT_MSG_HELLO,
        .hello = {
            .protocol = CT_WIRE_PROTOCOL, .job = order->job, .host = "page", .role = "admin"}};
    struct ct_message ask = {.type = CT_MSG_ADMIN, .admin = *order->admin};

    if (server->stopping)
        return CT_ECLOSED;
    local = calloc(1, sizeof *local);
    if (local == NULL)
        return CT_ENOMEM;
    local->peer.server = server;
    local->context = context;
    local->grant = *order->grant;
    (void)ct_str_copy(local->origin, sizeof local->origin, order->peer);
    if (!ct_server_add_peer(&local->peer)) {
        free(local);
        return CT_ELIMIT;
    }
    (void)uv_timer_init(server->loop, &local->timer);
    local->timer.data = local;
    server->handles++;
    local->on_answer = on_answer;
    (void)uv_timer_start(&local->timer, on_timer, ANSWER_MS, 0);
    ct_server_message(&local->peer, &hello);
    if (local->on_answer != NULL)
        ct_server_message(&local->peer, &ask);
    return 0;
}
