/* Socket addresses as text, and binding. */
#ifndef CT_NET_ADDRESS_H
#define CT_NET_ADDRESS_H

#include "base/error.h"
#include "net/endpoint.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Room for an IPv4 or IPv6 address in digits, in brackets and with a port. */
enum { CT_ADDRESS_TEXT = 64 };

/* Return the address in digits, without and with its port; IPv4 inside IPv6 as IPv4. Never a
 * name. */
const char *ct_address_host(const struct sockaddr *address, char text[CT_ADDRESS_TEXT]);
const char *ct_address_print(const struct sockaddr *address, char text[CT_ADDRESS_TEXT]);

/* Write the peer's address of a connected socket, "unix" for AF_UNIX; "" when it has gone. */
void ct_address_print_peer(int fd, char text[CT_ADDRESS_TEXT]);

uint16_t ct_address_port(const struct sockaddr *address);
socklen_t ct_address_size(const struct sockaddr *address);
bool ct_address_is_loopback(const struct sockaddr *address);

/* Return what connections from this host are counted by: a number of the address, or of an IPv6
 * host's /64, which it has to itself. */
uint64_t ct_address_account(const struct sockaddr_storage *address);

/* Return what that number stands for, of an address as ct_address_print has it: "10.0.0.7", an IPv6
 * host's "2001:db8:1:2::/64". Other texts (a path) are returned as they are, cut to the room. */
const char *ct_address_network(const char *peer, char text[CT_ADDRESS_TEXT]);

/* Return the same of the other end of a TCP connection; on loopback it is its user's. */
uint64_t ct_address_peer_account(int fd);

/* Return the addresses that need no resolver: digits, and "localhost" (127.0.0.1, ::1). Fills up to
 * two and returns their number; 0 when `host` is a name to be resolved. */
int ct_address_numeric(const char *host, uint16_t port, struct sockaddr_storage ret_addresses[2]);

/* Return a socket bound to `endpoint`, and the endpoint with its actual port. Names are resolved,
 * blocking. `open_to_all` allows addresses beyond loopback. An AF_UNIX socket's directory is made
 * with mode 0700, or must have it; a stale socket file is replaced. 0; CT_EAUTH without
 * `open_to_all`; CT_EINUSE; CT_EUNAVAILABLE (not an address of this machine); CT_EUSAGE (unknown
 * name); CT_ECANTCREAT (socket file or directory). */
int ct_address_bind(const struct ct_endpoint *endpoint, bool open_to_all, int *ret_fd,
                    struct ct_endpoint *ret_bound, struct ct_error *err);

/* Check the user at the other end of a connected socket (peer_user.c): 0 when it is this user or
 * root, and for a TCP peer on another machine, whose user is unknown. CT_EAUTH for another user,
 * CT_ECLOSED when the peer has gone before its user was found. */
int ct_address_check_peer_user(int fd, struct ct_error *err);

/* Check the user of a peer process. 0 for this user and root, CT_EAUTH for another. */
int ct_address_check_user(unsigned uid, struct ct_error *err);

/* Find the user that owns the other end of a TCP connection within this machine. 0; CT_ECLOSED when
 * no process here has it; CT_EUNSUPPORTED when the system does not report it. */
int ct_address_find_peer_user(int fd, unsigned *ret_uid);

#endif
