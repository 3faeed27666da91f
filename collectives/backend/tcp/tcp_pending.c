/* One connection of the mesh, from the dial or the call to its admission. See tcp_mesh_state.h. */
#include "backend/tcp/tcp_mesh_state.h"
#include "backend/tcp/tcp_silence.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    AGAIN_LEAST_MS = 20,  /* between two dials, doubled each time ... */
    AGAIN_MOST_MS = 1000, /* ... up to this, and half of it more or less */
    MS = 1000000,
};

static const char CLOSED_EACH_TIME[] = "it hangs up on each dial";

/* Everything that is sent here fits an empty socket buffer. */
static bool send_whole(int fd, const unsigned char *bytes, size_t size)
{
    return send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

/* ---- begin and end ---------------------------------------------------------------------------*/

static struct mesh_pending *new_pending(struct ct_mesh *mesh)
{
    struct mesh_pending *pending = calloc(1, sizeof *pending);

    if (pending == NULL)
        return NULL;
    pending->peer = -1;
    pending->next = mesh->pending;
    mesh->pending = pending;
    return pending;
}

static bool is_for(const struct mesh_pending *pending, int connection, int peer)
{
    return pending->stage != OVER && pending->peer == peer && pending->connection == connection;
}

static struct mesh_pending *find(const struct ct_mesh *mesh, int connection, int peer, bool dialled)
{
    struct mesh_pending *pending = mesh->pending;

    while (pending != NULL && (pending->dialled != dialled || !is_for(pending, connection, peer)))
        pending = pending->next;
    return pending;
}

void mesh_drop(struct ct_mesh *mesh, struct mesh_pending *pending)
{
    int connection = pending->connection, peer = pending->peer;

    if (pending->stage == OVER)
        return;
    if (pending->stage != BACKING_OFF)
        (void)close(pending->fd);
    mesh->strangers -= pending->stage == HELLO_AWAITED;
    pending->stage = OVER;
    if (peer >= 0 && *mesh_fd(mesh, connection, peer) == CT_MESH_COMING &&
        find(mesh, connection, peer, true) == NULL && find(mesh, connection, peer, false) == NULL)
        *mesh_fd(mesh, connection, peer) = CT_MESH_NONE;
}

/* The connection is in the mesh; what else was pending for it is not needed any more. */
static void admit(struct ct_mesh *mesh, struct mesh_pending *pending)
{
    int connection = pending->connection, peer = pending->peer, yes = 1;

    (void)setsockopt(pending->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    *mesh_fd(mesh, connection, peer) = pending->fd;
    pending->stage = OVER;
    mesh->open++;
    for (struct mesh_pending *other = mesh->pending; other != NULL; other = other->next)
        if (is_for(other, connection, peer))
            mesh_drop(mesh, other);
}

/* ---- dialling --------------------------------------------------------------------------------*/

static socklen_t address_of(const struct ct_mesh *mesh, int peer, struct sockaddr_storage *ret)
{
    size_t size = mesh->address_at[peer + 1] - mesh->address_at[peer];

    memset(ret, 0, sizeof *ret);
    memcpy(ret, mesh->addresses + mesh->address_at[peer], size);
    return (socklen_t)size;
}

static void print_address(const struct ct_mesh *mesh, int peer, char *text, size_t room)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    struct sockaddr_storage address;
    socklen_t size = address_of(mesh, peer, &address);

    if (getnameinfo((const struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        (void)snprintf(text, room, "an unreadable address");
    else
        (void)snprintf(text, room, "%s port %s", host, port);
}

static int cannot_connect(const struct ct_mesh *mesh, int peer, int code, const char *why,
                          struct ct_error *err)
{
    char address[NI_MAXHOST + NI_MAXSERV + 8];

    print_address(mesh, peer, address, sizeof address);
    return ct_error_set(err, code, "rank %d cannot connect to rank %d at %s: %s", mesh->rank, peer,
                        address, why);
}

static int dial_error(const struct ct_mesh *mesh, int peer, const char *why, struct ct_error *err)
{
    return cannot_connect(mesh, peer, CT_EUNAVAILABLE, why, err);
}

void mesh_describe(int error, char *text, size_t room)
{
    struct rlimit limit = {0};

    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        (void)snprintf(text, room, "%s: raise the limit of %llu (ulimit -n)",
                       strerrordesc_np(error), (unsigned long long)limit.rlim_cur);
    else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
             error == EINVAL) /* of a route that leads nowhere */
        (void)snprintf(text, room,
                       "%s: other nodes must reach that address (a firewall? another one may be "
                       "given there, with --local_addr)",
                       strerrordesc_np(error));
    else
        (void)snprintf(text, room, "%s", strerrordesc_np(error));
}

static int network_error(const struct ct_mesh *mesh, int peer, int error, struct ct_error *err)
{
    char why[200];

    mesh_describe(error, why, sizeof why);
    return dial_error(mesh, peer, why, err);
}

int mesh_unanswered(const struct ct_mesh *mesh, int peer, struct ct_error *err)
{
    char why[200];

    mesh_describe(ETIMEDOUT, why, sizeof why);
    return cannot_connect(mesh, peer, CT_ETIMEOUT, why, err);
}

/* Errors that may pass: a cable that has just come back, ports or descriptors that become free. */
static bool is_passing(int error)
{
    return error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
           error == ENETDOWN || error == ETIMEDOUT || error == EADDRNOTAVAIL || error == EAGAIN ||
           error == EMFILE || error == ENFILE || error == ENOBUFS;
}

/* A member of a group at work that refuses has left; one whose machine is silent is lost. */
static int gone(const struct ct_mesh *mesh, int peer, int error, struct ct_error *err)
{
    if (!mesh->is_formed || error == EMFILE || error == ENFILE)
        return network_error(mesh, peer, error, err);
    if (error == ECONNREFUSED)
        return ct_error_set(err, CT_ECLOSED, "rank %d has closed its connection", peer);
    return ct_error_set(err, CT_ECLOSED, "the connection with rank %d is lost: %s", peer,
                        strerrordesc_np(error));
}

/* Dial again later, or an error. Its descriptor is closed. */
static int retry(struct ct_mesh *mesh, struct mesh_pending *pending, int error,
                 struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    uint64_t limit_ms = mesh->is_formed ? mesh->silence_ms : MESH_NETWORK_DOWN_S * UINT64_C(1000);
    uint64_t backoff_ms = (uint64_t)AGAIN_LEAST_MS << CT_MIN(pending->dials, 6u);

    pending->stage = BACKING_OFF;
    if (error != ECONNRESET && (!is_passing(error) || now_ns - pending->since_ns > limit_ms * MS)) {
        int code = gone(mesh, pending->peer, error, err);

        mesh_drop(mesh, pending);
        return code;
    }
    backoff_ms = CT_MIN(backoff_ms, (uint64_t)AGAIN_MOST_MS);
    backoff_ms = backoff_ms / 2 + ct_rng_below(&mesh->jitter, backoff_ms);
    pending->why = error == ECONNRESET ? CLOSED_EACH_TIME : strerrordesc_np(error);
    pending->at_ns = now_ns + backoff_ms * MS;
    return 0;
}

static int retry_closed(struct ct_mesh *mesh, struct mesh_pending *pending, int error,
                        struct ct_error *err)
{
    (void)close(pending->fd);
    return retry(mesh, pending, error, err);
}

static int dial(struct ct_mesh *mesh, struct mesh_pending *pending, struct ct_error *err)
{
    struct sockaddr_storage address;
    socklen_t size = address_of(mesh, pending->peer, &address);

    pending->stage = BACKING_OFF;
    pending->have = 0;
    pending->dials++;
    if (size == 0) {
        mesh_drop(mesh, pending);
        return dial_error(mesh, pending->peer, "no address", err);
    }
    pending->fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (pending->fd < 0)
        return retry(mesh, pending, errno, err);
    ct_mesh_reuse_port(pending->fd);
    ct_tcp_keep_alive(pending->fd, mesh->silence_ms);
    pending->stage = CONNECTING;
    pending->at_ns = ct_clock_mono_ns(&ct_clock_system);
    if (connect(pending->fd, (const struct sockaddr *)&address, size) != 0 && errno != EINPROGRESS)
        return retry_closed(mesh, pending, errno, err);
    return 0;
}

int mesh_dial(struct ct_mesh *mesh, int connection, int peer, struct ct_error *err)
{
    struct mesh_pending *pending = new_pending(mesh);

    if (pending == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a connection with rank %d", peer);
    pending->dialled = true;
    pending->peer = peer;
    pending->connection = connection;
    pending->since_ns = ct_clock_mono_ns(&ct_clock_system);
    *mesh_fd(mesh, connection, peer) = CT_MESH_COMING;
    return dial(mesh, pending, err);
}

int mesh_redial(struct ct_mesh *mesh, struct mesh_pending *pending, uint64_t now_ns,
                struct ct_error *err)
{
    if (pending->stage == BACKING_OFF && now_ns >= pending->at_ns)
        return dial(mesh, pending, err);
    if (pending->stage == CONNECTING && now_ns - pending->at_ns > mesh->silence_ms * MS)
        return retry_closed(mesh, pending, ETIMEDOUT, err);
    return 0;
}

/* The connection is made, or has failed: send the HELLO. */
static int send_hello(struct ct_mesh *mesh, struct mesh_pending *pending, struct ct_error *err)
{
    struct ct_connection_id id = {
        .from = (uint32_t)mesh->rank,
        .to = (uint32_t)pending->peer,
        .connection = (uint32_t)pending->connection,
    };
    unsigned char nonce[CT_NONCE_BYTES];
    int error = 0;
    socklen_t size = sizeof error;

    (void)getsockopt(pending->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0)
        return retry_closed(mesh, pending, error, err);
    if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return dial_error(mesh, pending->peer, "the system gives no random numbers", err);
    ct_hello_write(&mesh->handshake, id, nonce, pending->hello);
    if (!send_whole(pending->fd, pending->hello, CT_HELLO_BYTES))
        return retry_closed(mesh, pending, ECONNRESET, err);
    pending->stage = HELLO_SENT;
    return 0;
}

static int check_answer(struct ct_mesh *mesh, struct mesh_pending *pending, struct ct_error *err)
{
    unsigned char confirm[CT_CONFIRM_BYTES];

    if (!ct_answer_is(&mesh->handshake, pending->hello, pending->bytes))
        return dial_error(mesh, pending->peer, "what answers there is not that rank", err);
    ct_confirm_write(&mesh->handshake, pending->hello, pending->bytes, confirm);
    if (!send_whole(pending->fd, confirm, CT_CONFIRM_BYTES))
        return retry_closed(mesh, pending, ECONNRESET, err);
    admit(mesh, pending);
    return 0;
}

/* ---- being called ----------------------------------------------------------------------------*/

/* A HELLO that was captured on the network and is sent once more. */
static bool is_repeated(const struct ct_mesh *mesh, const unsigned char *hello)
{
    for (const struct mesh_pending *other = mesh->pending; other != NULL; other = other->next)
        if (other->stage == CONFIRM_AWAITED && memcmp(other->hello, hello, CT_HELLO_BYTES) == 0)
            return true;
    return false;
}

/* Both have dialled: the lower rank gives way. One that cannot get through does, too. */
static bool is_crossed(const struct ct_mesh *mesh, int connection, int peer)
{
    const struct mesh_pending *own = find(mesh, connection, peer, true);

    return own != NULL && own->stage != BACKING_OFF && mesh->rank > peer;
}

/* It must be of a member that is not connected yet. */
static bool read_hello(const struct ct_mesh *mesh, const unsigned char *hello,
                       struct ct_connection_id *ret_id)
{
    uint32_t rank = (uint32_t)mesh->rank, size = (uint32_t)mesh->size;

    return ct_hello_read(&mesh->handshake, hello, ret_id) && ret_id->to == rank &&
           ret_id->from != rank && ret_id->from < size &&
           ret_id->connection < (uint32_t)mesh->connections &&
           *mesh_fd(mesh, (int)ret_id->connection, (int)ret_id->from) < 0 &&
           !is_repeated(mesh, hello) &&
           !is_crossed(mesh, (int)ret_id->connection, (int)ret_id->from);
}

static void check_hello(struct ct_mesh *mesh, struct mesh_pending *pending)
{
    unsigned char nonce[CT_NONCE_BYTES];
    struct ct_connection_id id;

    if (!read_hello(mesh, pending->bytes, &id) ||
        getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce) {
        mesh_drop(mesh, pending);
        return;
    }
    pending->peer = (int)id.from;
    pending->connection = (int)id.connection;
    memcpy(pending->hello, pending->bytes, CT_HELLO_BYTES);
    ct_answer_write(&mesh->handshake, pending->hello, nonce, pending->answer);
    mesh->strangers--;
    pending->stage = CONFIRM_AWAITED;
    pending->have = 0;
    *mesh_fd(mesh, pending->connection, pending->peer) = CT_MESH_COMING;
    if (!send_whole(pending->fd, pending->answer, CT_ANSWER_BYTES))
        mesh_drop(mesh, pending);
}

static void check_confirm(struct ct_mesh *mesh, struct mesh_pending *pending)
{
    if (ct_confirm_is(&mesh->handshake, pending->hello, pending->answer, pending->bytes))
        admit(mesh, pending);
    else
        mesh_drop(mesh, pending);
}

void mesh_take_call(struct ct_mesh *mesh, int fd, uint64_t now_ns)
{
    struct mesh_pending *pending = new_pending(mesh);

    if (pending == NULL) {
        (void)close(fd);
        return;
    }
    pending->fd = fd;
    pending->stage = HELLO_AWAITED;
    pending->at_ns = now_ns;
    mesh->strangers++;
    ct_tcp_keep_alive(fd, mesh->silence_ms);
    (void)mesh_advance(mesh, pending, NULL);
}

/* ---- what has come ---------------------------------------------------------------------------*/

static size_t bytes_wanted(enum mesh_stage stage)
{
    return stage == HELLO_SENT      ? CT_ANSWER_BYTES
           : stage == HELLO_AWAITED ? CT_HELLO_BYTES
                                    : CT_CONFIRM_BYTES;
}

/* A dialler that is disconnected before the answer dials again: the listener may have been short of
 * descriptors. */
int mesh_advance(struct ct_mesh *mesh, struct mesh_pending *pending, struct ct_error *err)
{
    if (pending->stage == CONNECTING)
        return send_hello(mesh, pending, err);
    size_t wanted = bytes_wanted(pending->stage);
    ssize_t got =
        recv(pending->fd, pending->bytes + pending->have, wanted - pending->have, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0 && pending->dialled)
        return retry_closed(mesh, pending, got == 0 ? ECONNRESET : errno, err);
    if (got <= 0) {
        mesh_drop(mesh, pending);
        return 0;
    }
    pending->have += (size_t)got;
    if (pending->have < wanted)
        return 0;
    if (pending->stage == HELLO_SENT)
        return check_answer(mesh, pending, err);
    if (pending->stage == HELLO_AWAITED)
        check_hello(mesh, pending);
    else
        check_confirm(mesh, pending);
    return 0;
}
