/* The inside of an engine, shared by tls.c and tls_failure.c. */
#ifndef CT_NET_TLS_INNER_H
#define CT_NET_TLS_INNER_H

#include "keys/certificates.h"
#include "keys/psk.h"
#include "net/tls.h"
#include "net/tls_munge.h"

enum { CT_TLS_HEADER = 5 /* of a record: type, version, length */ };

struct ct_tls {
    const struct ct_openssl *ssl; /* the library */
    SSL *end;                     /* NULL on a server before the first record */
    BIO *in, *out;                /* owned by `end` */
    struct ct_buf first;
    struct ct_key key;            /* a client's */
    struct ct_key_ring *ring;     /* a server's */
    const struct ct_grant *grant; /* of the key in it that the client named; NULL: none yet */
    bool server;
    bool ready;
    bool is_for_all;                      /* on a server: the client's job is "" */
    bool stranger;                        /* the peer opened with something that is not TLS */
    bool alerted;                         /* told so, without `end` */
    unsigned char opening[CT_TLS_HEADER]; /* the peer's first bytes */
    size_t opening_size;
    char key_tag[CT_PSK_TAG];   /* a client's */
    char job_tag[CT_PSK_TAG];   /* the client's job; on a server known once a client named it */
    char peer_key[CT_PSK_TAG];  /* on a server: the other key that a client offered; "" */
    char name[CT_PSK_NAME];     /* on a client: the identity it sends */
    struct ct_tls_munge *munge; /* NULL: no credential of munge is shown */
    size_t fed;                 /* before it was ready */
    bool has_read;              /* something of the peer */

    struct ct_certificates *certificates; /* held; NULL: this end has none */
    struct ct_certificate_peer peer;
    char job[CT_GRANT_JOBS]; /* a client's with certificates */
    bool (*may)(void *user); /* a server's gate */
    void *user;
    bool turned_away; /* by it */
};

/* ---- tls_failure.c: why it failed, as a code and its sentence ---- */

/* Has the peer told by this alert that it does not take what this side has shown? */
bool ct_tls_is_refusal(int reason);

/* The peer opened with something that is not TLS. */
int ct_tls_refuse_stranger(const struct ct_tls *tls, struct ct_error *err);

/* The handshake ended badly; OpenSSL has left its reason in the queue. */
int ct_tls_refuse_handshake(const struct ct_tls *tls, struct ct_error *err);

#endif
