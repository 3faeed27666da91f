/* See worker_link_uv.h. */
#include "launch/worker_link_uv.h"

#include "base/assert.h"
#include "wire/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = 16 * 1024,
    READS_A_TURN = 16,
    LISTS_BYTES = 64 * 1024, /* of one message */
};

struct ct_worker_link {
    uv_poll_t poll;
    struct ct_worker_link_callbacks callbacks;
    int fd;            /* -1: closed */
    bool inside;       /* a callback is running */
    bool freed;        /* by the owner */
    bool closed;       /* the loop has let go of `poll` */
    uint32_t sequence; /* of the next frame sent */
    struct ct_frame_reader reader;
    struct ct_buf out;
};

static void on_ready(uv_poll_t *poll, int status, int events);

static void watch(struct ct_worker_link *link)
{
    int events = UV_READABLE | (link->out.size > 0 ? UV_WRITABLE : 0);

    if (link->fd >= 0)
        (void)uv_poll_start(&link->poll, events, on_ready);
}

/* The memory goes when nobody can touch it any more: owner, loop, running callback. */
static void try_free(struct ct_worker_link *link)
{
    if (!link->freed || !link->closed || link->inside)
        return;
    ct_frame_reader_deinit(&link->reader);
    ct_buf_deinit(&link->out);
    free(link);
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_worker_link *link = handle->data;

    link->closed = true;
    try_free(link);
}

/* The handle first: libuv must forget the number before another file gets it. */
static void close_fd(struct ct_worker_link *link)
{
    if (link->fd < 0)
        return;
    uv_close((uv_handle_t *)&link->poll, on_closed);
    (void)close(link->fd);
    link->fd = -1;
}

static void break_link(struct ct_worker_link *link, const struct ct_error *error)
{
    close_fd(link);
    link->callbacks.on_broken(link->callbacks.context, link->callbacks.worker, error);
}

int ct_worker_link_new(struct ct_worker_link **ret_link, uv_loop_t *loop,
                       const struct ct_worker_link_callbacks *callbacks, int *ret_fd,
                       struct ct_error *err)
{
    struct ct_worker_link *link = calloc(1, sizeof *link);
    int ends[2];

    if (link == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a worker link");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        int error = errno;
        free(link);
        return ct_error_set(err, CT_EOS, "no socket for a worker link: %s%s", ct_strerror(-error),
                            error == EMFILE ? "; raise `ulimit -n`" : "");
    }
    CT_ASSERT(uv_poll_init(loop, &link->poll, ends[0]) == 0); /* makes it non-blocking */
    link->poll.data = link;
    link->callbacks = *callbacks;
    link->fd = ends[0];
    ct_frame_reader_init(&link->reader, CT_FROM_WORKER, CT_WIRE_VALUE);
    ct_buf_init(&link->out, CT_LINK_QUEUE);
    watch(link);
    *ret_fd = ends[1];
    *ret_link = link;
    return 0;
}

/* ---- out ------------------------------------------------------------------------------------ */

static void write_out(struct ct_worker_link *link)
{
    while (link->fd >= 0 && link->out.size > 0) {
        ssize_t sent = send(link->fd, link->out.data, link->out.size, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            return;
        if (sent < 0) { /* the worker is gone, SIGCHLD tells the rest */
            close_fd(link);
            return;
        }
        ct_buf_consume(&link->out, (size_t)sent);
    }
}

void ct_worker_link_send(struct ct_worker_link *link, const struct ct_message *message)
{
    struct ct_error err = {0};

    if (link->fd < 0)
        return;
    if (ct_wire_encode(message, link->sequence, &link->out, &err) != 0) {
        break_link(link, &err);
        return;
    }
    link->sequence++;
    write_out(link);
    watch(link);
}

/* ---- in ------------------------------------------------------------------------------------- */

/* Hand out the frames that are complete; false when the link is of no use any more. */
static bool deliver(struct ct_worker_link *link)
{
    struct ct_error err = {0};
    struct ct_frame frame;
    struct ct_arena arena;
    int rc = 0;

    ct_arena_init(&arena, LISTS_BYTES);
    while (link->fd >= 0 && !link->freed &&
           (rc = ct_frame_reader_next(&link->reader, &frame, &err)) == 1) {
        struct ct_message message;

        rc = ct_wire_decode(&frame, &arena, &message, &err);
        if (rc != 0)
            break;
        link->callbacks.on_message(link->callbacks.context, link->callbacks.worker, &message);
        ct_arena_deinit(&arena);
    }
    ct_arena_deinit(&arena);
    if (rc < 0 && !link->freed)
        break_link(link, &err);
    return rc >= 0 && link->fd >= 0 && !link->freed;
}

static void read_in(struct ct_worker_link *link)
{
    char data[READ_BYTES];

    for (int i = 0; i < READS_A_TURN; i++) {
        ssize_t size = recv(link->fd, data, sizeof data, MSG_DONTWAIT);

        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (size <= 0) { /* the worker closed its end */
            close_fd(link);
            return;
        }
        if (ct_frame_reader_push(&link->reader, data, (size_t)size) != 0) {
            struct ct_error err = {0};

            (void)ct_error_set(&err, CT_ELIMIT, "a worker's messages do not fit in memory");
            break_link(link, &err);
            return;
        }
        if (!deliver(link))
            return;
    }
}

/* Callbacks may free the link; it stays until they are back. */
static void enter(struct ct_worker_link *link)
{
    CT_ASSERT(!link->inside);
    link->inside = true;
}

static void leave(struct ct_worker_link *link)
{
    link->inside = false;
    watch(link);
    try_free(link);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct ct_worker_link *link = poll->data;

    enter(link);
    if (status < 0)
        close_fd(link);
    if (events & UV_WRITABLE)
        write_out(link);
    if (link->fd >= 0 && (events & UV_READABLE))
        read_in(link);
    leave(link);
}

void ct_worker_link_drain(struct ct_worker_link *link)
{
    enter(link);
    if (link->fd >= 0)
        read_in(link);
    leave(link);
}

void ct_worker_link_free(struct ct_worker_link *link)
{
    if (link == NULL)
        return;
    link->freed = true;
    close_fd(link);
    try_free(link);
}
