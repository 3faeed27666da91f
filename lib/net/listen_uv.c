/* Listening and admission; see listen_uv.h.
 *
 *   kernel backlog -> admit? -> accept -> ct_conn_begin -> ... first message -> proven
 *   (two: known.h)      | no
 *                       v
 *                  `waiting`: libuv accepts no more until on_turn or on_timer admits
 *
 * A few connections are accepted per turn of the loop, so that those already accepted are read in
 * between and many honest clients that come at once prove themselves before the limits bite. Where
 * strangers crowd, fewer of them: a turn is what a known address waits for. */
#include "net/listen_uv.h"
#include "net/conn_inner_uv.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/number/pace.h"
#include "net/known.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    ACCEPTS_PER_TURN = 16,
    ACCEPTS_IN_A_CROWD = 4,   /* of addresses that are not known */
    CROWD_MS = 1000,          /* for so long after a stranger had to give way */
    UPDATE_MS = 100,          /* until an address that has proved itself is known */
    PATIENCE_MS = 250,        /* a trusted one may be pushed out once it is this old */
    BOUND_TIMES = 4,          /* as many places as others have are for those that hold the key */
    BOUND_PATIENCE_MS = 1000, /* one of those may be pushed out once it is this old */
    ACCOUNTS = 4096,          /* that proved themselves are remembered */
    REPORT_MS = 10000,        /* one report a peer address in this time */
    REPORTED = 64,            /* addresses remembered for that */
    HANDSHAKES = 200,         /* by certificate, of strangers: a second, and at once */
    HANDSHAKES_OF_ONE = 20,   /* of one account among them: a second, and twice as many at once */
    HANDSHAKE_SLOTS = 256,    /* in which accounts are counted */
};

/* A socket that listens, with what the kernel holds for it. */
struct queue {
    struct ct_listener *listener;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    bool waiting;     /* libuv holds one accepted descriptor for us */
    unsigned accepts; /* in this turn */
};

enum { QUEUE_KNOWN, QUEUE_ANY, QUEUES }; /* in the order in which they are served */

struct ct_listener {
    struct queue queues[QUEUES]; /* without a `listener`: there is none */
    struct ct_known known;
    uv_timer_t update; /* runs until the kernel knows them, too */
    uv_timer_t timer;  /* runs while `waiting` for an unproven connection to grow old */
    uv_check_t turn;   /* runs at the end of a turn that accepted something */
    unsigned handles;  /* whose close callback has not run */
    uv_loop_t *loop;
    bool stopped;

    struct ct_listener_options options;
    struct ct_conn_budget budget;
    struct ct_key_ring *ring; /* NULL: in clear */
    struct ct_munge_queue munge;
    struct ct_conn_callbacks callbacks;
    void *user;
    struct ct_endpoint endpoint;
    char *chunk; /* what all its connections read into */
    struct ct_turns turns;
    bool turns_closed;

    uint32_t connections;
    struct ct_pending pending; /* those of them that have not proved themselves */
    struct ct_pace handshakes; /* by certificate, of strangers; of each slot of accounts */
    struct ct_pace handshakes_of[HANDSHAKE_SLOTS];
    uint64_t crowd_ms;          /* when a stranger had to give way last; 0: never */
    uint64_t trusted[ACCOUNTS]; /* accounts that have proved themselves, each at its own slot */
    struct {
        uint64_t hash, until_ms;
    } reported[REPORTED];
};

static void admit(struct ct_listener *listener);

/* ---- who is who ---- */

static bool is_trusted(const struct ct_listener *listener, uint64_t account)
{
    return listener->trusted[account % ACCOUNTS] == account;
}

/* Tell the owner about a refused peer, unless its address was reported just now, or it only looked
 * whether somebody listens, and went without a word. */
static void report(struct ct_listener *listener, const struct ct_conn *conn,
                   const struct ct_error *why)
{
    uint64_t hash = conn->account;
    uint64_t now_ms = uv_now(listener->loop);
    size_t slot = hash % REPORTED;

    if (listener->options.on_refused == NULL || listener->stopped ||
        (why->code == CT_ECLOSED && !conn->spoke) ||
        (listener->reported[slot].hash == hash && listener->reported[slot].until_ms > now_ms))
        return;
    listener->reported[slot].hash = hash;
    listener->reported[slot].until_ms = now_ms + REPORT_MS;
    listener->options.on_refused(listener->user, conn->peer, why);
}

