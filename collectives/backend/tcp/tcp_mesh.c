/* See tcp_mesh.h: which connections are made, and one poll over the listener and all that is
 * pending. */
#include "backend/tcp/tcp_mesh_state.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/number/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SLICE_MS = 10,
    ASK_MS = 2000,         /* how often to ask whether a member has given up */
    STRANGERS_MAX = 128,   /* callers without a HELLO, at a time */
    HELLO_MS = 20,         /* one who sends none for so long is disconnected when others wait */
    ACCEPT_AGAIN_MS = 100, /* until the next try when there is no descriptor for a caller */
    MS = 1000000,
};

/* ---- begin and end ---------------------------------------------------------------------------*/

static void read_address(struct ct_mesh_address *ret_address, const struct ct_blob *blob)
{
    memcpy(ret_address, blob->data, sizeof *ret_address);
    ret_address->socket_bytes =
        (uint8_t)CT_MIN((size_t)ret_address->socket_bytes, sizeof ret_address->socket);
}

/* The addresses of all, one behind the other. */
static bool keep_addresses(struct ct_mesh *mesh, const struct ct_blob *blobs)
{
    size_t size = (size_t)mesh->size, used = 0;
    struct ct_mesh_address address;

    mesh->address_at = calloc(size + 1, sizeof *mesh->address_at);
    for (size_t i = 0; i < size && mesh->address_at != NULL; i++) {
        read_address(&address, &blobs[i]);
        used += address.socket_bytes;
        mesh->address_at[i + 1] = (uint32_t)used;
    }
    mesh->addresses = malloc(used + 1);
    if (mesh->address_at == NULL || mesh->addresses == NULL)
        return false;
    for (size_t i = 0; i < size; i++) {
        read_address(&address, &blobs[i]);
        memcpy(mesh->addresses + mesh->address_at[i], &address.socket, address.socket_bytes);
    }
    return true;
}

int ct_mesh_connection_count(const struct ct_blob *blobs)
{
    struct ct_mesh_address first;

    read_address(&first, &blobs[0]);
    return CT_MESH_COLLECTIVE + CT_MIN(CT_MAX((int)first.rails, 1), (int)CT_RAILS_MAX);
}

int ct_mesh_new(const struct ct_setup *setup, int listener, const struct ct_blob *blobs, int *fds,
                struct ct_mesh **ret_mesh, struct ct_error *err)
{
    const struct ct_assignment *a = &setup->job->assignment;
    struct ct_mesh *mesh = calloc(1, sizeof *mesh);
    struct ct_mesh_address first;

    if (mesh == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the connections of %d ranks",
                            setup->size);
    read_address(&first, &blobs[0]);
    mesh->job = setup->job;
    mesh->rank = setup->rank;
    mesh->size = setup->size;
    mesh->connections = ct_mesh_connection_count(blobs);
    mesh->all = mesh->connections * (setup->size - 1);
    mesh->silence_ms = setup->tuning.tcp_silence_ms;
    mesh->fds = fds;
    mesh->listener = listener;
    memcpy(mesh->secret, first.secret, sizeof mesh->secret);
    explicit_bzero(&first, sizeof first);
    mesh->handshake = (struct ct_handshake){.secret = mesh->secret,
                                            .run = ct_hash_str(a->run_id),
                                            .generation = a->generation,
                                            .group = ct_hash_str(setup->key)};
    ct_rng_init(&mesh->jitter, ct_get_le64(mesh->secret) + (uint64_t)setup->rank);
    for (int i = 0; i < mesh->connections * mesh->size; i++)
        fds[i] = CT_MESH_NONE;
    if (!keep_addresses(mesh, blobs)) {
        mesh->listener = -1; /* still the caller's */
        ct_mesh_free(mesh);
        return ct_error_set(err, CT_ENOMEM, "no memory for the addresses of %d ranks", setup->size);
    }
    *ret_mesh = mesh;
    return 0;
}

/* Free what is over. */
static void sweep(struct ct_mesh *mesh)
{
    struct mesh_pending **at = &mesh->pending;

    while (*at != NULL) {
        struct mesh_pending *pending = *at;

        if (pending->stage == OVER) {
            *at = pending->next;
            free(pending);
        } else {
            at = &pending->next;
        }
    }
}

void ct_mesh_free(struct ct_mesh *mesh)
{
    if (mesh == NULL)
        return;
    for (struct mesh_pending *pending = mesh->pending; pending != NULL; pending = pending->next)
        mesh_drop(mesh, pending);
    sweep(mesh);
    if (mesh->listener >= 0)
        (void)close(mesh->listener);
    free(mesh->addresses);
    free(mesh->address_at);
    free(mesh->polls);
    explicit_bzero(mesh->secret, sizeof mesh->secret);
    free(mesh);
}

