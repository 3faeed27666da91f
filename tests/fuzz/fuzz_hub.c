/* Fuzz: the store's end of the tunnels: frames of relays through decoder and hub to the core of
 * PyTorch's store, in virtual time.
 *
 *   input -> message -> frame -> reader -> decoder -> hub_uv.c -> tcpstore core -> frames
 *
 * Four connections of two relays (0 and 2, 1 and 3), which keep the rules but for the fields that
 * the input changes. An event is a byte: which connection (bits 0, 1), what (bits 2 to 4: `enum
 * what`), and a number of three bits. The network and the loop are this file's: it defines what
 * hub_uv.c calls of both. The hub must keep the rules too: WELCOME first, no more bytes of a stream
 * than its window, and nothing left charged when all have gone. */
#include "base/assert.h"
#include "frames.h"
#include "net/listen_uv.h"
#include "rendezvous/tcpstore/hub_uv.h"
#include "rendezvous/tcpstore/tunnel_uv.h"

#include <string.h>

enum { CONNS = 4, RELAYS = 2, STREAMS = 8, GENERATION = 3 };

enum what { DIAL, BREAK, PASS, HELLO, OPEN, DATA, ACK, CLOSE };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A stream as its relay sees it. */
struct stream {
    bool open, close_sent, close_received;
    uint64_t sent, gone;     /* of the relay's bytes; those that the hub told as taken */
    uint64_t came, consumed; /* of the hub's */
};

struct relay {
    bool lies; /* it broke the rules: what its streams are is not known until it has none */
    struct stream streams[STREAMS];
};

struct ct_conn {
    struct relay *relay;
    struct frames frames;
    void *user;
    bool open, welcome, ends;
    struct ct_error why;
};

struct world {
    struct ct_tcpstore *store;
    struct ct_tcpstore_hub *hub;
    struct ct_conn_callbacks callbacks;
    void *user;
    struct ct_conn conns[CONNS];
    struct relay relays[RELAYS], nobody; /* who said HELLO in another's name, maybe */
    uint64_t now_ms, due_ms;             /* of the hub's timer; UINT64_MAX: it does not run */
    uv_timer_t *timer;
    uv_timer_cb on_timer;
    uv_close_cb on_closed;
};

static struct world world;

/* ---- the loop ---- */

uint64_t uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return world.now_ms;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    (void)loop;
    world.timer = timer;
    world.due_ms = UINT64_MAX;
    return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t timeout, uint64_t repeat)
{
    (void)timer, (void)repeat;
    world.on_timer = callback;
    world.due_ms = world.now_ms + timeout;
    return 0;
}

int uv_is_active(const uv_handle_t *handle)
{
    (void)handle;
    return world.due_ms != UINT64_MAX;
}

void uv_close(uv_handle_t *handle, uv_close_cb callback)
{
    (void)handle;
    world.on_closed = callback;
}

/* ---- the network ---- */

int ct_listener_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                      const struct ct_listener_options *options,
                      const struct ct_conn_callbacks *callbacks, void *user,
                      struct ct_listener **ret_listener, struct ct_error *err)
{
    (void)loop, (void)endpoint, (void)options, (void)err;
    world.callbacks = *callbacks;
    world.user = user;
    *ret_listener = NULL;
    return 0;
}

const struct ct_endpoint *ct_listener_endpoint(const struct ct_listener *listener)
{
    static const struct ct_endpoint endpoint = {.host = "127.0.0.1", .port = 1};

    (void)listener;
    return &endpoint;
}

void ct_listener_stop(struct ct_listener *listener)
{
    (void)listener;
}

/* What the hub has of the relay's streams: the others are gone. */
static void receive_welcome(struct relay *relay, const struct ct_msg_tunnel_welcome *m)
{
    struct stream known[STREAMS] = {{.open = false}};

    relay->lies = relay->lies && (m->streams.count > 0 || relay == &world.nobody);
    for (uint32_t i = 0; !relay->lies && i < m->streams.count; i++) {
        const struct ct_wire_tunnel_state *state = &m->streams.data[i];
        CT_ASSERT(state->number < STREAMS && relay->streams[state->number].open);
        known[state->number] = relay->streams[state->number];
        known[state->number].sent = state->came;
        known[state->number].gone = state->consumed;
        known[state->number].close_sent = state->closed != 0;
    }
    memcpy(relay->streams, known, sizeof(known));
}

static void forget_closed(struct stream *stream)
{
    if (stream->close_sent && stream->close_received)
        *stream = (struct stream){.open = false};
}

