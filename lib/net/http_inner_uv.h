/* The inside of the HTTP server, shared by http_uv.c (requests and answers) and http_streams_uv.c
 * (answers that go on). */
#ifndef CT_NET_HTTP_INNER_UV_H
#define CT_NET_HTTP_INNER_UV_H

#include "net/http_uv.h"

#include "base/number/pace.h"
#include "net/address.h"
#include "net/web_places.h"

enum { CT_HTTP_REQUEST_BYTES = 8192 };

union ct_http_handle {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct ct_http_client {
    union ct_http_handle io;
    uv_timer_t timer;
    unsigned handles;
    struct ct_http_server *server;
    struct ct_http_client *next, **link;
    struct ct_web_place place;
    char request[CT_HTTP_REQUEST_BYTES + 1];
    size_t size;
    char peer[CT_ADDRESS_TEXT];
    uint64_t number; /* of its request; 0: not read yet */
    bool answered;   /* the answer is being written, or made */
    bool waits;      /* it is being made: ct_http_answer_later */
    bool written;    /* it is: the client's end is awaited */
    bool peer_done;  /* the client has ended its side */
    bool stream;     /* it gets what is sent to all of its reader's */
    bool is_reader;  /* of what `reader` may see; otherwise of everything */
    struct ct_grant reader;
    struct ct_buf head, body;
    struct ct_web_tls *tls; /* NULL: in clear */
    char cipher[4096];      /* what has come, with TLS */
    uv_write_t write;
    uv_shutdown_t shutdown;
    char rest[256]; /* what comes behind the request: not looked at */
};

struct ct_http_server {
    union ct_http_handle io;
    uv_loop_t *loop;
    struct ct_endpoint endpoint;
    struct ct_http_options options;
    uv_check_t turn; /* runs at the end of a turn that accepted something */
    struct ct_http_client *clients;
    unsigned count; /* of all clients, also of those that are turned away or closing */
    struct ct_web_places places;
    unsigned accepts;  /* in this turn */
    bool waiting;      /* libuv holds a connection until it is accepted */
    uint64_t requests; /* so far */
    struct ct_pace handshakes;
    bool stopped;
    unsigned closed; /* of its handles */
};

/* Close the connection. */
void ct_http_end_client(struct ct_http_client *client);

/* Send, beside the answer; copies. One that is too far behind is closed. */
void ct_http_send_bytes(struct ct_http_client *client, const char *data, size_t size);

#endif
