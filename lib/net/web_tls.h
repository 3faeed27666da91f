/* Who may ask an HTTP server beyond this machine: TLS with a certificate, as browsers and
 * collectors know it, and a token, as a filter over buffers (no socket, no loop).
 *
 *   network --- feed ---> engine --- read ---> request        answer --- write ---> network
 *
 * The token comes as "Authorization: Bearer TOKEN" (Prometheus: authorization.credentials_file) or
 * as the password of "Basic" (a browser asks for it; the name may be any). Nothing of it is told to
 * who does not have it. TLS 1.2 and 1.3, no tickets, no renegotiation. libssl is loaded at first
 * use. */
#ifndef CT_NET_WEB_TLS_H
#define CT_NET_WEB_TLS_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { CT_WEB_TOKEN_MIN = 16, CT_WEB_TOKEN_MAX = 256 };

struct ct_web_identity; /* certificate, its key, and the token */
struct ct_web_tls;      /* a server's end of a connection */

/* Load `certificate`, a PEM file with the chain and the private key, and the token, the one line of
 * `token_file`. Both must be closed to others. 0; CT_ENOINPUT, CT_EAUTH or CT_EDATA with the file
 * and the remedy; CT_EUNSUPPORTED without libssl; CT_ENOMEM. */
int ct_web_identity_load(const char *certificate, const char *token_file,
                         struct ct_web_identity **ret_identity, struct ct_error *err);
void ct_web_identity_free(struct ct_web_identity *identity);

/* Take the token out of the value of an Authorization header, which ends at a line's end (NULL:
 * there is none). Returns its length; 0: it has none. */
size_t ct_web_token(const char *authorization, char ret_token[CT_WEB_TOKEN_MAX + 1]);

/* Return whether that is the identity's token. The time that it takes tells nothing of it. */
bool ct_web_identity_accepts(const struct ct_web_identity *identity, const char *token,
                             size_t size);

/* Create one end, which the identity outlives. NULL without memory. */
struct ct_web_tls *ct_web_tls_new(const struct ct_web_identity *identity);
void ct_web_tls_free(struct ct_web_tls *tls);

/* Feed bytes from the network; append what is to go there (handshake, alerts) to `out`. 0, or
 * CT_ENOMEM. */
int ct_web_tls_feed(struct ct_web_tls *tls, const void *data, size_t size, struct ct_buf *out);

/* Decrypt up to `room` bytes. Returns their number, 0 when more is needed; CT_ECLOSED after the
 * client's end or for what is no TLS. */
long ct_web_tls_read(struct ct_web_tls *tls, void *to, size_t room);

/* Append `data` encrypted to `out`. 0, CT_ECLOSED, CT_ENOMEM. */
int ct_web_tls_write(struct ct_web_tls *tls, const void *data, size_t size, struct ct_buf *out);

#endif
