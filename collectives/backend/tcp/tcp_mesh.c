/* See tcp_mesh.h. One poll loop over the listener, what was dialled and what was accepted. */
#include "backend/tcp/tcp_mesh.h"
#include "backend/tcp/tcp_silence.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/number/hash.h"
#include "base/number/rng.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    SLICE_MS = 10,
    ASK_MS = 2000,       /* how often to ask whether a member has given up */
    STRANGERS_MAX = 128, /* slots for unknown callers */
    HELLO_MS = 20,       /* a caller without a HELLO for so long is disconnected when others wait */
    ACCEPT_AGAIN_MS = 100, /* until the next try when there is no descriptor for a caller */
    AGAIN_LEAST_MS = 20,   /* between two dials, doubled each time ... */
    AGAIN_MOST_MS = 1000,  /* ... up to this, and half of it more or less */
    NETWORK_DOWN_S = 30,   /* for how long the network may refuse */
    MS = 1000000,
};

static const char CLOSED_EACH_TIME[] = "it hangs up on each dial";

/* Dialled: CONNECTING, then HELLO_SENT, or BACKING_OFF until it is dialled again; accepted:
 * HELLO_AWAITED, then CONFIRM_AWAITED. */
enum stage { UNUSED, CONNECTING, BACKING_OFF, HELLO_SENT, HELLO_AWAITED, CONFIRM_AWAITED };

/* A connection that is not in the mesh yet. */
struct pending {
    int fd; /* none while it is BACKING_OFF */
    enum stage stage;
    int peer, connection;
    uint64_t at_ns; /* BACKING_OFF: when it is dialled again; HELLO_AWAITED: when it was accepted */
    unsigned dials; /* so far */
    int polled;     /* its index of `polls`, 0: none */
    const char *why; /* the last one did not succeed; NULL: none has failed */
    size_t have;     /* of `bytes`: what comes next */
    unsigned char bytes[CT_HELLO_BYTES], hello[CT_HELLO_BYTES], answer[CT_ANSWER_BYTES];
};

struct mesh {
    const struct ct_setup *setup;
    const struct ct_mesh_address *addresses;
    struct ct_handshake handshake;
    struct ct_rng jitter; /* so that not all dial again at once */
    int listener;
    int connections;
    int *fds;
    int open;                /* connections that are still to come */
    struct pending *pending; /* first those dialled, then then the slots of accepted ones */
    int dialled, accepted, next_accepted;
    struct pollfd *polls;
    uint64_t began_ns, asked_ns;
    uint64_t accept_ns;     /* no caller is accepted before */
    const char *accept_why; /* a caller could not be accepted; NULL: all could */
};

/* ---- the handshake ---------------------------------------------------------------------------*/

static struct ct_handshake handshake_of(const struct ct_setup *setup,
                                        const struct ct_mesh_address *addresses)
{
    const struct ct_assignment *a = &setup->job->assignment;

    return (struct ct_handshake){.secret = addresses[0].secret,
                                 .run = ct_hash_str(a->run_id),
                                 .generation = a->generation,
                                 .group = ct_hash_str(setup->key)};
}