/* ---- end ---- */

static void on_closed(uv_handle_t *handle);

/* Its connections may be there after it has stopped, and have their turns. */
static void free_listener(struct ct_listener *listener)
{
    if (!listener->stopped || listener->handles > 0 || listener->connections > 0)
        return;
    if (!listener->turns_closed) {
        listener->turns_closed = true;
        listener->handles = CT_TURN_HANDLES;
        ct_turns_close(&listener->turns, listener, on_closed);
        return;
    }
    ct_key_ring_unref(listener->ring);
    ct_pending_deinit(&listener->pending);
    free(listener->chunk);
    free(listener);
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_listener *listener = handle->data;

    listener->handles--;
    free_listener(listener);
}

static void on_queue_closed(uv_handle_t *handle)
{
    struct queue *queue = handle->data;

    queue->listener->handles--;
    free_listener(queue->listener);
}

struct ct_munge_queue *ct_listener_munge(struct ct_listener *listener)
{
    return &listener->munge;
}

void ct_listener_hold(struct ct_listener *listener)
{
    listener->handles++;
}

void ct_listener_release(struct ct_listener *listener)
{
    listener->handles--;
    free_listener(listener);
}

/* Those that nobody else knows; their places go with them. */
static void end_unknown(struct ct_conn *conn)
{
    const struct ct_error why = {.code = CT_ECLOSED, .text = "nobody listens any more"};

    if (!conn->announced)
        ct_conn_end(conn, &why);
}

void ct_listener_stop(struct ct_listener *listener)
{
    const struct ct_pending *pending = &listener->pending;

    if (listener->stopped)
        return;
    listener->stopped = true;
    for (struct ct_conn *conn = pending->trusted.oldest; conn != NULL; conn = conn->newer)
        end_unknown(conn);
    for (struct ct_conn *conn = pending->bound.oldest; conn != NULL; conn = conn->newer)
        end_unknown(conn);
    for (uint32_t i = 0; i < pending->stranger_count; i++)
        end_unknown(pending->strangers[i]);
    if (listener->endpoint.is_unix)
        unlink(listener->endpoint.path);
    for (size_t i = 0; i < QUEUES; i++)
        if (listener->queues[i].listener != NULL)
            uv_close(&listener->queues[i].io.handle, on_queue_closed);
    uv_close((uv_handle_t *)&listener->update, on_closed);
    uv_close((uv_handle_t *)&listener->timer, on_closed);
    uv_close((uv_handle_t *)&listener->turn, on_closed);
}

void ct_listener_gone(struct ct_listener *listener, struct ct_conn *conn)
{
    listener->connections--;
    ct_turns_leave(&listener->turns, conn);
    ct_pending_leave(&listener->pending, conn);
    if (!conn->proven)
        report(listener, conn, &conn->why);
    admit(listener);
    free_listener(listener);
}

bool ct_listener_is_busy(const struct ct_listener *listener)
{
    return listener->pending.stranger_count > listener->options.max_unproven / 4;
}

bool ct_listener_may_shake_hands(struct ct_listener *listener, const struct ct_conn *conn)
{
    struct ct_pace *of_one = &listener->handshakes_of[conn->account % HANDSHAKE_SLOTS];
    uint64_t now_ms = uv_now(listener->loop);

    return conn->place == CT_PLACE_TRUSTED ||
           (ct_pace_take(of_one, now_ms, HANDSHAKES_OF_ONE, 2 * HANDSHAKES_OF_ONE) == 0 &&
            ct_pace_take(&listener->handshakes, now_ms, HANDSHAKES, HANDSHAKES) == 0);
}

static void on_update(uv_timer_t *timer)
{
    struct ct_listener *listener = timer->data;
    int fd;

    if (uv_fileno(&listener->queues[QUEUE_ANY].io.handle, &fd) == 0)
        (void)ct_known_update(&listener->known, fd); /* else it knows those of before */
}

