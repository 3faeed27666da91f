/* See tcp.h: connections, single messages, and the end of a group. */
#include "backend/tcp/tcp.h"

#include "backend/tcp/tcp_mesh.h"
#include "backend/tcp/tcp_silence.h"
#include "backend/tcp/tcp_tls.h"
#include "base/assert.h"
#include "base/clock.h"
#include "net/descriptors.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    SPINS = 20,
    QUERY_NS = 1000000000,
    TEND_NS = 1000000, /* how soon a member that dials is answered by one that never parks */
    MESH_POLLS = 64,   /* of the mesh, to wake a parked thread; a slice of 10 ms finds the others */
    NAME_BYTES = 400,
};

/* ---- lists -----------------------------------------------------------------------------------*/

void ct_tcp_list_add(struct ct_tcp_list *list, int index)
{
    int place = list->count;

    if (list->has[index])
        return;
    list->has[index] = true;
    for (; place > 0 && list->at[place - 1] > index; place--)
        list->at[place] = list->at[place - 1];
    list->at[place] = index;
    list->count++;
}

void ct_tcp_list_remove(struct ct_tcp_list *list, int place)
{
    list->has[list->at[place]] = false;
    list->count--;
    memmove(list->at + place, list->at + place + 1,
            (size_t)(list->count - place) * sizeof *list->at);
}

static bool list_init(struct ct_tcp_list *list, size_t count)
{
    list->at = calloc(count, sizeof *list->at);
    list->has = calloc(count, sizeof *list->has);
    return list->at != NULL && list->has != NULL;
}

static void list_deinit(struct ct_tcp_list *list)
{
    free(list->at);
    free(list->has);
}

/* ---- creation --------------------------------------------------------------------------------*/

static bool suits(const struct ct_setup *setup)
{
    return setup->size > 1;
}

static void close_group(void *state)
{
    struct ct_tcp *tcp = state;

    for (int i = 0; tcp->fds != NULL && i < tcp->connections * tcp->size; i++)
        if (tcp->fds[i] >= 0)
            (void)close(tcp->fds[i]);
    for (int i = 0; tcp->tls != NULL && i < tcp->connections * tcp->size; i++)
        ct_tcp_tls_free(tcp->tls[i]);
    ct_mesh_free(tcp->mesh);
    if (tcp->listener >= 0)
        (void)close(tcp->listener);
    if (tcp->wakeup >= 0)
        (void)close(tcp->wakeup);
    if (tcp->key != NULL)
        explicit_bzero(tcp->key, CT_SECRET_BYTES);
    free(tcp->key);
    free(tcp->name);
    free(tcp->tls);
    free(tcp->fds);
    free(tcp->queues);
    list_deinit(&tcp->active);
    list_deinit(&tcp->waiting);
    free(tcp->moves);
    free(tcp->header_call);
    ct_in_flight_deinit(&tcp->window);
    ct_pipelined_deinit(&tcp->pipelined);
    free(tcp->headers);
    free(tcp->wanted);
    free(tcp->polls);
    free(tcp);
}

static bool allocate(struct ct_tcp *tcp)
{
    size_t size = (size_t)tcp->size, rails = (size_t)tcp->rails,
           ends = (size_t)tcp->connections * size;
    size_t moves = CT_IN_FLIGHT_STEPS * (size_t)ct_pipelined_moves_max(&tcp->pipelined) * rails;

    bool listed = list_init(&tcp->active, 2 * rails * size) && list_init(&tcp->waiting, ends);
    tcp->fds = malloc(ends * sizeof *tcp->fds);
    tcp->queues = malloc(2 * rails * size * sizeof *tcp->queues);
    tcp->moves = calloc(moves, sizeof *tcp->moves);
    tcp->header_call = calloc(2 * size, sizeof *tcp->header_call);
    tcp->headers = calloc(size, CT_CALL_HEADER_BYTES);
    tcp->wanted = calloc(ends, sizeof *tcp->wanted);
    tcp->polls = calloc(ends + 1 + MESH_POLLS, sizeof *tcp->polls);
    for (size_t i = 0; tcp->fds != NULL && i < ends; i++)
        tcp->fds[i] = CT_MESH_NONE;
    for (size_t i = 0; tcp->queues != NULL && i < 2 * rails * size; i++)
        tcp->queues[i] = (struct ct_tcp_queue){CT_TCP_NONE, CT_TCP_NONE};
    for (size_t i = 0; tcp->moves != NULL && i < moves; i++)
        tcp->moves[i].next = i + 1 < moves ? (int)i + 1 : CT_TCP_NONE;
    return listed && tcp->fds != NULL && tcp->queues != NULL && tcp->moves != NULL &&
           tcp->header_call != NULL && tcp->headers != NULL && tcp->wanted != NULL &&
           tcp->polls != NULL && ct_in_flight_init(&tcp->window, &tcp->pipelined) == 0;
}

