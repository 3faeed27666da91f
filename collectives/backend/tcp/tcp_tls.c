/* See tcp_tls.h.
 *
 *   out   data -> ct_tls_write -> `out` -> socket        in   socket -> feed -> ct_tls_read -> data
 */
#include "backend/tcp/tcp_tls.h"

#include "base/assert.h"
#include "net/tls.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { PIECE = 64 << 10, NAME_BYTES = 512 };

struct ct_tcp_tls {
    struct ct_tls *tls;
    int peer;
    struct ct_buf out;
    size_t sent;           /* of `out` */
    bool shaking;          /* who wants to send waits for the peer's half of the handshake */
    char name[NAME_BYTES]; /* of the connection: what the key is derived for */
    unsigned char input[PIECE];
};

static int new_tls(const struct ct_tcp *tcp, bool server, struct ct_tcp_tls *end,
                   struct ct_error *err)
{
    struct ct_key_ring *ring = NULL;
    struct ct_key key = {.kind = CT_KEY_SECRET};
    int code;

    memcpy(key.secret, tcp->key, sizeof key.secret);
    if (server) {
        code = ct_key_ring_of(&key, false, &ring, err);
        if (code == 0)
            code = ct_tls_new_server(&end->tls, ring, err);
        ct_key_ring_unref(ring);
    } else {
        code = ct_tls_new_client(&end->tls, &key, end->name, err);
    }
    ct_net_key_wipe(&key);
    return code;
}

int ct_tcp_tls_new(const struct ct_tcp *tcp, int peer, int connection, struct ct_tcp_tls **ret_end,
                   struct ct_error *err)
{
    struct ct_tcp_tls *end = calloc(1, sizeof *end);

    if (end == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a TLS connection");
    end->peer = peer;
    ct_buf_init(&end->out, 0);
    (void)snprintf(end->name, sizeof end->name, "%s/%d-%d/%d", tcp->name, CT_MIN(tcp->rank, peer),
                   CT_MAX(tcp->rank, peer), connection);
    int code = new_tls(tcp, tcp->rank < peer, end, err); /* whichever dialled */
    if (code != 0) {
        ct_tcp_tls_free(end);
        return code;
    }
    *ret_end = end;
    return 0;
}

void ct_tcp_tls_free(struct ct_tcp_tls *end)
{
    if (end == NULL)
        return;
    ct_tls_free(end->tls);
    ct_buf_deinit(&end->out);
    free(end);
}

/* Send what is encrypted: 1 all gone, 0 not yet, or CT_ECLOSED. */
static int flush(struct ct_tcp_tls *end, int fd, struct ct_error *err)
{
    while (end->sent < end->out.size) {
        ssize_t done = send(fd, (const char *)end->out.data + end->sent, end->out.size - end->sent,
                            MSG_DONTWAIT | MSG_NOSIGNAL);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN)
            return 0;
        if (done <= 0)
            return ct_tcp_closed(end->peer, errno, err);
        end->sent += (size_t)done;
    }
    end->out.size = end->sent = 0;
    return 1;
}