/* Many that come at once are told together. */
static void know(struct ct_listener *listener, const struct ct_conn *conn)
{
    struct sockaddr_storage address;
    int size = sizeof(address);

    if (listener->queues[QUEUE_KNOWN].listener == NULL || listener->stopped ||
        uv_tcp_getpeername(&conn->io.tcp, (struct sockaddr *)&address, &size) != 0)
        return;
    if (ct_known_add(&listener->known, &address) && !uv_is_active((uv_handle_t *)&listener->update))
        uv_timer_start(&listener->update, on_update, UPDATE_MS, 0);
}

void ct_listener_proven(struct ct_listener *listener, struct ct_conn *conn)
{
    listener->trusted[conn->account % ACCOUNTS] = conn->account;
    know(listener, conn);
    ct_pending_leave(&listener->pending, conn);
    admit(listener);
}

/* ---- admission ---- */

static bool is_old(const struct ct_listener *listener, const struct ct_conn *conn)
{
    return uv_now(listener->loop) - conn->accepted_ms >= PATIENCE_MS;
}

static void push_out(struct ct_listener *listener, struct ct_conn *conn, const char *reason)
{
    struct ct_error why = {0};

    ct_pending_leave(&listener->pending, conn);
    ct_error_set(&why, CT_ELIMIT, "%s", reason);
    ct_conn_end(conn, &why);
}

/* Whom its place is charged to, and what it is called. On loopback that is a user, and this one and
 * root are no strangers. */
static void name_peer(struct ct_listener *listener, struct ct_conn *conn)
{
    struct sockaddr_storage address;
    int size = sizeof(address), fd;
    unsigned uid;

    conn->account = 0;
    if (listener->endpoint.is_unix ||
        uv_tcp_getpeername(&conn->io.tcp, (struct sockaddr *)&address, &size) != 0) {
        ct_endpoint_print(&listener->endpoint, conn->peer);
        return;
    }
    ct_address_print((const struct sockaddr *)&address, conn->peer);
    conn->account = ct_address_account(&address);
    if (!ct_address_is_loopback((const struct sockaddr *)&address) ||
        uv_fileno(&conn->io.handle, &fd) != 0 || ct_address_find_peer_user(fd, &uid) != 0)
        return;
    conn->account = ct_hash64(&uid, sizeof(uid), AF_UNIX);
    conn->uid = uid;
    if (ct_address_check_user(uid, NULL) == 0)
        listener->trusted[conn->account % ACCOUNTS] = conn->account;
}

/* A place for a stranger: another one gives way where there is none. */
static void take_in_stranger(struct ct_listener *listener, struct ct_conn *conn)
{
    struct ct_conn *displaced = ct_pending_displaced(&listener->pending, conn->account,
                                                     listener->options.max_unproven_per_address);

    if (displaced != NULL) {
        listener->crowd_ms = uv_now(listener->loop);
        push_out(listener, displaced, "pushed out: too many connections sent no message");
    }
    ct_pending_enter(&listener->pending, conn, CT_PLACE_STRANGER);
}

void ct_listener_bound(struct ct_listener *listener, struct ct_conn *conn, uint64_t hello)
{
    if (conn->place == CT_PLACE_NONE || !ct_pending_is_new(&listener->pending, hello))
        return;
    ct_pending_leave(&listener->pending, conn);
    ct_pending_enter(&listener->pending, conn, CT_PLACE_BOUND);
    admit(listener);
}

/* A place for `conn`, which has just been accepted. False: there is none. */
static bool take_in(struct ct_listener *listener, struct ct_conn *conn)
{
    struct ct_conn *oldest = NULL;

    if (listener->connections >= listener->options.max_connections)
        return false;
    if (!listener->endpoint.is_unix && !is_trusted(listener, conn->account)) {
        take_in_stranger(listener, conn);
        return true;
    }
    if (!listener->endpoint.is_unix &&
        ct_pending_count_trusted(&listener->pending, conn->account, &oldest) >=
            listener->options.max_unproven_per_address) {
        CT_ASSERT(oldest != NULL); /* the limit is at least 1 */
        if (!is_old(listener, oldest))
            return false;
        push_out(listener, oldest,
                 "pushed out: too many connections of this address sent no message");
    }
    ct_pending_enter(&listener->pending, conn, CT_PLACE_TRUSTED);
    return true;
}

static void on_turn(uv_check_t *turn)
{
    struct ct_listener *listener = turn->data;

    uv_check_stop(turn);
    for (size_t i = 0; i < QUEUES; i++)
        listener->queues[i].accepts = 0;
    admit(listener);
}