static int no_memory(int size, struct ct_error *err)
{
    return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", size);
}

/* Connections that are needed for sure: those that the group begins with; of a large one also those
 * of a barrier, in which a rank has 2 ceil log2 N peers, two of them in the ring. And one for a
 * caller that has not proved itself. */
static int check_descriptors(const struct ct_setup *setup, struct ct_error *err)
{
    uint32_t rails = (uint32_t)CT_MAX(setup->tuning.tcp_rails, (size_t)1), peers = 0, needed;

    for (int i = 0; i < setup->size; i++)
        peers += i != setup->rank && ct_setup_begins_with(setup, i);
    needed = peers * (CT_MESH_COLLECTIVE + rails);
    if (peers < (uint32_t)setup->size - 1)
        for (int distance = 2; distance <= setup->size / 2; distance *= 2)
            needed += 2 * distance == setup->size ? rails : 2 * rails;
    needed++;
    uint32_t left = ct_descriptors_left(needed);
    if (left == needed)
        return 0;
    return ct_error_set(err, CT_EUNAVAILABLE,
                        "rank %d has room for %u of the %u connections that it needs in group %s "
                        "of %d ranks: Too many open files: raise the limit of %llu (ulimit -n)",
                        setup->rank, left, needed, setup->key, setup->size,
                        (unsigned long long)ct_descriptors_limit());
}

static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    struct ct_tcp *tcp = calloc(1, sizeof *tcp);
    struct ct_mesh_address address = {0};

    if (tcp == NULL)
        return no_memory(setup->size, err);
    *ret_state = tcp;
    tcp->rank = setup->rank;
    tcp->size = setup->size;
    tcp->lost = -1;
    tcp->silence_ms = setup->tuning.tcp_silence_ms;
    tcp->listener = -1;
    tcp->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tcp->wakeup < 0)
        return ct_error_set(err, -errno, "eventfd failed: %s", strerrordesc_np(errno));
    if (ct_pipelined_init(&tcp->pipelined, setup) != 0)
        return no_memory(setup->size, err);
    int code = ct_mesh_listen(setup, &address, &tcp->listener, err);
    if (code == 0)
        code = check_descriptors(setup, err);
    memcpy(ret_blob->data, &address, sizeof address);
    return code;
}

/* Do all members want TLS, or none? With it, keep what the connections' ends are made of. */
static int agree_on_tls(struct ct_tcp *tcp, const struct ct_setup *setup,
                        const struct ct_blob *blobs, struct ct_error *err)
{
    const struct ct_assignment *a = &setup->job->assignment;
    struct ct_mesh_address address;

    for (int i = 0; i < tcp->size; i++) {
        memcpy(&address, blobs[i].data, sizeof address);
        if ((address.encrypted != 0) != setup->encrypt)
            return ct_error_set(err, CT_EMISMATCH,
                                "rank %d wants its connections encrypted, rank %d does not: each "
                                "member must ask for the same",
                                setup->encrypt ? setup->rank : i, setup->encrypt ? i : setup->rank);
    }
    if (!setup->encrypt)
        return 0;
    tcp->tls = calloc((size_t)tcp->connections * (size_t)tcp->size, sizeof(struct ct_tcp_tls *));
    tcp->name = malloc(NAME_BYTES);
    tcp->key = malloc(CT_SECRET_BYTES);
    if (tcp->tls == NULL || tcp->name == NULL || tcp->key == NULL)
        return no_memory(tcp->size, err);
    (void)snprintf(tcp->name, NAME_BYTES, "%s/%llu/%s", a->run_id,
                   (unsigned long long)a->generation, setup->key);
    memcpy(&address, blobs[0].data, sizeof address);
    memcpy(tcp->key, address.key, CT_SECRET_BYTES);
    explicit_bzero(&address, sizeof address);
    return 0;
}

/* A connection is there: its end of TLS, if it has none yet. */
static int make_tls(struct ct_tcp *tcp, int index, struct ct_error *err)
{
    if (tcp->tls == NULL || tcp->tls[index] != NULL)
        return 0;
    return ct_tcp_tls_new(tcp, index % tcp->size, index / tcp->size, &tcp->tls[index], err);
}

