/* TLS 1.3 with an external pre-shared key or certificates, as a filter over buffers: no socket,
 * no loop.
 *
 *            ct_tls_feed           ct_tls_read
 *   network ------------>  engine ------------> frames
 *           <------------         <------------
 *            ct_tls_drain,         ct_tls_write
 *            ct_tls_write
 *
 * Both ends derive the session key from the job key:
 *     PSK = HKDF-SHA256(secret, salt = job tag, info = "ctrun/1 agent " + key tag)
 *
 * The client names it in clear as "ctrun/1 agent <key tag> <job tag>". A tag is the first 8
 * bytes of a SHA-256 in hex: it tells which key or job is meant and nothing of the secret. So a
 * server with one key serves many jobs, and a client of job A is never taken for one of job B.
 *
 * With munge (munge.h) the secret is drawn for each connection, and the client sends it sealed, as
 * "ctrun/2 munge <job tag> <credential>", with "munge" for the key tag. The server's end waits
 * until its owner has had the credential opened:
 *
 *     ct_tls_read, 0 --> ct_tls_credential --> (a worker: ct_munge_open) --> ct_tls_opened --> read
 *
 * Settings: TLS 1.3 only, PSK with an ephemeral X25519 exchange (recorded traffic stays closed
 * when the key leaks later), AES-128-GCM or ChaCha20-Poly1305 with SHA-256, no tickets, no early
 * data, no certificates, so a handshake without the PSK cannot end well.
 *
 * A server that has certificates (certificates.h) lets in whoever proves a key of its ring, and
 * else whoever shows a certificate that its CA has signed; a client uses one of both. The holder
 * of a certificate names its job in its first message: it is for all that its certificate
 * allows.
 *
 * libssl is loaded when the first engine is made: a program that uses no key pays nothing. */
#ifndef CT_NET_TLS_H
#define CT_NET_TLS_H

#include "base/bytes.h"
#include "base/error.h"
#include "keys/key.h"
#include "keys/key_ring.h"
#include "keys/munge.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    CT_TLS_ALERT = 7,             /* bytes of an alert in clear */
    CT_TLS_HANDSHAKE = 128 << 10, /* bytes that may come before a peer has proved anything */
};

/* The fatal alert "handshake failure" in clear, for a peer that opens with TLS where none is used,
 * and for one that opens in clear where TLS is required. */
extern const unsigned char ct_tls_alert[CT_TLS_ALERT];

struct ct_tls;

/* Create the client's end of a connection for `job`; `key` is copied. 0; CT_EUNSUPPORTED when
 * libssl is missing; CT_ENOMEM. */
int ct_tls_new_client(struct ct_tls **ret_tls, const struct ct_key *key, const char *job,
                      struct ct_error *err);

/* The same with a credential that ct_munge_seal made, which is copied. */
int ct_tls_new_munge_client(struct ct_tls **ret_tls, const struct ct_munge_credential *credential,
                            const char *job, struct ct_error *err);

/* On a client with a certificate, before its handshake: one of the server that has expired will
 * do. */
void ct_tls_accept_expired(struct ct_tls *tls);

/* On a server: `may` is asked before a client that has proved no key costs a signature; when it
 * says no, the handshake ends with CT_EUNAVAILABLE, and the client tries again. */
void ct_tls_set_gate(struct ct_tls *tls, bool (*may)(void *user), void *user);

/* Create the server's end, which accepts the keys and certificates of `ring` (held) for every
 * job. Likewise. */
int ct_tls_new_server(struct ct_tls **ret_tls, struct ct_key_ring *ring, struct ct_error *err);
void ct_tls_free(struct ct_tls *tls);

/* Feed bytes from the network; their effects follow from read and drain. 0 or CT_ENOMEM. */
int ct_tls_feed(struct ct_tls *tls, const void *data, size_t size);

/* Continue the handshake only. 0; CT_EAUTH or CT_EPROTOCOL as below. */
int ct_tls_handshake(struct ct_tls *tls, struct ct_error *err);

/* Continue the handshake, then decrypt up to `room` bytes. Returns their number, 0 when more input
 * is needed; CT_ECLOSED after the peer's orderly end; CT_EAUTH when the handshake failed,
 * CT_EPROTOCOL when it is no TLS or was tampered with (the sentence names the likely kind of
 * peer); CT_EUNAVAILABLE when munged does not answer here or there: later it may. */
long ct_tls_read(struct ct_tls *tls, void *to, size_t room, struct ct_error *err);

/* Append `data` encrypted to `out`. Allowed once ct_tls_ready. 0 or CT_ENOMEM. */
int ct_tls_write(struct ct_tls *tls, const void *data, size_t size, struct ct_buf *out,
                 struct ct_error *err);

/* Append the engine's own bytes for the network: handshake, alert, close-notify. 0 or CT_ENOMEM. */
int ct_tls_drain(struct ct_tls *tls, struct ct_buf *out);

/* On a server: return the client's credential of munge that is still to be opened, and the socket
 * of munged (as in struct ct_key); NULL: none is. */
const char *ct_tls_credential(const struct ct_tls *tls, const char **ret_socket);

/* Go on with it once it is open, or was refused (`why`, otherwise NULL). */
void ct_tls_opened(struct ct_tls *tls, const struct ct_munge_credential *credential,
                   const struct ct_error *why);

/* Return whether the handshake is done, which proves that the peer holds the key. */
bool ct_tls_ready(const struct ct_tls *tls);

/* Return whether the client's hello, read by this server, carries a MAC over itself that was made
 * with the key (the binder): it is a key holder's, or a copy of one's. `ret_hello` is 64 bits of
 * the client's random number, which the MAC covers: a copy has the same. */
bool ct_tls_is_bound(const struct ct_tls *tls, uint64_t *ret_hello);

/* On a server, once ct_tls_ready: return what the client may do whose key or certificate it proved.
 * Lives as long as `tls`. On a client NULL. */
const struct ct_grant *ct_tls_grant(const struct ct_tls *tls);

/* On a server, once ct_tls_ready: return whether munge named the client's user, and which. */
bool ct_tls_user(const struct ct_tls *tls, unsigned *ret_uid);

/* Return whether the peer proved its key for `job`, or for "", which stands for all; a
 * certificate's is for every job. */
bool ct_tls_is_for(const struct ct_tls *tls, const char *job);

/* On a server: return whether what the peer proved is still accepted by a newer ring. */
bool ct_tls_is_accepted(const struct ct_tls *tls, const struct ct_key_ring *ring);

/* Close in order: leaves a close-notify for drain. */
void ct_tls_close(struct ct_tls *tls);

#endif
