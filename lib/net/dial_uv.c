/* Connecting, again and again until somebody answers; see ct_conn_connect in conn_uv.h.
 *
 *   LOOKUP -> TRY address 0 -> TRY address 1 -> ... -> PAUSE -> LOOKUP or TRY ...
 *                  |  connected                          |  deadline
 *                  v                                     v
 *             ct_conn_begin                        ct_conn_end(why)
 *
 * Digits and "localhost" need no LOOKUP, so the usual job starts no resolver threads. The
 * connection's timer serves the dial as long as there is no stream. */
#include "net/conn_inner_uv.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "base/str.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ADDRESSES = 8,
    FIRST_PAUSE_MS = 10,
    TRY_MS = 3000,           /* for one address */
    UNKNOWN_NAME_MS = 10000, /* how long a name that does not exist may take to appear */
    TICK_MS = 1000,
    JOB_BYTES = 129,
};

enum stage { LOOKUP, TRY, PAUSE };

struct ct_dial {
    struct ct_conn *conn; /* NULL: ended, the lookup in flight keeps this alive */
    struct ct_endpoint endpoint;
    struct ct_key key;
    bool has_key;
    char job[JOB_BYTES];
    struct ct_rng rng;

    enum stage stage;
    uint64_t started_ms;
    uint64_t deadline_ms;
    uint64_t tick_ms;  /* the next on_waiting */
    uint64_t stage_ms; /* the stage's end; UINT64_MAX: it ends by itself */
    uint64_t pause_ms;

    uv_getaddrinfo_t lookup;
    bool looking_up;
    struct sockaddr_storage addresses[ADDRESSES];
    int count, current;
    bool accepted;  /* the last try got as far as the handshake */
    int code;       /* how the last one failed */
    char what[512]; /* what stands in the way */
};

static void look_up(struct ct_dial *dial);
static void try_address(struct ct_dial *dial);

void ct_dial_end(struct ct_dial *dial)
{
    if (dial == NULL)
        return;
    ct_net_key_wipe(&dial->key);
    dial->conn = NULL;
    if (dial->looking_up)
        (void)uv_cancel((uv_req_t *)&dial->lookup); /* its callback frees */
    else
        free(dial);
}

static void give_up(struct ct_dial *dial, int code)
{
    struct ct_conn *conn = dial->conn;
    struct ct_error why = {0};
    uint64_t waited_ms = uv_now(conn->loop) - dial->started_ms;

    ct_error_set(&why, code, "cannot connect: %s (tried for %llu.%llu s)", dial->what,
                 (unsigned long long)(waited_ms / 1000),
                 (unsigned long long)(waited_ms / 100 % 10));
    ct_conn_end(conn, &why);
}

/* ---- time ---- */

static void on_timer(uv_timer_t *timer);