static void receive(struct relay *relay, const struct ct_message *message)
{
    uint32_t number = message->tunnel_data.number; /* stands first in each */
    struct stream *stream = number < STREAMS ? &relay->streams[number] : NULL;

    if (relay->lies)
        return;
    CT_ASSERT(stream != NULL && stream->open);
    if (message->type == CT_MSG_TUNNEL_DATA) {
        stream->came += message->tunnel_data.data.size;
        CT_ASSERT(stream->came - stream->consumed <= CT_TUNNEL_WINDOW);
    } else if (message->type == CT_MSG_TUNNEL_ACK) {
        stream->gone += message->tunnel_ack.bytes;
        CT_ASSERT(stream->gone <= stream->sent);
    } else {
        CT_ASSERT(message->type == CT_MSG_TUNNEL_CLOSE && !stream->close_received);
        stream->close_received = true;
    }
    forget_closed(stream);
}

int ct_conn_send(struct ct_conn *conn, const struct ct_message *message, struct ct_error *err)
{
    (void)err;
    CT_ASSERT(conn->open);
    frames_check(message);
    if (conn->ends)
        return CT_ECLOSED;
    CT_ASSERT((message->type == CT_MSG_TUNNEL_WELCOME) != conn->welcome);
    conn->welcome = true;
    if (message->type == CT_MSG_TUNNEL_WELCOME)
        receive_welcome(conn->relay, &message->tunnel_welcome);
    else
        receive(conn->relay, message);
    return 0;
}

void ct_conn_close(struct ct_conn *conn, int code, const char *sentence)
{
    if (conn->ends)
        return;
    conn->ends = true;
    ct_error_set(&conn->why, code != 0 ? code : CT_ECLOSED, "%s", sentence != NULL ? sentence : "");
}

void *ct_conn_user(const struct ct_conn *conn)
{
    return conn->user;
}

void ct_conn_set_user(struct ct_conn *conn, void *user)
{
    conn->user = user;
}

const char *ct_conn_peer(const struct ct_conn *conn)
{
    return conn < &world.conns[2] ? "10.0.0.1:5" : "10.0.0.2:5";
}

int ct_conn_may(const struct ct_conn *conn, enum ct_right right, const char *job,
                struct ct_error *err)
{
    (void)conn, (void)right, (void)job, (void)err;
    return 0;
}

/* ---- the server ---- */

struct ct_tcpstore *ct_tcpstore_server_store(const struct ct_tcpstore_server *server)
{
    (void)server;
    return world.store;
}

void ct_tcpstore_server_serve(struct ct_tcpstore_server *server)
{
    struct ct_tcpstore_client *client;

    (void)server;
    while ((client = ct_tcpstore_next_ready(world.store)) != NULL) {
        struct ct_tcpstore_sink *sink = ct_tcpstore_about(client).user;
        const struct ct_error *broken = ct_tcpstore_broken(client);
        if (broken != NULL)
            sink->broke(sink, broken);
        else
            sink->flush(sink);
    }
}

/* ---- what relays say ---- */

static void on_message(void *context, const struct ct_message *message)
{
    struct ct_conn *conn = context;

    if (!conn->ends)
        world.callbacks.on_message(conn, message);
}

static void end(struct ct_conn *conn, int code)
{
    if (!conn->open)
        return;
    ct_conn_close(conn, code, "cut off");
    conn->open = false;
    if (conn->user != NULL) /* else it was taken over from */
        world.callbacks.on_close(conn, &conn->why);
    frames_deinit(&conn->frames);
}

static void dial(struct ct_conn *conn)
{
    if (conn->open)
        return;
    size_t relay = (size_t)(conn - world.conns) % RELAYS;
    *conn = (struct ct_conn){.user = world.user, .open = true, .relay = &world.relays[relay]};
    frames_init(&conn->frames, CT_FROM_RELAY, CT_WIRE_VALUE);
    world.callbacks.on_open(conn);
}

/* The relay's list; `lost`: so many of the hub's last bytes did not arrive. */
static struct ct_message hello_of(const struct ct_conn *conn, uint64_t lost, struct ct_arena *arena)
{
    struct ct_wire_tunnel_state *list = ct_arena_array(arena, STREAMS, sizeof(*list));
    uint32_t count = 0;

    CT_ASSERT(list != NULL);
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct stream *stream = &conn->relay->streams[i];
        if (!stream->open)
            continue;
        stream->came -= CT_MIN(lost, stream->came - stream->consumed);
        list[count++] = (struct ct_wire_tunnel_state){.number = i,
                                                      .came = stream->came,
                                                      .consumed = stream->consumed,
                                                      .closed = stream->close_received};
    }
    struct ct_message message = {
        .type = CT_MSG_TUNNEL_HELLO,
        .tunnel_hello = {.generation = GENERATION,
                         .job = "j",
                         .relay = {.low = 1 + (uint64_t)(conn - world.conns) % RELAYS}}};
    message.tunnel_hello.streams.data = list;
    message.tunnel_hello.streams.count = count;
    return message;
}

static void send_message(struct ct_conn *conn, struct ct_message *message, struct input *input,
                         struct ct_arena *arena)
{
    struct ct_message said = *message;
    bool speaks_first = message->type == CT_MSG_TUNNEL_HELLO;

