/* See tcp_mesh.h. One poll loop over the listener, what was dialled and what was accepted. */
#include "backend/tcp_mesh.h"
#include "backend/tcp_silence.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"

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
    HELLO_MAGIC = 0x636f6c31,
    HELLO_BYTES = 56,
    ANSWER_BYTES = 20,
    HALF = CT_SECRET_BYTES / 2,
    GUESTS = 32, /* accepted, not yet known */
    SLICE_MS = 10,
    AGAIN_MS = 200,  /* until a dial that the network refused is tried again */
    PATIENCE_S = 30, /* for how long */
    ASK_MS = 2000,   /* how often to ask whether a member has given up */
};

/* Dialled: CONNECTING, then GREETING, or RESTING until it is dialled again; accepted: LISTENING. */
enum stage { UNUSED, CONNECTING, RESTING, GREETING, LISTENING };

/* A connection that is not in the mesh yet. */
struct call_up {
    int fd; /* none while it is RESTING */
    enum stage stage;
    int peer, lane;
    uint64_t again_ns; /* when it is dialled again */
    size_t have;
    unsigned char bytes[HELLO_BYTES];
};

struct mesh {
    const struct ct_setup *setup;
    const struct ct_mesh_address *addresses;
    int listener;
    int lanes;
    int *fds;
    int open;            /* connections that are still to come */
    struct call_up *ups; /* first those dialled, then GUESTS */
    int dialled, next_guest;
    struct pollfd *polls;
    uint64_t began_ns, asked_ns;
};

/* ---- listening -------------------------------------------------------------------------------*/

static int os_error(struct ct_error *err, int code, const char *what, const char *address)
{
    return ct_error_set(err, code, "%s on address %s failed: %s", what, address,
                        strerrordesc_np(-code));
}

static bool one_node(const struct ct_setup *setup)
{
    for (int i = 1; i < setup->size; i++)
        if (ct_job_node(setup->job, setup->ranks[i]) != ct_job_node(setup->job, setup->ranks[0]))
            return false;
    return true;
}

/* Numbers as they are, names through the resolver. */
static int resolve(const char *address, struct addrinfo **ret_info, struct ct_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    int code = getaddrinfo(address, NULL, &hints, ret_info);

    if (code != 0) {
        hints.ai_flags = AI_PASSIVE;
        code = getaddrinfo(address, NULL, &hints, ret_info);
    }
    if (code != 0)
        return ct_error_set(err, CT_EUNAVAILABLE, "the node's address %s cannot be resolved: %s",
                            address, gai_strerror(code));
    return 0;
}

/* A closed connection keeps its port for a minute: others may listen on it meanwhile, or a machine
 * that makes thousands of groups a minute runs out of ports. */
static void reuse_port(int fd)
{
    int yes = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

static int bind_and_listen(const char *address, const struct addrinfo *info,
                           struct ct_mesh_address *ret_address, struct ct_error *err)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof ret_address->socket;
    const char *what = "socket";
    int code;

    if (fd < 0)
        return os_error(err, -errno, what, address);
    reuse_port(fd);
    what = "bind";
    code = bind(fd, info->ai_addr, info->ai_addrlen);
    if (code == 0) {
        what = "listen";
        code = listen(fd, SOMAXCONN);
    }
    if (code == 0) {
        what = "getsockname";
        code = getsockname(fd, (struct sockaddr *)&ret_address->socket, &size);
    }
    if (code != 0) {
        code = -errno;
        (void)close(fd);
        return os_error(err, code, what, address);
    }
    ret_address->socket_bytes = (uint32_t)size;
    return fd;
}

int ct_mesh_listen(const struct ct_setup *setup, struct ct_mesh_address *ret_address, int *ret_fd,
                   struct ct_error *err)
{
    const struct ct_job_node *node = ct_job_node(setup->job, setup->ranks[setup->rank]);
    const char *address = one_node(setup) ? "127.0.0.1" : node->address;
    struct addrinfo *info = NULL;
    int code;

