/* See tcp_mesh.h. One poll loop over the listener, what was dialled and what was accepted. */
#include "backend/tcp/tcp_mesh.h"
#include "backend/tcp/tcp_silence.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"

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
    ASK_MS = 2000,         /* how often to ask whether a member has given up */
    STRANGERS = 128,       /* places for callers that nobody expects */
    GUEST_MS = 20,         /* who has said no HELLO for so long makes room when others wait */
    ACCEPT_AGAIN_MS = 100, /* until the next try when there is no descriptor for a caller */
    AGAIN_LEAST_MS = 20,   /* between two dials, doubled each time ... */
    AGAIN_MOST_MS = 1000,  /* ... up to this, and half of it more or less */
    PATIENCE_S = 30,       /* for how long a network may refuse */
    MS = 1000000,
};

static const char HUNG_UP[] = "it hangs up on each dial";

/* Dialled: CONNECTING, then GREETING, or RESTING until it is dialled again; accepted: LISTENING for
 * the HELLO, then for its CONFIRMATION. */
enum stage { UNUSED, CONNECTING, RESTING, GREETING, LISTENING, CONFIRMATION };

/* A connection that is not in the mesh yet. */
struct call_up {
    int fd; /* none while it is RESTING */
    enum stage stage;
    int peer, lane;
    uint64_t at_ns;  /* RESTING: when it is dialled again; LISTENING: when it was accepted */
    unsigned dials;  /* so far */
    int polled;      /* its index of `polls`, 0: none */
    const char *why; /* the last one did not succeed; NULL: none has failed */
    size_t have;     /* of `bytes`: what comes next */
    unsigned char bytes[CT_HELLO_BYTES], hello[CT_HELLO_BYTES], answer[CT_ANSWER_BYTES];
};