bool ct_mesh_is_pending(const struct ct_mesh *mesh)
{
    return mesh->pending != NULL;
}

bool ct_mesh_is_complete(const struct ct_mesh *mesh)
{
    return mesh->open == mesh->all;
}

/* ---- callers ---------------------------------------------------------------------------------*/

/* Make room for others: end callers that have sent nothing for too long. What they may have sent
 * meanwhile is read first. */
static bool make_room(struct ct_mesh *mesh, uint64_t now_ns)
{
    struct mesh_pending *pending = mesh->pending;

    for (; pending != NULL; pending = pending->next) {
        if (pending->stage != HELLO_AWAITED || now_ns - pending->at_ns <= HELLO_MS * MS)
            continue;
        (void)mesh_advance(mesh, pending, NULL);
        if (pending->stage == HELLO_AWAITED)
            mesh_drop(mesh, pending);
    }
    return mesh->strangers < STRANGERS_MAX;
}

/* Accept only if there is room, or can be made, and descriptors are not short. */
static bool may_accept(struct ct_mesh *mesh, uint64_t now_ns)
{
    return now_ns >= mesh->accept_ns &&
           (mesh->strangers < STRANGERS_MAX || make_room(mesh, now_ns));
}

static void cannot_accept(struct ct_mesh *mesh, int error, uint64_t now_ns)
{
    mesh->refused_error = error;
    mesh->refused_ns = mesh->refused_ns != 0 ? mesh->refused_ns : now_ns;
    mesh->accept_ns = now_ns + ACCEPT_AGAIN_MS * MS;
    (void)make_room(mesh, now_ns);
}

/* Accept while there is room; further callers wait in the listener's backlog, which keeps what they
 * send. Each is read at once, so one who has sent the HELLO blocks no other one. */
static void accept_callers(struct ct_mesh *mesh)
{
    for (int i = 0; i < STRANGERS_MAX; i++) {
        uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);

        if (!may_accept(mesh, now_ns))
            return;
        int fd = accept4(mesh->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            cannot_accept(mesh, errno, now_ns);
        if (fd < 0)
            return;
        mesh->refused_ns = 0;
        mesh_take_call(mesh, fd, now_ns);
    }
}

/* The members that call wait, and nobody would say why. */
static int check_accepting(const struct ct_mesh *mesh, uint64_t now_ns, struct ct_error *err)
{
    char why[200];

    if (mesh->refused_ns == 0 ||
        now_ns - mesh->refused_ns < MESH_NETWORK_DOWN_S * UINT64_C(1000) * MS)
        return 0;
    mesh_describe(mesh->refused_error, why, sizeof why);
    return ct_error_set(err, CT_EUNAVAILABLE, "rank %d cannot accept connections: %s", mesh->rank,
                        why);
}

/* ---- a step ----------------------------------------------------------------------------------*/

static bool is_open(const struct mesh_pending *pending)
{
    return pending->stage != OVER && pending->stage != BACKING_OFF;
}

/* Those that are open: the kernel refuses more entries than the limit on descriptors. */
size_t ct_mesh_polls(struct ct_mesh *mesh, struct pollfd *polls, size_t room)
{
    size_t count = 0;

    if (room > 0 && may_accept(mesh, ct_clock_mono_ns(&ct_clock_system)))
        polls[count++] = (struct pollfd){.fd = mesh->listener, .events = POLLIN};
    for (const struct mesh_pending *pending = mesh->pending; pending != NULL && count < room;
         pending = pending->next)
        if (is_open(pending))
            polls[count++] = (struct pollfd){
                .fd = pending->fd, .events = pending->stage == CONNECTING ? POLLOUT : POLLIN};
    return count;
}

