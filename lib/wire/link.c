/* Messages over a socket without a loop; see link.h. */
#include "wire/link.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* A point in time to wait for; negative `timeout_ms` means no limit. */
struct deadline {
    bool none;
    uint64_t at_ms;
};

static struct deadline deadline_in(int timeout_ms)
{
    struct deadline deadline = {.none = timeout_ms < 0};

    if (!deadline.none)
        deadline.at_ms = ct_clock_mono_ms(&ct_clock_system) + (uint64_t)timeout_ms;
    return deadline;
}

/* Wait for `events`: 1, 0 when the deadline passed, or a negative errno. */
static int wait_for(int fd, short events, const struct deadline *deadline)
{
    for (;;) {
        int rest_ms = -1;
        if (!deadline->none) {
            uint64_t now_ms = ct_clock_mono_ms(&ct_clock_system);
            uint64_t rest = deadline->at_ms > now_ms ? deadline->at_ms - now_ms : 0;
            rest_ms = (int)(rest < INT_MAX ? rest : INT_MAX);
        }
        struct pollfd entry = {.fd = fd, .events = events};
        int count = poll(&entry, 1, rest_ms);
        if (count > 0)
            return 1;
        if (count < 0 && errno != EINTR)
            return -errno;
        if (count == 0 && rest_ms == 0)
            return 0;
    }
}

void ct_link_init(struct ct_link *link, int fd, unsigned from)
{
    *link = (struct ct_link){.fd = fd};
    ct_frame_reader_init(&link->reader, from, CT_WIRE_VALUE);
}

void ct_link_deinit(struct ct_link *link)
{
    if (link == NULL)
        return;
    ct_frame_reader_deinit(&link->reader);
    ct_buf_deinit(&link->out);
}

static bool is_gone(int error)
{
    return error == EPIPE || error == ECONNRESET;
}

int ct_link_send(struct ct_link *link, const struct ct_message *message, int timeout_ms,
                 struct ct_error *err)
{
    struct deadline deadline = deadline_in(timeout_ms);

    ct_buf_clear(&link->out);
    ct_frame_reader_note_sent(&link->reader, message);
    int code =
        ct_wire_encode_as(message, link->reader.protocol, link->next_sequence, &link->out, err);
    if (code != 0)
        return code == CT_WIRE_NOT_THERE ? 0 : code;
    for (size_t sent = 0; sent < link->out.size;) {
        ssize_t count = send(link->fd, link->out.data + sent, link->out.size - sent,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count >= 0) {
            sent += (size_t)count;
            continue;
        }
        if (is_gone(errno))
            return ct_error_set(err, CT_ECLOSED, "the peer has closed the link (while sending %s)",
                                ct_wire_name(message->type));
        if (errno != EAGAIN && errno != EINTR)
            return ct_error_set(err, -errno, "cannot send %s: %s", ct_wire_name(message->type),
                                strerror(errno));
        code = wait_for(link->fd, POLLOUT, &deadline);
        if (code < 0)
            return ct_error_set(err, code, "cannot wait for the link: %s", strerror(-code));
        if (code == 0)
            return ct_error_set(err, CT_ETIMEOUT, "the peer did not take %s within %d ms",
                                ct_wire_name(message->type), timeout_ms);
    }
    link->next_sequence++;
    return 0;
}

/* Read what is there into the reader. 1, 0 when there is nothing, CT_ECLOSED, an error. */
static int fill(struct ct_link *link, struct ct_error *err)
{
    char chunk[16384];
    ssize_t count = recv(link->fd, chunk, sizeof(chunk), MSG_DONTWAIT);

    if (count > 0) {
        int code = ct_frame_reader_push(&link->reader, chunk, (size_t)count);
        return code != 0 ? ct_error_set(err, code, "no room for what came over the link") : 1;
    }
    if (count == 0 || is_gone(errno))
        return ct_error_set(err, CT_ECLOSED, "the peer has closed the link%s",
                            ct_frame_reader_inside(&link->reader) ? " in the midst of a message"
                                                                  : "");
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    return ct_error_set(err, -errno, "cannot receive: %s", strerror(errno));
}

static int decode(struct ct_link *link, const struct ct_frame *frame, struct ct_arena *arena,
                  struct ct_message *ret_message, struct ct_error *err)
{
    int code = ct_wire_decode(frame, arena, ret_message, err);

    if (code == 0)
        ct_frame_reader_note_received(&link->reader, ret_message);
    return code;
}

int ct_link_receive(struct ct_link *link, int timeout_ms, struct ct_arena *arena,
                    struct ct_message *ret_message, struct ct_error *err)
{
    struct deadline deadline = deadline_in(timeout_ms);
    struct ct_frame frame;

    for (;;) {
        int code = ct_frame_reader_next(&link->reader, &frame, err);
        if (code < 0)
            return code;
        if (code > 0)
            return decode(link, &frame, arena, ret_message, err);
        code = fill(link, err);
        if (code < 0)
            return code;
        if (code > 0)
            continue;
        code = wait_for(link->fd, POLLIN, &deadline);
        if (code < 0)
            return ct_error_set(err, code, "cannot wait for the link: %s", strerror(-code));
        if (code == 0)
            return ct_error_set(err, CT_ETIMEOUT, "nothing came over the link within %d ms",
                                timeout_ms);
    }
}