static int connect_group(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                         struct ct_error *err)
{
    struct ct_tcp *tcp = state;

    tcp->connections = ct_mesh_connection_count(blobs);
    tcp->rails = tcp->connections - CT_MESH_COLLECTIVE;
    if (!allocate(tcp))
        return no_memory(setup->size, err);
    int code = agree_on_tls(tcp, setup, blobs, err);
    if (code == 0)
        code = ct_mesh_new(setup, tcp->listener, blobs, tcp->fds, &tcp->mesh, err);
    if (code != 0)
        return code;
    tcp->listener = -1;
    code = ct_mesh_form(tcp->mesh, setup, err);
    for (int i = 0; i < tcp->connections * tcp->size && code == 0; i++)
        code = tcp->fds[i] >= 0 ? make_tls(tcp, i, err) : 0;
    return code;
}

static void end_mesh(struct ct_tcp *tcp)
{
    ct_mesh_free(tcp->mesh);
    tcp->mesh = NULL;
}

static void finish_setup(void *state)
{
    struct ct_tcp *tcp = state;

    if (ct_mesh_is_complete(tcp->mesh))
        end_mesh(tcp);
}

/* Answer members that dial, and go on with what was dialled. */
static int tend(void *state, struct ct_error *err)
{
    struct ct_tcp *tcp = state;
    uint64_t now_ns;

    if (tcp->mesh == NULL)
        return 0;
    now_ns = ct_clock_mono_ns(&ct_clock_system);
    if (!ct_mesh_is_pending(tcp->mesh) && now_ns - tcp->tended_ns < TEND_NS)
        return 0;
    tcp->tended_ns = now_ns;
    int code = ct_mesh_step(tcp->mesh, err);
    if (code == 0 && ct_mesh_is_complete(tcp->mesh))
        end_mesh(tcp);
    return code;
}

/* ---- messages --------------------------------------------------------------------------------*/

int ct_tcp_closed(int peer, int error, struct ct_error *err)
{
    if (error == 0)
        return ct_error_set(err, CT_ECLOSED, "rank %d has closed its connection", peer);
    return ct_error_set(err, CT_ECLOSED, "the connection with rank %d is lost: %s", peer,
                        strerrordesc_np(error));
}

static int attempt_in_clear(struct ct_tcp *tcp, int index, struct ct_tcp_move *move,
                            struct ct_error *err)
{
    short event = move->out ? POLLOUT : POLLIN;

    while (move->header_left + move->left > 0) {
        struct iovec parts[2] = {
            {move->header + CT_CALL_HEADER_BYTES - move->header_left, move->header_left},
            {move->data, move->left}};
        bool headless = move->header_left == 0;
        struct msghdr message = {.msg_iov = parts + (headless ? 1 : 0),
                                 .msg_iovlen = headless ? 1 : 2};
        ssize_t done = move->out ? sendmsg(tcp->fds[index], &message, MSG_DONTWAIT | MSG_NOSIGNAL)
                                 : recvmsg(tcp->fds[index], &message, MSG_DONTWAIT);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN) {
            tcp->wanted[index] |= event;
            return 0;
        }
        if (done <= 0)
            return ct_tcp_closed(move->peer, done < 0 ? errno : 0, err);
        size_t first = CT_MIN((size_t)done, move->header_left);
        move->header_left -= first;
        move->left -= (size_t)done - first;
        if ((size_t)done > first)
            move->data += (size_t)done - first;
    }
    return 1;
}

int ct_tcp_attempt(struct ct_tcp *tcp, int connection, struct ct_tcp_move *move,
                   struct ct_error *err)
{
    int index = connection * tcp->size + move->peer, code;

    if (move->peer == tcp->lost)
        return ct_tcp_closed(move->peer, ETIMEDOUT, err);
    if (tcp->fds[index] < 0)
        return tcp->mesh != NULL ? ct_mesh_need(tcp->mesh, connection, move->peer, err)
                                 : ct_tcp_closed(move->peer, 0, err);
    tcp->wanted[index] &= (short)~(move->out ? POLLOUT : POLLIN);
    if (tcp->tls == NULL) {
        code = attempt_in_clear(tcp, index, move, err);
    } else {
        code = make_tls(tcp, index, err);
        if (code == 0)
            code = ct_tcp_tls_attempt(tcp->tls[index], tcp->fds[index], move, &tcp->wanted[index],
                                      err);
    }
    if (code == 0)
        ct_tcp_list_add(&tcp->waiting, index);
    return code;
}

/* ---- waiting ---------------------------------------------------------------------------------*/

static int progress(void *state, struct ct_task *task, struct ct_error *err)
{
    int code = tend(state, err);

    if (code != 0)
        return code;
    if (ct_call_is_transfer(&task->call))
        return ct_tcp_transfer(state, task, err);
    return ct_tcp_collective(state, task, err);
}

static int spins(const void *state)
{
    (void)state;
    return SPINS;
}

static uint32_t arm(void *state)
{
    (void)state;
    return 0;
}