static int make_polls(struct ct_mesh *mesh, struct ct_error *err)
{
    size_t needed = 1;

    for (const struct mesh_pending *pending = mesh->pending; pending != NULL;
         pending = pending->next)
        needed++;
    if (needed <= mesh->polls_room)
        return 0;
    struct pollfd *polls = realloc(mesh->polls, 2 * needed * sizeof *polls);
    if (polls == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory to wait for %zu connections", needed);
    mesh->polls = polls;
    mesh->polls_room = 2 * needed;
    return 0;
}

/* Poll the listener and all that is pending. */
static int poll_all(struct ct_mesh *mesh, int timeout_ms, struct ct_error *err)
{
    int code = make_polls(mesh, err);

    if (code != 0)
        return code;
    size_t count = ct_mesh_polls(mesh, mesh->polls, mesh->polls_room);
    size_t at =
        count > 0 && mesh->polls[0].fd == mesh->listener; /* behind the listener, if there */
    if (poll(mesh->polls, count, timeout_ms) <= 0)
        return 0;
    bool calls = at > 0 && mesh->polls[0].revents != 0;
    for (struct mesh_pending *pending = mesh->pending; pending != NULL; pending = pending->next)
        pending->found = is_open(pending) ? mesh->polls[at++].revents : 0;
    for (struct mesh_pending *pending = mesh->pending; pending != NULL && code == 0;
         pending = pending->next)
        if (pending->found != 0 && is_open(pending))
            code = mesh_advance(mesh, pending, err);
    if (calls)
        accept_callers(mesh);
    return code;
}

static int step(struct ct_mesh *mesh, int timeout_ms, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    int code = check_accepting(mesh, now_ns, err);

    for (struct mesh_pending *pending = mesh->pending; pending != NULL && code == 0;
         pending = pending->next)
        code = mesh_redial(mesh, pending, now_ns, err);
    if (code == 0)
        code = poll_all(mesh, timeout_ms, err);
    sweep(mesh);
    return code;
}

int ct_mesh_step(struct ct_mesh *mesh, struct ct_error *err)
{
    return step(mesh, 0, err);
}

int ct_mesh_need(struct ct_mesh *mesh, int connection, int peer, struct ct_error *err)
{
    if (*mesh_fd(mesh, connection, peer) != CT_MESH_NONE)
        return 0;
    return mesh_dial(mesh, connection, peer, err);
}

/* ---- what a group begins with ----------------------------------------------------------------*/

/* One of two dials: the one that is behind the other, going round the shorter way. */
static bool dials(const struct ct_mesh *mesh, int peer)
{
    int ahead = (peer - mesh->rank + mesh->size) % mesh->size;

    return 2 * ahead < mesh->size || (2 * ahead == mesh->size && mesh->rank > peer);
}

/* A connection that is still to come; -1: none. */
static int find_missing(const struct ct_mesh *mesh, const struct ct_setup *setup)
{
    for (int i = 0; mesh->open < mesh->all && i < mesh->connections * mesh->size; i++)
        if (i % mesh->size != mesh->rank && mesh->fds[i] < 0 &&
            ct_setup_begins_with(setup, i % mesh->size))
            return i;
    return -1;
}

static int timeout_error(const struct ct_mesh *mesh, int missing, struct ct_error *err)
{
    const char *why = mesh->refused_ns != 0 ? strerrordesc_np(mesh->refused_error) : NULL;
    int peer = missing % mesh->size;

    for (const struct mesh_pending *pending = mesh->pending; pending != NULL;
         pending = pending->next)
        if (pending->dialled && pending->peer == peer && pending->stage == CONNECTING)
            return mesh_unanswered(mesh, peer, err);
        else if (pending->dialled && pending->peer == peer && pending->stage != OVER)
            why = pending->why;
    return ct_error_set(err, CT_ETIMEOUT, "rank %d has no connection with rank %d in time%s%s",
                        mesh->rank, peer, why != NULL ? ": " : "", why != NULL ? why : "");
}

static int dial_first(struct ct_mesh *mesh, const struct ct_setup *setup, struct ct_error *err)
{
    int code = 0;

    for (int i = 0; i < mesh->connections * mesh->size && code == 0; i++) {
        int peer = i % mesh->size;

        if (peer != mesh->rank && ct_setup_begins_with(setup, peer) && dials(mesh, peer))
            code = ct_mesh_need(mesh, i / mesh->size, peer, err);
    }
    return code;
}

int ct_mesh_form(struct ct_mesh *mesh, const struct ct_setup *setup, struct ct_error *err)
{
    uint64_t asked_ns = ct_clock_mono_ns(&ct_clock_system);
    int code = dial_first(mesh, setup, err), missing;

    while (code == 0 && (missing = find_missing(mesh, setup)) >= 0) {
        uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);

        if (ct_job_revoked(mesh->job))
            return ct_error_set(err, CT_EREVOKED, "the round was revoked");
        ct_worker_record_alive(mesh->job->record, now_ns);
        if (now_ns >= setup->deadline_ns)
            return timeout_error(mesh, missing, err);
        code = step(mesh, SLICE_MS, err);
        if (code == 0 && setup->failed_elsewhere != NULL &&
            now_ns - asked_ns >= ASK_MS * (uint64_t)MS) {
            asked_ns = now_ns;
            code = setup->failed_elsewhere(setup, err); /* else its peers wait to the deadline */
        }
    }
    mesh->is_formed = code == 0;
    return code;
}