static void arm(struct ct_dial *dial)
{
    uint64_t now_ms = uv_now(dial->conn->loop);
    uint64_t at_ms = CT_MIN(dial->deadline_ms, CT_MIN(dial->tick_ms, dial->stage_ms));

    uv_timer_start(&dial->conn->timer, on_timer, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

static void enter(struct ct_dial *dial, enum stage stage, uint64_t lasts_ms)
{
    dial->stage = stage;
    dial->stage_ms = lasts_ms == 0 ? UINT64_MAX : uv_now(dial->conn->loop) + lasts_ms;
    arm(dial);
}

/* All addresses failed: wait a little, longer each time, never in step with other clients. */
static void pause_dial(struct ct_dial *dial)
{
    uint64_t half = dial->pause_ms / 2;

    if (dial->conn->options.once) {
        give_up(dial, dial->code);
        return;
    }
    enter(dial, PAUSE, half + ct_rng_below(&dial->rng, half + 1) + 1);
    dial->pause_ms = CT_MIN(dial->pause_ms * 2, (uint64_t)dial->conn->options.retry_ms);
}

static void begin_round(struct ct_dial *dial)
{
    dial->current = 0;
    if (dial->endpoint.is_unix)
        dial->count = 1;
    else
        dial->count = ct_address_numeric(dial->endpoint.host, dial->endpoint.port, dial->addresses);
    if (dial->count > 0)
        try_address(dial);
    else
        look_up(dial);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_conn *conn = timer->data;
    struct ct_dial *dial = conn->dial;
    uint64_t now_ms = uv_now(conn->loop);

    if (now_ms >= dial->deadline_ms) {
        give_up(dial, CT_ETIMEOUT);
        return;
    }
    if (now_ms >= dial->tick_ms) {
        dial->tick_ms = now_ms + TICK_MS;
        if (conn->callbacks.on_waiting != NULL)
            conn->callbacks.on_waiting(conn, now_ms - dial->started_ms, dial->what, dial->accepted);
        if (conn->state == CT_CONN_ENDED)
            return; /* the owner has lost patience */
    }
    if (now_ms < dial->stage_ms) {
        arm(dial);
    } else if (dial->stage == PAUSE) {
        begin_round(dial);
    } else {
        snprintf(dial->what, sizeof(dial->what), "no answer within %d ms", TRY_MS);
        dial->accepted = false;
        dial->code = CT_ETIMEOUT;
        ct_conn_drop_stream(conn);
    }
}

/* ---- names ---- */

static void on_found(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct ct_dial *dial = request->data;

    dial->looking_up = false;
    if (dial->conn == NULL) {
        uv_freeaddrinfo(list);
        ct_dial_end(dial);
        return;
    }
    dial->count = 0;
    for (struct addrinfo *at = list; at != NULL && dial->count < ADDRESSES; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
            continue;
        struct sockaddr_storage *to = &dial->addresses[dial->count++];
        memcpy(to, at->ai_addr, at->ai_addrlen);
        ((struct sockaddr_in *)to)->sin_port = htons(dial->endpoint.port);
    }
    uv_freeaddrinfo(list);
    if (dial->count > 0) {
        try_address(dial);
        return;
    }
    snprintf(dial->what, sizeof(dial->what), "the name %s does not resolve (%s)",
             dial->endpoint.host, status != 0 ? uv_strerror(status) : "no address");
    if (uv_now(dial->conn->loop) - dial->started_ms >= UNKNOWN_NAME_MS)
        give_up(dial, CT_EUNAVAILABLE);
    else
        pause_dial(dial);
}

static void look_up(struct ct_dial *dial)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

    if (dial->what[0] == '\0')
        snprintf(dial->what, sizeof(dial->what), "looking up the name %s", dial->endpoint.host);
    enter(dial, LOOKUP, 0);
    dial->lookup.data = dial;
    int status = uv_getaddrinfo(dial->conn->loop, &dial->lookup, on_found, dial->endpoint.host,
                                NULL, &hints);
    dial->looking_up = status == 0;
    if (status != 0)
        pause_dial(dial);
}

/* ---- one address ---- */

static void describe(struct ct_dial *dial, int status)
{
    char address[CT_ADDRESS_TEXT] = "the socket";

    dial->accepted = false;
    dial->code = status;
    if (!dial->endpoint.is_unix)
        ct_address_print((const struct sockaddr *)&dial->addresses[dial->current], address);
    snprintf(dial->what, sizeof(dial->what), "%s answers %s (%s)", address, uv_strerror(status),
             uv_err_name(status));
}

static void on_connected(uv_connect_t *request, int status)
{
    struct ct_conn *conn = request->handle->data;
    struct ct_dial *dial = conn->dial;

    if (status == UV_ECANCELED || dial == NULL)
        return;
    if (status != 0) {
        describe(dial, status);
        ct_conn_drop_stream(conn);
        return;
    }
    uv_timer_stop(&conn->timer);
    conn->options.job = dial->job;
    dial->accepted = true;
    const struct ct_conn_secret secret = {.key = &dial->key};
    ct_conn_begin(conn, dial->has_key ? &secret : NULL);
    if (conn->state == CT_CONN_HANDSHAKE && conn->callbacks.on_waiting != NULL)
        conn->callbacks.on_waiting(conn, uv_now(conn->loop) - dial->started_ms,
                                   "it has accepted the connection, the TLS handshake goes on",
                                   true);
}

/* What to say if the time is over before anything has come back. */
static void expect_answer(struct ct_dial *dial)
{
    char address[CT_ADDRESS_TEXT];

    if (dial->what[0] == '\0' && !dial->endpoint.is_unix)
        snprintf(
            dial->what, sizeof(dial->what), "%s has not answered",
            ct_address_print((const struct sockaddr *)&dial->addresses[dial->current], address));
}

/* Start connecting `io`; 0 when on_connected will come. */
static int start_try(struct ct_dial *dial)
{
    struct ct_conn *conn = dial->conn;
    const struct sockaddr *address = (const struct sockaddr *)&dial->addresses[dial->current];
    int status;

    if (dial->endpoint.is_unix) {
        uv_pipe_init(conn->loop, &conn->io.pipe, 0);
        conn->io_exists = true;
        conn->io.handle.data = conn;
        uv_pipe_connect(&conn->connect, &conn->io.pipe, dial->endpoint.path, on_connected);
        return 0;
    }
    status = uv_tcp_init_ex(conn->loop, &conn->io.tcp, address->sa_family);
    if (status != 0)
        return status;
    conn->io_exists = true;
    conn->io.handle.data = conn;
    if (conn->options.source != 0 && address->sa_family == AF_INET) {
        const struct sockaddr_in source = {.sin_family = AF_INET,
                                           .sin_addr = {htonl(conn->options.source)}};
        status = uv_tcp_bind(&conn->io.tcp, (const struct sockaddr *)&source, 0);
        if (status != 0)
            return status;
    }
    return uv_tcp_connect(&conn->connect, &conn->io.tcp, address, on_connected);
}

static void try_address(struct ct_dial *dial)
{
    int status = -1;

    for (; dial->current < dial->count && !dial->conn->io_exists; dial->current++) {
        status = start_try(dial);
        if (status == 0) {
            expect_answer(dial);
            enter(dial, TRY, TRY_MS);
            return;
        }
        describe(dial, status);
        if (dial->conn->io_exists) {
            ct_conn_drop_stream(dial->conn);
            return;
        }
    }
    pause_dial(dial);
}

void ct_dial_stream_closed(struct ct_dial *dial)
{
    dial->current++;
    if (dial->current < dial->count)
        try_address(dial);
    else
        pause_dial(dial);
}

void ct_dial_retry(struct ct_dial *dial, const struct ct_error *why)
{
    ct_str_copy(dial->what, sizeof(dial->what), why->text);
    dial->code = why->code;
    dial->stage_ms = UINT64_MAX; /* until the stream is closed */
    ct_conn_drop_stream(dial->conn);
    arm(dial);
}

/* ---- the call ---- */

static struct ct_dial *new_dial(struct ct_conn *conn, const struct ct_endpoint *endpoint,
                                const struct ct_conn_options *options)
{
    struct ct_dial *dial = calloc(1, sizeof(*dial));

    if (dial == NULL)
        return NULL;
    dial->conn = conn;
    dial->endpoint = *endpoint;
    dial->has_key = options->key != NULL;
    if (dial->has_key)
        ct_net_key_copy(&dial->key, options->key);
    ct_str_copy(dial->job, sizeof(dial->job), options->job != NULL ? options->job : "");
    ct_rng_init(&dial->rng, options->seed);
    dial->started_ms = uv_now(conn->loop);
    dial->deadline_ms = dial->started_ms + conn->options.connect_ms;
    dial->tick_ms = dial->started_ms + TICK_MS;
    dial->pause_ms = FIRST_PAUSE_MS;
    dial->code = CT_EUNAVAILABLE;
    return dial;
}

int ct_conn_connect(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                    const struct ct_conn_options *options,
                    const struct ct_conn_callbacks *callbacks, void *user,
                    struct ct_conn **ret_conn, struct ct_error *err)
{
    struct ct_conn *conn = ct_conn_alloc(loop, options, callbacks, user);

    if (conn == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a connection");
    uv_update_time(loop);
    ct_endpoint_print(endpoint, conn->peer);
    conn->chunk = malloc(2 * CT_CONN_CHUNK);
    conn->dial = new_dial(conn, endpoint, options);
    if (conn->chunk == NULL || conn->dial == NULL) {
        ct_conn_end(conn, &(struct ct_error){.code = CT_ENOMEM}); /* silently: nobody knows it */
        return ct_error_set(err, CT_ENOMEM, "no memory for a connection");
    }
    conn->announced = true;
    begin_round(conn->dial);
    *ret_conn = conn;
    return 0;
}