    if (*address == '\0')
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "rank %d's node has no address that other nodes can reach: give one "
                            "with --local-addr",
                            setup->ranks[setup->rank]);
    if (getrandom(ret_address->secret, CT_SECRET_BYTES, 0) != CT_SECRET_BYTES ||
        getrandom(ret_address->key, CT_SECRET_BYTES, 0) != CT_SECRET_BYTES)
        return os_error(err, -errno, "getrandom", address);
    code = resolve(address, &info, err);
    if (code != 0)
        return code;
    code = bind_and_listen(address, info, ret_address, err);
    freeaddrinfo(info);
    if (code < 0)
        return code;
    ret_address->encrypted = setup->encrypt;
    ret_address->rails = (uint32_t)setup->tuning.tcp_rails;
    *ret_fd = code;
    return 0;
}

/* ---- the handshake ---------------------------------------------------------------------------*/

static const unsigned char *secret(const struct mesh *mesh)
{
    return mesh->addresses[0].secret;
}

static void write_hello(const struct mesh *mesh, int from, int to, int lane, unsigned char *hello)
{
    const struct ct_assignment *a = &mesh->setup->job->assignment;

    ct_put_le32(hello, HELLO_MAGIC);
    ct_put_le32(hello + 4, (uint32_t)lane);
    ct_put_le64(hello + 8, ct_hash_str(a->run_id));
    ct_put_le64(hello + 16, a->generation);
    ct_put_le64(hello + 24, ct_hash_str(mesh->setup->key));
    ct_put_le32(hello + 32, (uint32_t)from);
    ct_put_le32(hello + 36, (uint32_t)to);
    memcpy(hello + 40, secret(mesh), HALF);
}

static void write_answer(const struct mesh *mesh, unsigned char *answer)
{
    ct_put_le32(answer, HELLO_MAGIC + 1);
    memcpy(answer + 4, secret(mesh) + HALF, HALF);
}

/* Takes the same time wherever they differ. */
static bool equal(const unsigned char *a, const unsigned char *b, size_t size)
{
    unsigned different = 0;

    for (size_t i = 0; i < size; i++)
        different |= (unsigned)(a[i] ^ b[i]);
    return different == 0;
}

