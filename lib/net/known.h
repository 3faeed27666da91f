/* An accept queue of their own for authenticated addresses.
 *
 *                       +--> queue of the known   \
 *      SYN -> kernel ---|    (up to 512)           > one address and port, two listening sockets
 *                       +--> queue of all others  /
 *
 * The kernel's queue of connections to be accepted is first in, first out: a crowd of strangers in
 * it delays all others. Two sockets listen on the address (SO_REUSEPORT), and a filter of the
 * kernel (SO_ATTACH_REUSEPORT_CBPF) selects one by the source address. It admits or refuses no
 * connection. A stranger that spoofs a known address gets no answer; one that has such an address
 * (a host with other users, too) waits in its queue as it would in a single one.
 *
 * An IPv6 address stands for its /64. */
#ifndef CT_NET_KNOWN_H
#define CT_NET_KNOWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { CT_KNOWN = 512 };

/* Zeroed at first. */
struct ct_known {
    struct ct_known_address {
        bool is_v6;
        uint32_t words[2]; /* as numbers; the second of IPv4 is 0 */
    } addresses[CT_KNOWN];
    uint32_t count; /* ever added: the newest take the places of the oldest */
};

/* Add an address; false: it was known, or is neither IPv4 nor IPv6. */
bool ct_known_add(struct ct_known *known, const struct sockaddr_storage *address);

/* Open a second socket that listens where the TCP socket `fd` does, for known addresses; none are
 * known yet. 0, or a negative errno value where the kernel does not support it; then `fd` serves
 * alone. */
int ct_known_listen(int fd, int *ret_fd);

/* Update the kernel's filter: connections from known addresses go to the second socket from now on;
 * `fd` is either socket. */
int ct_known_update(const struct ct_known *known, int fd);

/* Defer the accept of silent connections to the listening TCP socket `fd` by about `seconds`: they
 * wait in the kernel, which has room for as many as in its queue. Not without SYN cookies, as
 * newcomers would find no room beyond that. */
void ct_known_hold_silent(int fd, int seconds);

#endif