struct mesh {
    const struct ct_setup *setup;
    const struct ct_mesh_address *addresses;
    struct ct_handshake handshake;
    struct ct_rng dice; /* so that not all dial again at once */
    int listener;
    int lanes;
    int *fds;
    int open;            /* connections that are still to come */
    struct call_up *ups; /* first those dialled, then the guests' places */
    int dialled, guests, next_guest;
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

static struct call_up *guest(const struct mesh *mesh, int index)
{
    return &mesh->ups[mesh->dialled + index];
}

/* Somebody who has seen a HELLO on the network says it once more. */
static bool is_repeated(const struct mesh *mesh, const unsigned char *hello)
{
    for (int i = 0; i < mesh->guests; i++)
        if (guest(mesh, i)->stage == CONFIRMATION &&
            memcmp(guest(mesh, i)->hello, hello, CT_HELLO_BYTES) == 0)
            return true;
    return false;
}

/* Its HELLO is there: is it a member that is still to come? */
static void judge_hello(struct mesh *mesh, struct call_up *up)
{
    uint32_t rank = (uint32_t)mesh->setup->rank, size = (uint32_t)mesh->setup->size;
    unsigned char nonce[CT_NONCE_BYTES];
    struct ct_lane_ends ends;

    if (!ct_hello_read(&mesh->handshake, up->bytes, &ends) || ends.to != rank ||
        ends.from <= rank || ends.from >= size || ends.lane >= (uint32_t)mesh->lanes ||
        mesh->fds[ends.lane * size + ends.from] >= 0 || is_repeated(mesh, up->bytes) ||
        getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce) {
        hang_up(up);
        return;
    }
    up->peer = (int)ends.from;
    up->lane = (int)ends.lane;
    memcpy(up->hello, up->bytes, CT_HELLO_BYTES);
    ct_answer_write(&mesh->handshake, up->hello, nonce, up->answer);
    up->stage = CONFIRMATION;
    up->have = 0;
    if (!send_whole(up->fd, up->answer, CT_ANSWER_BYTES))
        hang_up(up);
}

static void judge_confirmation(struct mesh *mesh, struct call_up *up)
{
    if (mesh->fds[up->lane * mesh->setup->size + up->peer] >= 0 ||
        !ct_confirm_is(&mesh->handshake, up->hello, up->answer, up->bytes))
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

/* The network may think better of it: a cable that has just come back, ports or descriptors that
 * become free. */
static bool is_passing(int error)
{
    return error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
           error == ENETDOWN || error == ETIMEDOUT || error == EADDRNOTAVAIL || error == EAGAIN ||
           error == EMFILE || error == ENFILE || error == ENOBUFS;
}

static void dial_later(struct mesh *mesh, struct call_up *up, const char *why)
{
    uint64_t rest_ms = (uint64_t)AGAIN_LEAST_MS << CT_MIN(up->dials, 6u);

    rest_ms = CT_MIN(rest_ms, (uint64_t)AGAIN_MOST_MS);
    rest_ms = rest_ms / 2 + ct_rng_below(&mesh->dice, rest_ms);
    up->why = why;
    up->stage = RESTING;
    up->at_ns = ct_clock_mono_ns(&ct_clock_system) + rest_ms * MS;
}

/* `up`, which has no descriptor any more, could not be connected: once more later, or an error. */
static int rest(struct mesh *mesh, struct call_up *up, int error, struct ct_error *err)
{
    uint64_t waited_ns = ct_clock_mono_ns(&ct_clock_system) - mesh->began_ns;

    up->stage = UNUSED;
    if (error != ECONNRESET &&
        (!is_passing(error) || waited_ns > PATIENCE_S * UINT64_C(1000000000)))
        return dial_error(mesh, up->peer, strerrordesc_np(error), err);
    dial_later(mesh, up, error == ECONNRESET ? HUNG_UP : strerrordesc_np(error));
    return 0;
}

static int rest_closed(struct mesh *mesh, struct call_up *up, int error, struct ct_error *err)
{
    (void)close(up->fd);
    return rest(mesh, up, error, err);
}

static int dial(struct mesh *mesh, struct call_up *up, struct ct_error *err)
{
    const struct ct_mesh_address *address = &mesh->addresses[up->peer];

    up->stage = UNUSED;
    up->have = 0;
    up->dials++;
    if (address->socket_bytes > sizeof address->socket)
        return dial_error(mesh, up->peer, "no address", err);
    up->fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (up->fd < 0)
        return rest(mesh, up, errno, err);
    ct_mesh_reuse_port(up->fd);
    up->stage = CONNECTING;
    if (connect(up->fd, (const struct sockaddr *)&address->socket, address->socket_bytes) != 0 &&
        errno != EINPROGRESS)
        return rest_closed(mesh, up, errno, err);
    return 0;
}

/* Dial again whom it is time for. */
static int redial(struct mesh *mesh, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    int code = 0;

    for (int i = 0; i < mesh->dialled && code == 0; i++)
        if (mesh->ups[i].stage == RESTING && now_ns >= mesh->ups[i].at_ns)
            code = dial(mesh, &mesh->ups[i], err);
    return code;
}

/* The connection stands, or does not. */
static int greet(struct mesh *mesh, struct call_up *up, struct ct_error *err)
{
    struct ct_lane_ends ends = {
        .from = (uint32_t)mesh->setup->rank,
        .to = (uint32_t)up->peer,
        .lane = (uint32_t)up->lane,
    };
    unsigned char nonce[CT_NONCE_BYTES];
    int error = 0;
    socklen_t size = sizeof error;

    (void)getsockopt(up->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0)
        return rest_closed(mesh, up, error, err);
    if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return dial_error(mesh, up->peer, "the system gives no random numbers", err);
    ct_hello_write(&mesh->handshake, ends, nonce, up->hello);
    if (!send_whole(up->fd, up->hello, CT_HELLO_BYTES))
        return rest_closed(mesh, up, ECONNRESET, err);
    up->stage = GREETING;
    return 0;
}

static int take_answer(struct mesh *mesh, struct call_up *up, struct ct_error *err)
{
    unsigned char confirm[CT_CONFIRM_BYTES];

    if (!ct_answer_is(&mesh->handshake, up->hello, up->bytes))
        return dial_error(mesh, up->peer, "what answers there is not that rank", err);
    ct_confirm_write(&mesh->handshake, up->hello, up->bytes, confirm);
    if (!send_whole(up->fd, confirm, CT_CONFIRM_BYTES))
        return rest_closed(mesh, up, ECONNRESET, err);
    admit(mesh, up);
    return 0;
}

/* ---- the loop --------------------------------------------------------------------------------*/

static size_t bytes_wanted(enum stage stage)
{
    return stage == GREETING    ? CT_ANSWER_BYTES
           : stage == LISTENING ? CT_HELLO_BYTES
                                : CT_CONFIRM_BYTES;
}

/* Something can be read: 0, or an error that ends the attempt (a guest's never does). Who is cut
 * off before the answer may have met a listener that was short of something: he dials again. */
static int hear(struct mesh *mesh, struct call_up *up, struct ct_error *err)
{
    size_t wanted = bytes_wanted(up->stage);
    ssize_t got = recv(up->fd, up->bytes + up->have, wanted - up->have, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0 && up->stage == GREETING)
        return rest_closed(mesh, up, got == 0 ? ECONNRESET : errno, err);
    if (got <= 0) {
        hang_up(up);
        return 0;
    }
    up->have += (size_t)got;
    if (up->have < wanted)
        return 0;
    if (up->stage == GREETING)
        return take_answer(mesh, up, err);
    if (up->stage == LISTENING)
        judge_hello(mesh, up);
    else
        judge_confirmation(mesh, up);
    return 0;
}

/* Others wait for a place: hang up on guests that have said nothing for too long. What they may
 * have said meanwhile is read first. */
static bool make_room(struct mesh *mesh)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    bool room = false;

    for (int i = 0; i < mesh->guests; i++) {
        struct call_up *up = guest(mesh, i);

        if (up->stage == LISTENING && now_ns - up->at_ns > GUEST_MS * UINT64_C(1000000)) {
            (void)hear(mesh, up, NULL);
            if (up->stage == LISTENING)
                hang_up(up);
        }
        room |= up->stage == UNUSED;
    }
    return room;
}

/* NULL: all are taken, by those that are expected and by strangers in their short patience. */
static struct call_up *free_place(struct mesh *mesh)
{
    for (int i = 0; i < mesh->guests; i++) {
        struct call_up *up = guest(mesh, (mesh->next_guest + i) % mesh->guests);

        if (up->stage == UNUSED) {
            mesh->next_guest = (mesh->next_guest + i + 1) % mesh->guests;
            return up;
        }
    }
    return NULL;
}

/* Accept while there are places; the rest waits in the listener's backlog, where what it says is
 * kept. Each is heard at once, so those that have said their HELLO are never in anybody's way. */
static void accept_guests(struct mesh *mesh)
{
    for (int i = 0; i < mesh->guests; i++) {
        struct call_up *up = free_place(mesh);

        if (up == NULL && make_room(mesh))
            up = free_place(mesh);
        if (up == NULL)
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
        *up = (struct call_up){.fd = fd, .stage = LISTENING, .at_ns = now_ns};
        (void)hear(mesh, up, NULL);
    }
}

/* A caller may come: there is a place, or one can be made, and no want of descriptors. */
static bool may_accept(struct mesh *mesh)
{
    if (ct_clock_mono_ns(&ct_clock_system) < mesh->accept_ns)
        return false;
    return free_place(mesh) != NULL || make_room(mesh);
}

/* Wait for whatever is open; what the kernel looks at may not be more than the limit on
 * descriptors, so places that are free are left out. */
static int turn(struct mesh *mesh, struct ct_error *err)
{
    int code = 0;
    nfds_t count = 1;

    mesh->polls[0] =
        (struct pollfd){.fd = may_accept(mesh) ? mesh->listener : -1, .events = POLLIN};
    for (int i = 0; i < mesh->dialled + mesh->guests; i++) {
        struct call_up *up = &mesh->ups[i];

        up->polled = 0;
        if (up->stage == UNUSED || up->stage == RESTING)
            continue;
        up->polled = (int)count;
        mesh->polls[count++] =
            (struct pollfd){.fd = up->fd, .events = up->stage == CONNECTING ? POLLOUT : POLLIN};
    }
    if (poll(mesh->polls, count, SLICE_MS) <= 0)
        return 0;
    for (int i = 0; i < mesh->dialled + mesh->guests && code == 0; i++) {
        struct call_up *up = &mesh->ups[i];

        if (up->polled == 0 || mesh->polls[up->polled].revents == 0)
            continue;
        code = up->stage == CONNECTING ? greet(mesh, up, err) : hear(mesh, up, err);
    }
    if (mesh->polls[0].revents != 0)
        accept_guests(mesh);
    return code;
}

static int timeout_error(const struct mesh *mesh, struct ct_error *err)
{
    int size = mesh->setup->size, i = 0;

    while (i % size == mesh->setup->rank || mesh->fds[i] >= 0)
        i++;
    int peer = i % size;
    const char *why = peer < mesh->setup->rank ? mesh->ups[i / size * mesh->setup->rank + peer].why
                                               : mesh->accept_why;
    return ct_error_set(err, CT_ETIMEOUT, "rank %d has no connection with rank %d in time%s%s",
                        mesh->setup->rank, peer, why != NULL ? ": " : "", why != NULL ? why : "");
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

static int dial_first(struct mesh *mesh, int peer, int lane, struct ct_error *err)
{
    struct call_up *up = &mesh->ups[lane * mesh->setup->rank + peer];

    up->peer = peer;
    up->lane = lane;
    return dial(mesh, up, err);
}

static int connect_all(struct mesh *mesh, struct ct_error *err)
{
    int code = 0;

    mesh->began_ns = mesh->asked_ns = ct_clock_mono_ns(&ct_clock_system);

    for (int lane = 0; lane < mesh->lanes && code == 0; lane++)
        for (int peer = 0; peer < mesh->setup->rank && code == 0; peer++)
            code = dial_first(mesh, peer, lane, err);
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
    size_t size = (size_t)setup->size, ups = (size_t)lanes * (size - 1) + STRANGERS;
    struct ct_mesh_address *addresses = calloc(size, sizeof *addresses);
    struct mesh mesh = {.setup = setup,
                        .addresses = addresses,
                        .listener = listener,
                        .lanes = lanes,
                        .fds = fds,
                        .open = lanes * (setup->size - 1),
                        .dialled = lanes * setup->rank,
                        .guests = lanes * (setup->size - 1 - setup->rank) + STRANGERS,
                        .ups = calloc(ups, sizeof *mesh.ups),
                        .polls = calloc(ups + 1, sizeof *mesh.polls)};
    int code = CT_ENOMEM;

    if (addresses == NULL || mesh.ups == NULL || mesh.polls == NULL) {
        ct_error_set(err, code, "no memory for the connections of %d ranks", setup->size);
        goto out;
    }
    for (size_t i = 0; i < size; i++)
        memcpy(&addresses[i], blobs[i].data, sizeof addresses[i]);
    mesh.handshake = handshake_of(setup, addresses);
    ct_rng_init(&mesh.dice, ct_get_le64(addresses[setup->rank].secret));
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