/* Feed what has come: 1 something, 0 nothing, or an error. */
static int pull(struct ct_tcp_tls *end, int fd, struct ct_error *err)
{
    ssize_t got = recv(fd, end->input, sizeof end->input, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return ct_tcp_closed(end->peer, got < 0 ? errno : 0, err);
    if (ct_tls_feed(end->tls, end->input, (size_t)got) != 0)
        return ct_error_set(err, CT_ENOMEM, "no memory to decrypt %zd bytes", got);
    return 1;
}

static int prefix(const struct ct_tcp_tls *end, int code, struct ct_error *err)
{
    ct_error_prefix(err, "the encrypted connection with rank %d", end->peer);
    return code;
}

/* The engine's own words go out; a peer that has proved the key is the one that is meant. */
static int after_handshake(struct ct_tcp_tls *end, int fd, struct ct_error *err)
{
    if (ct_tls_drain(end->tls, &end->out) != 0)
        return ct_error_set(err, CT_ENOMEM, "no memory for a TLS connection");
    if (ct_tls_ready(end->tls) && !ct_tls_is_for(end->tls, end->name))
        return ct_error_set(err, CT_EAUTH, "rank %d is not what answers on its connection",
                            end->peer);
    int code = flush(end, fd, err);
    return code < 0 ? code : 0;
}

/* 1 when messages may be encrypted, 0 not yet. */
static int shake_hands(struct ct_tcp_tls *end, int fd, struct ct_error *err)
{
    while (!ct_tls_ready(end->tls)) {
        int code = ct_tls_handshake(end->tls, err);

        if (code != 0)
            return prefix(end, code, err);
        code = after_handshake(end, fd, err);
        if (code == 0 && !ct_tls_ready(end->tls))
            code = pull(end, fd, err);
        end->shaking = code == 0 && !ct_tls_ready(end->tls);
        if (code < 0 || end->shaking)
            return code;
    }
    return 1;
}

/* The next piece of the message into `out`. */
static int encrypt(struct ct_tcp_tls *end, struct ct_tcp_move *move, struct ct_error *err)
{
    size_t piece = CT_MIN(move->left, (size_t)PIECE);
    int code = 0;

    if (move->header_left > 0)
        code = ct_tls_write(end->tls, move->header + CT_CALL_HEADER_BYTES - move->header_left,
                            move->header_left, &end->out, err);
    if (code == 0 && piece > 0)
        code = ct_tls_write(end->tls, move->data, piece, &end->out, err);
    move->header_left = 0;
    move->data += piece;
    move->left -= piece;
    return code;
}

static int attempt_out(struct ct_tcp_tls *end, int fd, struct ct_tcp_move *move, short *wanted,
                       struct ct_error *err)
{
    for (;;) {
        int code = flush(end, fd, err);

        if (code == 0)
            *wanted |= POLLOUT;
        if (code != 1 || move->header_left + move->left == 0)
            return code;
        code = shake_hands(end, fd, err);
        if (code != 1)
            return code;
        code = encrypt(end, move, err);
        if (code != 0)
            return code;
    }
}

static int attempt_in(struct ct_tcp_tls *end, int fd, struct ct_tcp_move *move, short *wanted,
                      struct ct_error *err)
{
    while (move->header_left + move->left > 0) {
        bool head = move->header_left > 0, ready = ct_tls_ready(end->tls);
        void *to = head ? (void *)(move->header + CT_CALL_HEADER_BYTES - move->header_left)
                        : (void *)move->data;
        long got = ct_tls_read(end->tls, to, head ? move->header_left : move->left, err);
        int code = got < 0 ? prefix(end, (int)got, err) : 0;

        if (code == 0 && !ready)
            code = after_handshake(end, fd, err);
        if (code == 0 && got == 0)
            code = pull(end, fd, err);
        else if (code == 0)
            code = 1;
        if (code == 0)
            *wanted |= POLLIN;
        if (code != 1)
            return code;
        if (head) {
            move->header_left -= (size_t)got;
        } else {
            move->left -= (size_t)got;
            move->data += got;
        }
    }
    return 1;
}

int ct_tcp_tls_attempt(struct ct_tcp_tls *end, int fd, struct ct_tcp_move *move, short *wanted,
                       struct ct_error *err)
{
    return move->out ? attempt_out(end, fd, move, wanted, err)
                     : attempt_in(end, fd, move, wanted, err);
}

short ct_tcp_tls_wanted(const struct ct_tcp_tls *end)
{
    bool unsent = end->sent < end->out.size;

    return (short)((end->shaking ? POLLIN : 0) | (unsent ? POLLOUT : 0));
}

void ct_tcp_tls_goodbye(struct ct_tcp_tls *end, int fd, const unsigned char *header)
{
    struct ct_error unread = {0};

    if (ct_tls_ready(end->tls) && flush(end, fd, &unread) == 1 &&
        ct_tls_write(end->tls, header, CT_CALL_HEADER_BYTES, &end->out, &unread) == 0)
        (void)flush(end, fd, &unread);
}