/* Everything that is sent here fits an empty socket buffer. */
static bool send_whole(int fd, const unsigned char *bytes, size_t size)
{
    return send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

static void hang_up(struct call_up *up)
{
    if (up->stage != RESTING)
        (void)close(up->fd);
    up->stage = UNUSED;
}

static void admit(struct mesh *mesh, struct call_up *up)
{
    int yes = 1;

    (void)setsockopt(up->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ct_tcp_keep_alive(up->fd, mesh->setup->tuning.tcp_silence_ms);
    mesh->fds[up->lane * mesh->setup->size + up->peer] = up->fd;
    up->stage = UNUSED;
    mesh->open--;
}

/* A guest has said its hello: is it a member that is still to come? */
static void judge_guest(struct mesh *mesh, struct call_up *up)
{
    int rank = mesh->setup->rank, size = mesh->setup->size;
    unsigned char expected[HELLO_BYTES], answer[ANSWER_BYTES];
    uint32_t lane = ct_get_le32(up->bytes + 4), from = ct_get_le32(up->bytes + 32);

    up->lane = (int)CT_MIN(lane, (uint32_t)mesh->lanes);
    up->peer = (int)CT_MIN(from, (uint32_t)size);
    write_hello(mesh, up->peer, rank, up->lane, expected);
    write_answer(mesh, answer);
    if (up->lane == mesh->lanes || up->peer == size || up->peer <= rank ||
        !equal(up->bytes, expected, HELLO_BYTES) || mesh->fds[up->lane * size + up->peer] >= 0 ||
        !send_whole(up->fd, answer, ANSWER_BYTES))
        hang_up(up);
    else
        admit(mesh, up);
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

/* The network may think better of it: a cable that has just come back, ports that become free. */
static bool is_passing(int error)
{
    return error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
           error == ENETDOWN || error == ETIMEDOUT || error == EADDRNOTAVAIL || error == EAGAIN;
}

/* `up` could not be connected: once more later, or an error. */
static int rest(struct mesh *mesh, struct call_up *up, int error, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);

    (void)close(up->fd);
    up->stage = UNUSED;
    if (!is_passing(error) || now_ns - mesh->began_ns > PATIENCE_S * UINT64_C(1000000000))
        return dial_error(mesh, up->peer, strerrordesc_np(error), err);
    up->stage = RESTING;
    up->again_ns = now_ns + AGAIN_MS * UINT64_C(1000000);
    return 0;
}

static int dial(struct mesh *mesh, struct call_up *up, int peer, int lane, struct ct_error *err)
{
    const struct ct_mesh_address *address = &mesh->addresses[peer];

    *up = (struct call_up){.peer = peer, .lane = lane};
    if (address->socket_bytes > sizeof address->socket)
        return dial_error(mesh, peer, "no address", err);
    up->fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (up->fd < 0)
        return dial_error(mesh, peer, strerrordesc_np(errno), err);
    reuse_port(up->fd);
    up->stage = CONNECTING;
    if (connect(up->fd, (const struct sockaddr *)&address->socket, address->socket_bytes) != 0 &&
        errno != EINPROGRESS)
        return rest(mesh, up, errno, err);
    return 0;
}

/* Dial again whom it is time for. */
static int redial(struct mesh *mesh, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    int code = 0;

    for (int i = 0; i < mesh->dialled && code == 0; i++)
        if (mesh->ups[i].stage == RESTING && now_ns >= mesh->ups[i].again_ns)
            code = dial(mesh, &mesh->ups[i], mesh->ups[i].peer, mesh->ups[i].lane, err);
    return code;
}

/* The connection stands, or does not. */
static int greet(struct mesh *mesh, struct call_up *up, struct ct_error *err)
{
    unsigned char hello[HELLO_BYTES];
    int error = 0;
    socklen_t size = sizeof error;

    (void)getsockopt(up->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0)
        return rest(mesh, up, error, err);
    write_hello(mesh, mesh->setup->rank, up->peer, up->lane, hello);
    if (!send_whole(up->fd, hello, HELLO_BYTES))
        return dial_error(mesh, up->peer, "it hung up", err);
    up->stage = GREETING;
    return 0;
}

static int take_answer(struct mesh *mesh, struct call_up *up, struct ct_error *err)
{
    unsigned char expected[ANSWER_BYTES];

    write_answer(mesh, expected);
    if (!equal(up->bytes, expected, ANSWER_BYTES))
        return dial_error(mesh, up->peer, "what answers there is not that rank", err);
    admit(mesh, up);
    return 0;
}

/* ---- the loop --------------------------------------------------------------------------------*/

static void accept_guests(struct mesh *mesh)
{
    for (;;) {
        int fd = accept4(mesh->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct call_up *up = &mesh->ups[mesh->dialled + mesh->next_guest];

        if (fd < 0)
            return;
        if (up->stage != UNUSED) /* who came first and said nothing makes room */
            hang_up(up);
        *up = (struct call_up){.fd = fd, .stage = LISTENING};
        mesh->next_guest = (mesh->next_guest + 1) % GUESTS;
    }
}

/* Something can be read: 0, or an error that ends the attempt (a guest's never does). */
static int hear(struct mesh *mesh, struct call_up *up, struct ct_error *err)
{
    size_t wanted = up->stage == GREETING ? ANSWER_BYTES : HELLO_BYTES;
    ssize_t got = recv(up->fd, up->bytes + up->have, wanted - up->have, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0 && up->stage == GREETING)
        return dial_error(mesh, up->peer, "it hung up", err);
    if (got <= 0) {
        hang_up(up);
        return 0;
    }
    up->have += (size_t)got;
    if (up->have < wanted)
        return 0;
    if (up->stage == GREETING)
        return take_answer(mesh, up, err);
    judge_guest(mesh, up);
    return 0;
}

static int turn(struct mesh *mesh, struct ct_error *err)
{
    int count = mesh->dialled + GUESTS;
    int code = 0;

    for (int i = 0; i < count; i++) {
        const struct call_up *up = &mesh->ups[i];

        bool open = up->stage != UNUSED && up->stage != RESTING;
        mesh->polls[i] = (struct pollfd){.fd = open ? up->fd : -1,
                                         .events = up->stage == CONNECTING ? POLLOUT : POLLIN};
    }
    mesh->polls[count] = (struct pollfd){.fd = mesh->listener, .events = POLLIN};
    if (poll(mesh->polls, (nfds_t)count + 1, SLICE_MS) <= 0)
        return 0;
    for (int i = 0; i < count && code == 0; i++) {
        if (mesh->polls[i].revents == 0 || mesh->ups[i].stage == UNUSED)
            continue;
        code = mesh->ups[i].stage == CONNECTING ? greet(mesh, &mesh->ups[i], err)
                                                : hear(mesh, &mesh->ups[i], err);
    }
    if (mesh->polls[count].revents != 0)
        accept_guests(mesh);
    return code;
}

static int timeout_error(const struct mesh *mesh, struct ct_error *err)
{
    int size = mesh->setup->size, i = 0;

    while (i % size == mesh->setup->rank || mesh->fds[i] >= 0)
        i++;
    int peer = i % size;
    return ct_error_set(err, CT_ETIMEOUT, "rank %d has no connection with rank %d in time",
                        mesh->setup->rank, peer);
}

/* Who waits for a member that has failed would wait until the deadline. */
static int ask_for_failures(struct mesh *mesh, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);

    if (mesh->setup->failed_elsewhere == NULL ||
        now_ns - mesh->asked_ns < ASK_MS * UINT64_C(1000000))
        return 0;
    mesh->asked_ns = now_ns;
    return mesh->setup->failed_elsewhere(mesh->setup, err);
}

static int connect_all(struct mesh *mesh, struct ct_error *err)
{
    int code = 0;

    mesh->began_ns = mesh->asked_ns = ct_clock_mono_ns(&ct_clock_system);

    for (int lane = 0; lane < mesh->lanes && code == 0; lane++)
        for (int peer = 0; peer < mesh->setup->rank && code == 0; peer++)
            code = dial(mesh, &mesh->ups[mesh->dialled++], peer, lane, err);
    while (mesh->open > 0 && code == 0) {
        if (ct_job_revoked(mesh->setup->job))
            return ct_error_set(err, CT_EREVOKED, "the round was revoked");
        uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
        ct_worker_record_alive(mesh->setup->job->record, now_ns);
        if (now_ns >= mesh->setup->deadline_ns)
            return timeout_error(mesh, err);
        code = redial(mesh, err);
        if (code == 0)
            code = turn(mesh, err);
        if (code == 0)
            code = ask_for_failures(mesh, err);
    }
    return code;
}

int ct_mesh_lanes(const struct ct_blob *blobs)
{
    struct ct_mesh_address first;

    memcpy(&first, blobs[0].data, sizeof first);
    return CT_LANE_COLLECTIVE + (int)CT_MIN(CT_MAX(first.rails, 1u), (uint32_t)CT_RAILS_MAX);
}

int ct_mesh_connect(const struct ct_setup *setup, int listener, const struct ct_blob *blobs,
                    int *fds, struct ct_error *err)
{
    int lanes = ct_mesh_lanes(blobs);
    size_t size = (size_t)setup->size, ups = (size_t)lanes * size + GUESTS;
    struct ct_mesh_address *addresses = calloc(size, sizeof *addresses);
    struct mesh mesh = {.setup = setup,
                        .addresses = addresses,
                        .listener = listener,
                        .lanes = lanes,
                        .fds = fds,
                        .open = lanes * (setup->size - 1),
                        .ups = calloc(ups, sizeof *mesh.ups),
                        .polls = calloc(ups + 1, sizeof *mesh.polls)};
    int code = CT_ENOMEM;

    if (addresses == NULL || mesh.ups == NULL || mesh.polls == NULL) {
        ct_error_set(err, code, "no memory for the connections of %d ranks", setup->size);
        goto out;
    }
    for (size_t i = 0; i < size; i++)
        memcpy(&addresses[i], blobs[i].data, sizeof addresses[i]);
    code = connect_all(&mesh, err);
out:
    for (size_t i = 0; mesh.ups != NULL && i < ups; i++)
        if (mesh.ups[i].stage != UNUSED)
            hang_up(&mesh.ups[i]);
    free(addresses);
    free(mesh.ups);
    free(mesh.polls);
    return code;
}
