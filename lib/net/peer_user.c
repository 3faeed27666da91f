/* Whose is the other end of a connected socket? See ct_address_check_peer_user in address.h.
 *
 *   AF_UNIX  the kernel says (SO_PEERCRED)
 *   TCP      sock_diag: the peer's socket by its two addresses, one question a connection
 *            -> this user's or root's: 0; another's: CT_EAUTH; none here: the peer's machine is
 *               another, or (loopback) it has gone
 *
 * A socket without an inode belongs to nobody that could be named: it waits in an accept queue, or
 * its process has closed it, and the kernel says "user 0" of it. Never believe that. What waits in
 * an accept queue is judged by the socket that listens. Where sock_diag does not even know our own
 * socket it is absent, and /proc/net/tcp is read instead. */
#include "net/address.h"

#include "base/number/hash.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Both ends of a connection, as the socket that is looked for sees them. */
struct ends {
    struct sockaddr_storage local, remote;
};

enum owner { OWNER_FOUND, OWNER_NONE, OWNER_UNKNOWN };

/* ---- sock_diag ---- */

static void put_address(const struct sockaddr_storage *from, __be32 address[4], __be16 *port)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;

    if (from->ss_family == AF_INET6)
        memcpy(address, &v6->sin6_addr, sizeof(v6->sin6_addr));
    else
        memcpy(address, &v4->sin_addr, sizeof(v4->sin_addr));
    *port = v4->sin_port; /* at the same place in both */
}

/* Ask for the socket with these ends; where none is connected so, the kernel answers with one that
 * listens on the local end. */
static enum owner ask(int netlink, const struct ends *ends, struct inet_diag_msg *ret_socket)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 body;
    } question = {
        .header = {.nlmsg_len = sizeof(question),
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = (uint8_t)ends->local.ss_family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = UINT32_MAX,
                 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
    };
    struct {
        struct nlmsghdr header;
        union {
            struct inet_diag_msg socket;
            struct nlmsgerr error;
            char room[1024];
        } body;
    } answer;

    put_address(&ends->local, question.body.id.idiag_src, &question.body.id.idiag_sport);
    put_address(&ends->remote, question.body.id.idiag_dst, &question.body.id.idiag_dport);
    if (send(netlink, &question, sizeof(question), 0) != (ssize_t)sizeof(question))
        return OWNER_UNKNOWN;
    ssize_t size = recv(netlink, &answer, sizeof(answer), MSG_DONTWAIT);
    if (size >= (ssize_t)(sizeof(answer.header) + sizeof(answer.body.socket)) &&
        answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY) {
        *ret_socket = answer.body.socket;
        return OWNER_FOUND;
    }
    if (size >= (ssize_t)(sizeof(answer.header) + sizeof(int)) &&
        answer.header.nlmsg_type == NLMSG_ERROR && answer.body.error.error == -ENOENT)
        return OWNER_NONE;
    return OWNER_UNKNOWN;
}

/* The owner of the socket with these ends, if somebody has it open. */
static enum owner find_exact(int netlink, const struct ends *ends, bool listener, unsigned *ret_uid)
{
    struct inet_diag_msg found = {.idiag_inode = 0};
    enum owner result = ask(netlink, ends, &found);

    if (result != OWNER_FOUND)
        return result;
    if (found.idiag_inode == 0 || (found.idiag_state == TCP_LISTEN) != listener)
        return OWNER_NONE;
    *ret_uid = found.idiag_uid;
    return OWNER_FOUND;
}

static enum owner find_by_netlink(const struct ends *peer, unsigned *ret_uid)
{
    const struct ends own = {.local = peer->remote, .remote = peer->local};
    struct ends listener = {.local = peer->local, .remote.ss_family = peer->remote.ss_family};
    int netlink = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    unsigned own_uid;

    if (netlink < 0)
        return OWNER_UNKNOWN;
    enum owner result = find_exact(netlink, peer, false, ret_uid);
    if (result == OWNER_NONE)
        result = find_exact(netlink, &listener, true, ret_uid);
    if (result == OWNER_NONE && find_exact(netlink, &own, false, &own_uid) != OWNER_FOUND)
        result = OWNER_UNKNOWN; /* there is no sock_diag for TCP here */
    (void)close(netlink);
    return result;
}

/* ---- /proc/net/tcp ---- */