    change_fields(input, arena, &said);
    bool is_changed = memcmp(&said, message, sizeof(said)) != 0;
    for (size_t i = 0; speaks_first && is_changed && i < RELAYS; i++)
        world.relays[i] = (struct relay){.lies = true};
    if (speaks_first && is_changed)
        conn->relay = &world.nobody;
    if (is_changed || speaks_first == conn->welcome)
        *conn->relay = (struct relay){.lies = true};
    if (!frames_send(&conn->frames, &said, on_message, conn))
        end(conn, CT_EPROTOCOL);
}

static struct ct_message data_of(struct stream *stream, uint32_t number, struct input *input)
{
    struct ct_message message = {.type = CT_MSG_TUNNEL_DATA, .tunnel_data = {.number = number}};
    size_t room = (size_t)(CT_TUNNEL_WINDOW - (stream->sent - stream->gone)), size;
    const uint8_t *bytes = input_bytes(input, CT_MIN((size_t)input_byte(input), room), &size);

    message.tunnel_data.data = (struct ct_bytes){bytes, size};
    stream->sent += size;
    return message;
}

static void speak(struct ct_conn *conn, enum what what, uint32_t number, struct input *input)
{
    struct stream *stream = &conn->relay->streams[number];
    struct ct_message message = {.type = CT_MSG_TUNNEL_OPEN, .tunnel_open = {.number = number}};
    struct ct_arena arena;

    if (!conn->open && what == OPEN && !conn->relay->lies)
        stream->open = true; /* said, and lost with the connection */
    if (!conn->open || conn->ends)
        return;
    bool may = what == OPEN ? !stream->open : stream->open && !stream->close_sent;
    if (!conn->relay->lies && what != HELLO && !(may || (what == ACK && stream->open)))
        return;
    ct_arena_init(&arena, 1 << 20);
    if (what == HELLO) {
        message = hello_of(conn, number * 16, &arena);
    } else if (what == OPEN) {
        stream->open = true;
    } else if (what == DATA) {
        message = data_of(stream, number, input);
    } else if (what == ACK) {
        message.type = CT_MSG_TUNNEL_ACK;
        message.tunnel_ack.bytes = (uint32_t)(stream->came - stream->consumed);
        stream->consumed = stream->came;
    } else {
        message.type = CT_MSG_TUNNEL_CLOSE;
        message.tunnel_close = (struct ct_msg_tunnel_close){.number = number, .text = ""};
        stream->close_sent = true;
    }
    send_message(conn, &message, input, &arena);
    forget_closed(stream);
    ct_arena_deinit(&arena);
}

/* ---- events ---- */

static void pass(uint64_t ms)
{
    world.now_ms += ms;
    if (world.due_ms <= world.now_ms) {
        world.due_ms = UINT64_MAX;
        world.on_timer(world.timer);
    }
    ct_tcpstore_tick(world.store, world.now_ms);
    ct_tcpstore_server_serve(NULL);
}

static void run_until_idle(void)
{
    for (size_t i = 0; i < CONNS; i++)
        if (world.conns[i].ends)
            end(&world.conns[i], CT_ECLOSED);
}

static void happen(struct input *input)
{
    uint8_t head = input_byte(input);
    struct ct_conn *conn = &world.conns[head & 3u];
    enum what what = head >> 2 & 7u;

    if (what == DIAL)
        dial(conn);
    else if (what == BREAK)
        end(conn, head >> 7 ? CT_ECLOSED : CT_ETIMEOUT);
    else if (what == PASS)
        pass(1000 * (uint64_t)(head >> 5));
    else
        speak(conn, what, head >> 5, input);
    run_until_idle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    const struct ct_tcpstore_limits limits = {
        .keys = 64, .bytes = 1 << 20, .clients = 8, .silent = 3};
    const struct ct_tcpstore_hub_options options = {
        .generation = GENERATION, .job = "j", .resume_ms = 2000};
    const struct ct_endpoint endpoint = {.host = "127.0.0.1"};

    world = (struct world){.store = ct_tcpstore_new(&limits), .now_ms = 1000};
    CT_ASSERT(world.store != NULL);
    CT_ASSERT(ct_tcpstore_hub_start(NULL, &endpoint, &options, &world.hub, NULL) == 0);
    for (size_t i = 0; i < CONNS; i++)
        world.conns[i].relay = &world.relays[i % RELAYS];
    for (int events = 0; input.size > 0 && events < 2000; events++)
        happen(&input);
    ct_tcpstore_hub_stop(world.hub);
    for (size_t i = 0; i < CONNS; i++)
        end(&world.conns[i], CT_ECLOSED);
    world.on_closed((uv_handle_t *)world.timer);
    ct_tcpstore_free(world.store);
    return 0;
}