/* Nothing has arrived for a while: check whether a peer that this rank waits for is silent. */
static void check_silent_peers(struct ct_tcp *tcp)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    uint64_t interval_ns = CT_MIN((uint64_t)QUERY_NS, tcp->silence_ms * UINT64_C(1000000));

    if (now_ns - tcp->asked_ns < interval_ns)
        return;
    tcp->asked_ns = now_ns;
    for (int i = 0; i < tcp->waiting.count; i++) {
        int index = tcp->waiting.at[i];

        if (tcp->wanted[index] != 0 && ct_tcp_is_silent(tcp->fds[index], tcp->silence_ms))
            tcp->lost = index % tcp->size;
    }
}

/* Level-triggered, and only for what the last attempt could not do: nothing is missed, and there
 * are no needless wakeups. */
static void park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    struct ct_tcp *tcp = state;
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                             .tv_nsec = (long)(timeout_ns % 1000000000u)};
    nfds_t count = 1;
    uint64_t rings;

    (void)armed;
    if (timeout_ns == 0)
        return;
    for (int i = 0; i < tcp->waiting.count;) {
        int index = tcp->waiting.at[i];
        short events = tcp->wanted[index];

        if (tcp->tls != NULL)
            events |= ct_tcp_tls_wanted(tcp->tls[index]);
        if (events == 0) {
            ct_tcp_list_remove(&tcp->waiting, i);
            continue;
        }
        tcp->polls[count++] = (struct pollfd){.fd = tcp->fds[index], .events = events};
        i++;
    }
    if (tcp->mesh != NULL)
        count += ct_mesh_polls(tcp->mesh, tcp->polls + count, MESH_POLLS);
    tcp->polls[0] = (struct pollfd){.fd = tcp->wakeup, .events = POLLIN};
    int found = ppoll(tcp->polls, count, &limit, NULL);
    if (found > 0 && tcp->polls[0].revents != 0)
        (void)!read(tcp->wakeup, &rings, sizeof rings);
    if (found > 0)
        tcp->tended_ns = 0; /* it may be somebody who dials */
    if (found == 0)
        check_silent_peers(tcp);
}

static int missing(void *state, const struct ct_task *task)
{
    const struct ct_tcp *tcp = state;

    if (ct_call_is_transfer(&task->call))
        return task->call.peer;
    for (int i = 0; tcp->busy && i < tcp->active.count; i++) {
        int index = tcp->active.at[i];

        if (index >= tcp->rails * tcp->size &&
            ct_in_flight_may_start(&tcp->window, tcp->moves[tcp->queues[index].first].work))
            return index % tcp->size;
    }
    return -1;
}

/* ---- the end ---------------------------------------------------------------------------------*/

/* May a header be sent to `peer` now? Not behind one of this call, where data is expected. */
static bool between_messages(const struct ct_tcp *tcp, int peer)
{
    if (!tcp->busy || tcp->header_call[peer] != tcp->call)
        return true;
    int first = tcp->queues[peer].first;

    return first != CT_TCP_NONE && tcp->moves[first].header_left == CT_CALL_HEADER_BYTES;
}

/* Send a final header to peers that expect a header next, so that they know the cause, and end the
 * stream to all. */
static void fail(void *state, int code)
{
    struct ct_tcp *tcp = state;
    unsigned char header[CT_CALL_HEADER_BYTES];

    ct_call_header_write(header, &(struct ct_call_header){.code = code});
    for (int peer = 0; peer < tcp->size; peer++) {
        int index = CT_MESH_COLLECTIVE * tcp->size + peer;
        bool expected = tcp->fds[index] >= 0 && between_messages(tcp, peer);
        if (expected && tcp->tls == NULL)
            (void)send(tcp->fds[index], header, sizeof header, MSG_DONTWAIT | MSG_NOSIGNAL);
        else if (expected && tcp->tls[index] != NULL)
            ct_tcp_tls_goodbye(tcp->tls[index], tcp->fds[index], header);
        for (int connection = 0; connection < tcp->connections; connection++)
            if (tcp->fds[connection * tcp->size + peer] >= 0)
                (void)shutdown(tcp->fds[connection * tcp->size + peer], SHUT_WR);
    }
    end_mesh(tcp); /* who dials from now on is refused */
}

static void wake(void *state)
{
    uint64_t one = 1;

    (void)!write(((struct ct_tcp *)state)->wakeup, &one, sizeof one);
}

const struct ct_backend ct_backend_tcp = {
    .name = "tcp",
    .suits = suits,
    .prepare = prepare,
    .connect = connect_group,
    .finish_setup = finish_setup,
    .progress = progress,
    .tend = tend,
    .spins = spins,
    .arm = arm,
    .park = park,
    .missing = missing,
    .fail = fail,
    .wake = wake,
    .close = close_group,
};