/* "0100007F:1F90" as that file writes an end. */
static void print_end(const struct sockaddr_storage *from, char text[48])
{
    __be32 address[4] = {0};
    __be16 port;
    size_t words = from->ss_family == AF_INET6 ? 4 : 1, used = 0;

    put_address(from, address, &port);
    for (size_t i = 0; i < words; i++)
        used += (size_t)snprintf(text + used, 48 - used, "%08X", address[i]);
    (void)snprintf(text + used, 48 - used, ":%04X", ntohs(port));
}

static enum owner find_by_proc(const struct ends *peer, unsigned *ret_uid)
{
    char local[48], remote[48], line[512], at[2][48];
    FILE *file =
        fopen(peer->local.ss_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
    enum owner result = OWNER_NONE;
    bool exact = false;

    if (file == NULL)
        return OWNER_UNKNOWN;
    print_end(&peer->local, local);
    print_end(&peer->remote, remote);
    while (!exact && fgets(line, sizeof(line), file) != NULL) {
        unsigned state, uid;
        unsigned long inode;
        if (sscanf(line, " %*d: %47s %47s %x %*s %*s %*s %u %*d %lu", at[0], at[1], &state, &uid,
                   &inode) != 5 ||
            inode == 0)
            continue;
        exact = strcmp(at[0], local) == 0 && strcmp(at[1], remote) == 0;
        if (exact || (state == TCP_LISTEN && strcmp(at[0], local) == 0)) {
            *ret_uid = uid;
            result = OWNER_FOUND;
        }
    }
    (void)fclose(file);
    return result;
}

/* ---- the question ---- */

/* IPv4 inside IPv6 as IPv4, as the other end may have it. */
static void unmap(struct sockaddr_storage *address)
{
    struct sockaddr_in6 v6;

    memcpy(&v6, address, sizeof(v6));
    if (v6.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        return;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6.sin6_port};
    memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
    memset(address, 0, sizeof(*address));
    memcpy(address, &v4, sizeof(v4));
}

int ct_address_check_user(unsigned uid, struct ct_error *err)
{
    if (uid == geteuid() || uid == 0)
        return 0;
    return ct_error_set(err, CT_EAUTH, "the peer runs as user %u, not as you (%u)", uid,
                        (unsigned)geteuid());
}

static int check_unix(int fd, struct ct_error *err)
{
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return ct_error_set(err, CT_EAUTH, "cannot tell which user is at the other end");
    return ct_address_check_user(peer.uid, err);
}

int ct_address_find_peer_user(int fd, unsigned *ret_uid)
{
    struct ends peer;
    socklen_t local = sizeof(peer.remote), remote = sizeof(peer.local);

    memset(&peer, 0, sizeof(peer));
    if (getsockname(fd, (struct sockaddr *)&peer.remote, &local) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer.local, &remote) != 0)
        return CT_ECLOSED;
    unmap(&peer.local);
    unmap(&peer.remote);
    enum owner result = find_by_netlink(&peer, ret_uid);
    if (result == OWNER_UNKNOWN)
        result = find_by_proc(&peer, ret_uid);
    return result == OWNER_FOUND ? 0 : result == OWNER_NONE ? CT_ECLOSED : CT_EUNSUPPORTED;
}

int ct_address_check_peer_user(int fd, struct ct_error *err)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(address);
    unsigned uid = 0;

    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0 && address.ss_family == AF_UNIX)
        return check_unix(fd, err);
    size = sizeof(address);
    int code = getpeername(fd, (struct sockaddr *)&address, &size) != 0
                   ? CT_ECLOSED
                   : ct_address_find_peer_user(fd, &uid);
    if (code == 0)
        return ct_address_check_user(uid, err);
    if (code == CT_ECLOSED && !ct_address_is_loopback((const struct sockaddr *)&address))
        return 0; /* another machine's */
    if (code == CT_ECLOSED)
        return ct_error_set(err, CT_ECLOSED, "the peer has closed the connection");
    return ct_error_set(err, CT_EAUTH,
                        "cannot tell which user is at the other end: neither sock_diag nor "
                        "/proc/net/tcp can be asked here");
}

uint64_t ct_address_peer_account(int fd)
{
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof(peer);
    unsigned uid;

    if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0)
        return 0;
    if (ct_address_is_loopback((const struct sockaddr *)&peer) &&
        ct_address_find_peer_user(fd, &uid) == 0)
        return ct_hash64(&uid, sizeof(uid), AF_UNIX);
    return ct_address_account(&peer);
}