static void on_timer(uv_timer_t *timer)
{
    admit(timer->data);
}

/* Take the connection that libuv holds. */
static void accept_one(struct queue *queue)
{
    struct ct_listener *listener = queue->listener;
    struct ct_conn *conn = ct_conn_alloc(listener->loop, &listener->options.conn,
                                         &listener->callbacks, listener->user);

    if (conn == NULL) {
        uv_timer_start(&listener->timer, on_timer, PATIENCE_MS, 0);
        return;
    }
    if (listener->endpoint.is_unix)
        uv_pipe_init(listener->loop, &conn->io.pipe, 0);
    else
        uv_tcp_init(listener->loop, &conn->io.tcp);
    conn->io_exists = true;
    conn->io.handle.data = conn;
    conn->listener = listener;
    conn->chunk = listener->chunk;
    conn->accepted_ms = uv_now(listener->loop);
    queue->waiting = false;
    queue->accepts++;
    uv_check_start(&listener->turn, on_turn);
    int status = uv_accept(&queue->io.stream, &conn->io.stream);
    if (status == 0)
        name_peer(listener, conn);
    const struct ct_conn_secret secret = {.ring = listener->ring};
    bool is_in = status == 0 && take_in(listener, conn);
    listener->connections++;
    ct_turns_enter(&listener->turns, conn);
    if (is_in)
        ct_conn_begin(conn, listener->ring != NULL ? &secret : NULL);
    else
        push_out(listener, conn, "refused: too many connections");
}

/* Is one of these places free, or the oldest of those that have them so old that it gives way? If
 * not, something will ask again. */
static bool has_place(struct ct_listener *listener, const struct ct_pending_list *list,
                      uint32_t most, uint32_t patience_ms)
{
    if (list->count < most)
        return true;
    CT_ASSERT(list->oldest != NULL);
    uint64_t age_ms = uv_now(listener->loop) - list->oldest->accepted_ms;
    if (age_ms >= patience_ms)
        push_out(listener, list->oldest, "pushed out: too many connections sent no message");
    else
        uv_timer_start(&listener->timer, on_timer, patience_ms - age_ms, 0);
    return age_ms >= patience_ms;
}

/* May the next one be accepted now? Strangers, who can be pushed out at any time, keep nobody
 * waiting. */
static bool may_accept(const struct queue *queue)
{
    struct ct_listener *listener = queue->listener;
    const struct ct_pending *pending = &listener->pending;
    uint32_t most = listener->options.max_unproven;
    bool in_a_crowd = queue == &listener->queues[QUEUE_ANY] && listener->crowd_ms != 0 &&
                      uv_now(listener->loop) - listener->crowd_ms < CROWD_MS;

    if (queue->accepts >= (in_a_crowd ? ACCEPTS_IN_A_CROWD : ACCEPTS_PER_TURN))
        return false; /* on_turn will ask */
    return has_place(listener, &pending->trusted, most, PATIENCE_MS) &&
           has_place(listener, &pending->bound, BOUND_TIMES * most, BOUND_PATIENCE_MS);
}

static void admit(struct ct_listener *listener)
{
    for (size_t i = 0; i < QUEUES; i++) {
        struct queue *queue = &listener->queues[i];
        if (queue->waiting && !listener->stopped && may_accept(queue))
            accept_one(queue);
    }
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct queue *queue = stream->data;

    if (status != 0)
        return; /* out of descriptors: libuv sheds the newcomer and listens on */
    queue->waiting = true;
    admit(queue->listener);
}

/* ---- start ---- */

static int fill_options(struct ct_listener *listener, const struct ct_listener_options *options,
                        struct ct_error *err)
{
    uint64_t seed = 0;
    int code = 0;