/* Everything that is sent here fits an empty socket buffer. */
static bool send_whole(int fd, const unsigned char *bytes, size_t size)
{
    return send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

static void close_pending(struct pending *pending)
{
    if (pending->stage != BACKING_OFF)
        (void)close(pending->fd);
    pending->stage = UNUSED;
}

static void admit(struct mesh *mesh, struct pending *pending)
{
    int yes = 1;

    (void)setsockopt(pending->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ct_tcp_keep_alive(pending->fd, mesh->setup->tuning.tcp_silence_ms);
    mesh->fds[pending->connection * mesh->setup->size + pending->peer] = pending->fd;
    pending->stage = UNUSED;
    mesh->open--;
}

static struct pending *accepted_at(const struct mesh *mesh, int index)
{
    return &mesh->pending[mesh->dialled + index];
}

/* A HELLO that was captured on the network and is sent once more. */
static bool is_repeated(const struct mesh *mesh, const unsigned char *hello)
{
    for (int i = 0; i < mesh->accepted; i++)
        if (accepted_at(mesh, i)->stage == CONFIRM_AWAITED &&
            memcmp(accepted_at(mesh, i)->hello, hello, CT_HELLO_BYTES) == 0)
            return true;
    return false;
}

/* Check a received HELLO: it must be of a member that is not connected yet. */
static void check_hello(struct mesh *mesh, struct pending *pending)
{
    uint32_t rank = (uint32_t)mesh->setup->rank, size = (uint32_t)mesh->setup->size;
    unsigned char nonce[CT_NONCE_BYTES];
    struct ct_connection_id id;

    if (!ct_hello_read(&mesh->handshake, pending->bytes, &id) || id.to != rank || id.from <= rank ||
        id.from >= size || id.connection >= (uint32_t)mesh->connections ||
        mesh->fds[id.connection * size + id.from] >= 0 || is_repeated(mesh, pending->bytes) ||
        getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce) {
        close_pending(pending);
        return;
    }
    pending->peer = (int)id.from;
    pending->connection = (int)id.connection;
    memcpy(pending->hello, pending->bytes, CT_HELLO_BYTES);
    ct_answer_write(&mesh->handshake, pending->hello, nonce, pending->answer);
    pending->stage = CONFIRM_AWAITED;
    pending->have = 0;
    if (!send_whole(pending->fd, pending->answer, CT_ANSWER_BYTES))
        close_pending(pending);
}

static void check_confirm(struct mesh *mesh, struct pending *pending)
{
    if (mesh->fds[pending->connection * mesh->setup->size + pending->peer] >= 0 ||
        !ct_confirm_is(&mesh->handshake, pending->hello, pending->answer, pending->bytes))
        close_pending(pending);
    else
        admit(mesh, pending);
}

/* ---- dialling --------------------------------------------------------------------------------*/

static void print_address(const struct ct_mesh_address *address, char *text, size_t room)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];

    if (getnameinfo((const struct sockaddr *)&address->socket, address->socket_bytes, host,
                    sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        (void)snprintf(text, room, "an unreadable address");
    else
        (void)snprintf(text, room, "%s port %s", host, port);
}

static int dial_error(const struct mesh *mesh, int peer, const char *why, struct ct_error *err)
{
    char address[NI_MAXHOST + NI_MAXSERV + 8];

    print_address(&mesh->addresses[peer], address, sizeof address);
    return ct_error_set(err, CT_EUNAVAILABLE, "rank %d cannot connect to rank %d at %s: %s",
                        mesh->setup->rank, peer, address, why);
}

/* Errors that may pass: a cable that has just come back, ports or descriptors that become free. */
static bool is_passing(int error)
{
    return error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
           error == ENETDOWN || error == ETIMEDOUT || error == EADDRNOTAVAIL || error == EAGAIN ||
           error == EMFILE || error == ENFILE || error == ENOBUFS;
}

static void dial_later(struct mesh *mesh, struct pending *pending, const char *why)
{
    uint64_t backoff_ms = (uint64_t)AGAIN_LEAST_MS << CT_MIN(pending->dials, 6u);

    backoff_ms = CT_MIN(backoff_ms, (uint64_t)AGAIN_MOST_MS);
    backoff_ms = backoff_ms / 2 + ct_rng_below(&mesh->jitter, backoff_ms);
    pending->why = why;
    pending->stage = BACKING_OFF;
    pending->at_ns = ct_clock_mono_ns(&ct_clock_system) + backoff_ms * MS;
}

/* The connection failed and its descriptor is closed: dial again later, or an error. */
static int retry(struct mesh *mesh, struct pending *pending, int error, struct ct_error *err)
{
    uint64_t waited_ns = ct_clock_mono_ns(&ct_clock_system) - mesh->began_ns;

    pending->stage = UNUSED;
    if (error != ECONNRESET &&
        (!is_passing(error) || waited_ns > NETWORK_DOWN_S * UINT64_C(1000000000)))
        return dial_error(mesh, pending->peer, strerrordesc_np(error), err);
    dial_later(mesh, pending, error == ECONNRESET ? CLOSED_EACH_TIME : strerrordesc_np(error));
    return 0;
}

static int retry_closed(struct mesh *mesh, struct pending *pending, int error, struct ct_error *err)
{
    (void)close(pending->fd);
    return retry(mesh, pending, error, err);
}

static int dial(struct mesh *mesh, struct pending *pending, struct ct_error *err)
{
    const struct ct_mesh_address *address = &mesh->addresses[pending->peer];

    pending->stage = UNUSED;
    pending->have = 0;
    pending->dials++;
    if (address->socket_bytes > sizeof address->socket)
        return dial_error(mesh, pending->peer, "no address", err);
    pending->fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (pending->fd < 0)
        return retry(mesh, pending, errno, err);
    ct_mesh_reuse_port(pending->fd);
    pending->stage = CONNECTING;
    if (connect(pending->fd, (const struct sockaddr *)&address->socket, address->socket_bytes) !=
            0 &&
        errno != EINPROGRESS)
        return retry_closed(mesh, pending, errno, err);
    return 0;
}

/* Dial again all whose back-off is over. */
static int redial(struct mesh *mesh, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    int code = 0;

    for (int i = 0; i < mesh->dialled && code == 0; i++)
        if (mesh->pending[i].stage == BACKING_OFF && now_ns >= mesh->pending[i].at_ns)
            code = dial(mesh, &mesh->pending[i], err);
    return code;
}

/* The connection is made, or has failed: send the HELLO. */
static int send_hello(struct mesh *mesh, struct pending *pending, struct ct_error *err)
{
    struct ct_connection_id id = {
        .from = (uint32_t)mesh->setup->rank,
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

static int check_answer(struct mesh *mesh, struct pending *pending, struct ct_error *err)
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

/* ---- the loop --------------------------------------------------------------------------------*/

static size_t bytes_wanted(enum stage stage)
{
    return stage == HELLO_SENT      ? CT_ANSWER_BYTES
           : stage == HELLO_AWAITED ? CT_HELLO_BYTES
                                    : CT_CONFIRM_BYTES;
}

/* Receive what is there: 0, or an error that ends the attempt (never of an accepted connection). A
 * dialler that is disconnected before the answer dials again: the listener may have been short of
 * descriptors. */
static int receive(struct mesh *mesh, struct pending *pending, struct ct_error *err)
{
    size_t wanted = bytes_wanted(pending->stage);
    ssize_t got =
        recv(pending->fd, pending->bytes + pending->have, wanted - pending->have, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0 && pending->stage == HELLO_SENT)
        return retry_closed(mesh, pending, got == 0 ? ECONNRESET : errno, err);
    if (got <= 0) {
        close_pending(pending);
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

/* Make room for others: close accepted connections that have sent nothing for too long. What they
 * may have sent meanwhile is read first. */
static bool make_room(struct mesh *mesh)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    bool room = false;

    for (int i = 0; i < mesh->accepted; i++) {
        struct pending *pending = accepted_at(mesh, i);

        if (pending->stage == HELLO_AWAITED &&
            now_ns - pending->at_ns > HELLO_MS * UINT64_C(1000000)) {
            (void)receive(mesh, pending, NULL);
            if (pending->stage == HELLO_AWAITED)
                close_pending(pending);
        }
        room |= pending->stage == UNUSED;
    }
    return room;
}

/* NULL: all are used, by members and by unknown callers whose short time is not over. */
static struct pending *free_slot(struct mesh *mesh)
{
    for (int i = 0; i < mesh->accepted; i++) {
        struct pending *pending = accepted_at(mesh, (mesh->next_accepted + i) % mesh->accepted);

        if (pending->stage == UNUSED) {
            mesh->next_accepted = (mesh->next_accepted + i + 1) % mesh->accepted;
            return pending;
        }
    }
    return NULL;
}

/* Accept while there are slots; further callers wait in the listener's backlog, which keeps what
 * they send. Each is read at once, so a caller that has sent its HELLO blocks no other one. */
static void accept_callers(struct mesh *mesh)
{
    for (int i = 0; i < mesh->accepted; i++) {
        struct pending *pending = free_slot(mesh);

        if (pending == NULL && make_room(mesh))
            pending = free_slot(mesh);
        if (pending == NULL)
            return;
        int fd = accept4(mesh->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            return;
        uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
        if (fd < 0) {
            mesh->accept_why = strerrordesc_np(errno);
            mesh->accept_ns = now_ns + ACCEPT_AGAIN_MS * MS;
            (void)make_room(mesh);
            return;
        }
        *pending = (struct pending){.fd = fd, .stage = HELLO_AWAITED, .at_ns = now_ns};
        (void)receive(mesh, pending, NULL);
    }
}

/* Accept only if there is a slot, or one can be made, and descriptors are not short. */
static bool may_accept(struct mesh *mesh)
{
    if (ct_clock_mono_ns(&ct_clock_system) < mesh->accept_ns)
        return false;
    return free_slot(mesh) != NULL || make_room(mesh);
}

/* Poll all open connections once. The kernel refuses more entries than the limit on descriptors, so
 * free slots are left out. */
static int poll_once(struct mesh *mesh, struct ct_error *err)
{
    int code = 0;
    nfds_t count = 1;

    mesh->polls[0] =
        (struct pollfd){.fd = may_accept(mesh) ? mesh->listener : -1, .events = POLLIN};
    for (int i = 0; i < mesh->dialled + mesh->accepted; i++) {
        struct pending *pending = &mesh->pending[i];

        pending->polled = 0;
        if (pending->stage == UNUSED || pending->stage == BACKING_OFF)
            continue;
        pending->polled = (int)count;
        mesh->polls[count++] = (struct pollfd){
            .fd = pending->fd, .events = pending->stage == CONNECTING ? POLLOUT : POLLIN};
    }
    if (poll(mesh->polls, count, SLICE_MS) <= 0)
        return 0;
    for (int i = 0; i < mesh->dialled + mesh->accepted && code == 0; i++) {
        struct pending *pending = &mesh->pending[i];

        if (pending->polled == 0 || mesh->polls[pending->polled].revents == 0)
            continue;
        code = pending->stage == CONNECTING ? send_hello(mesh, pending, err)
                                            : receive(mesh, pending, err);
    }
    if (mesh->polls[0].revents != 0)
        accept_callers(mesh);
    return code;
}

static int timeout_error(const struct mesh *mesh, struct ct_error *err)
{
    int size = mesh->setup->size, i = 0;

    while (i % size == mesh->setup->rank || mesh->fds[i] >= 0)
        i++;
    int peer = i % size;
    const char *why = peer < mesh->setup->rank
                          ? mesh->pending[i / size * mesh->setup->rank + peer].why
                          : mesh->accept_why;
    return ct_error_set(err, CT_ETIMEOUT, "rank %d has no connection with rank %d in time%s%s",
                        mesh->setup->rank, peer, why != NULL ? ": " : "", why != NULL ? why : "");
}

/* Ask whether a member has failed: otherwise its peers would wait until the deadline. */
static int check_failures(struct mesh *mesh, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);

    if (mesh->setup->failed_elsewhere == NULL ||
        now_ns - mesh->asked_ns < ASK_MS * UINT64_C(1000000))
        return 0;
    mesh->asked_ns = now_ns;
    return mesh->setup->failed_elsewhere(mesh->setup, err);
}

static int dial_first(struct mesh *mesh, int peer, int connection, struct ct_error *err)
{
    struct pending *pending = &mesh->pending[connection * mesh->setup->rank + peer];

    pending->peer = peer;
    pending->connection = connection;
    return dial(mesh, pending, err);
}

static int connect_all(struct mesh *mesh, struct ct_error *err)
{
    int code = 0;

    mesh->began_ns = mesh->asked_ns = ct_clock_mono_ns(&ct_clock_system);

    for (int connection = 0; connection < mesh->connections && code == 0; connection++)
        for (int peer = 0; peer < mesh->setup->rank && code == 0; peer++)
            code = dial_first(mesh, peer, connection, err);
    while (mesh->open > 0 && code == 0) {
        if (ct_job_revoked(mesh->setup->job))
            return ct_error_set(err, CT_EREVOKED, "the round was revoked");
        uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
        ct_worker_record_alive(mesh->setup->job->record, now_ns);
        if (now_ns >= mesh->setup->deadline_ns)
            return timeout_error(mesh, err);
        code = redial(mesh, err);
        if (code == 0)
            code = poll_once(mesh, err);
        if (code == 0)
            code = check_failures(mesh, err);
    }
    return code;
}

int ct_mesh_connection_count(const struct ct_blob *blobs)
{
    struct ct_mesh_address first;

    memcpy(&first, blobs[0].data, sizeof first);
    return CT_MESH_COLLECTIVE + (int)CT_MIN(CT_MAX(first.rails, 1u), (uint32_t)CT_RAILS_MAX);
}

int ct_mesh_connect(const struct ct_setup *setup, int listener, const struct ct_blob *blobs,
                    int *fds, struct ct_error *err)
{
    int connections = ct_mesh_connection_count(blobs);
    size_t size = (size_t)setup->size, pending = (size_t)connections * (size - 1) + STRANGERS_MAX;
    struct ct_mesh_address *addresses = calloc(size, sizeof *addresses);
    struct mesh mesh = {.setup = setup,
                        .addresses = addresses,
                        .listener = listener,
                        .connections = connections,
                        .fds = fds,
                        .open = connections * (setup->size - 1),
                        .dialled = connections * setup->rank,
                        .accepted = connections * (setup->size - 1 - setup->rank) + STRANGERS_MAX,
                        .pending = calloc(pending, sizeof *mesh.pending),
                        .polls = calloc(pending + 1, sizeof *mesh.polls)};
    int code = CT_ENOMEM;

    if (addresses == NULL || mesh.pending == NULL || mesh.polls == NULL) {
        ct_error_set(err, code, "no memory for the connections of %d ranks", setup->size);
        goto out;
    }
    for (size_t i = 0; i < size; i++)
        memcpy(&addresses[i], blobs[i].data, sizeof addresses[i]);
    mesh.handshake = handshake_of(setup, addresses);
    ct_rng_init(&mesh.jitter, ct_get_le64(addresses[setup->rank].secret));
    code = connect_all(&mesh, err);
out:
    for (size_t i = 0; mesh.pending != NULL && i < pending; i++)
        if (mesh.pending[i].stage != UNUSED)
            close_pending(&mesh.pending[i]);
    free(addresses);
    free(mesh.pending);
    free(mesh.polls);
    return code;
}