    listener->options = *options;
    if (listener->options.max_unproven == 0)
        listener->options.max_unproven = 256;
    if (listener->options.max_unproven_per_address == 0)
        listener->options.max_unproven_per_address = 32;
    if (listener->options.max_connections == 0)
        listener->options.max_connections = 16384;
    listener->budget.limit = options->budget;
    if (options->budget != 0)
        listener->options.conn.budget = &listener->budget;
    listener->ring = ct_key_ring_ref(options->ring);
    if (listener->ring == NULL && options->conn.key != NULL)
        code = ct_key_ring_of(options->conn.key, false, &listener->ring, err);
    listener->options.ring = NULL;
    listener->options.conn.key = NULL;
    (void)uv_random(NULL, NULL, &seed, sizeof(seed), 0, NULL);
    if (code == 0 && ct_pending_init(&listener->pending, listener->options.max_unproven, seed) != 0)
        code = ct_error_set(err, CT_ENOMEM, "no memory for a listener");
    return code;
}

/* Give the bound socket `fd` to libuv and listen. */
static int listen_on(struct ct_listener *listener, struct queue *queue, int fd)
{
    int status;

    queue->listener = listener;
    if (listener->endpoint.is_unix) {
        uv_pipe_init(listener->loop, &queue->io.pipe, 0);
        status = uv_pipe_open(&queue->io.pipe, fd);
    } else {
        uv_tcp_init(listener->loop, &queue->io.tcp);
        status = uv_tcp_open(&queue->io.tcp, fd);
    }
    queue->io.handle.data = queue;
    listener->handles++;
    if (!listener->endpoint.is_unix && listener->options.silent_s > 0)
        ct_known_hold_silent(fd, listener->options.silent_s);
    if (status != 0)
        close(fd);
    return status != 0 ? status : uv_listen(&queue->io.stream, BACKLOG, on_connection);
}

static int listen_on_all(struct ct_listener *listener, int fd)
{
    int second;

    uv_timer_init(listener->loop, &listener->update);
    uv_timer_init(listener->loop, &listener->timer);
    uv_check_init(listener->loop, &listener->turn);
    listener->update.data = listener->timer.data = listener->turn.data = listener;
    ct_turns_init(&listener->turns, listener->loop);
    listener->handles = 3;
    int status = listen_on(listener, &listener->queues[QUEUE_ANY], fd);
    if (status == 0 && !listener->endpoint.is_unix && ct_known_listen(fd, &second) == 0)
        status = listen_on(listener, &listener->queues[QUEUE_KNOWN], second);
    return status;
}

int ct_listener_start(uv_loop_t *loop, const struct ct_endpoint *endpoint,
                      const struct ct_listener_options *options,
                      const struct ct_conn_callbacks *callbacks, void *user,
                      struct ct_listener **ret_listener, struct ct_error *err)
{
    struct ct_listener *listener = calloc(1, sizeof(*listener));
    char *chunk = malloc(2 * CT_CONN_CHUNK);
    int fd = -1, code = CT_ENOMEM;

    if (listener == NULL || chunk == NULL)
        ct_error_set(err, code, "no memory for a listener");
    else
        code = fill_options(listener, options, err);
    if (code == 0)
        code = ct_address_bind(endpoint, listener->ring != NULL, &fd, &listener->endpoint, err);
    if (code != 0) {
        if (listener != NULL) {
            ct_key_ring_unref(listener->ring);
            ct_pending_deinit(&listener->pending);
        }
        free(listener);
        free(chunk);
        return code;
    }
    listener->loop = loop;
    ct_munge_queue_init(&listener->munge);
    listener->chunk = chunk;
    listener->callbacks = *callbacks;
    listener->user = user;
    uv_update_time(loop);
    code = listen_on_all(listener, fd);
    if (code != 0) {
        char text[CT_ENDPOINT_TEXT];
        ct_listener_stop(listener); /* frees it when the loop has run */
        return ct_error_set(err, CT_EUNAVAILABLE, "cannot listen on %s: %s",
                            ct_endpoint_print(endpoint, text), uv_strerror(code));
    }
    *ret_listener = listener;
    return 0;
}

const struct ct_endpoint *ct_listener_endpoint(const struct ct_listener *listener)
{
    return &listener->endpoint;
}

void ct_listener_change_ring(struct ct_listener *listener, struct ct_key_ring *ring)
{
    if (listener->ring == NULL)
        return;
    ct_key_ring_unref(listener->ring);
    listener->ring = ct_key_ring_ref(ring);
}

uint32_t ct_listener_connections(const struct ct_listener *listener)
{
    return listener->connections;
}

uint32_t ct_listener_unproven(const struct ct_listener *listener)
{
    return ct_pending_count(&listener->pending);
}
