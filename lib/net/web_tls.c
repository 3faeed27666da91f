/* See web_tls.h. OpenSSL between two memory BIOs, as in tls.c. */
#include "net/web_tls.h"

#include "keys/key.h"
#include "keys/openssl.h"

#include "base/assert.h"
#include "base/str.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { PART = 16 << 10 };

struct ct_web_identity {
    const struct ct_openssl *ssl;
    SSL_CTX *context;
    char token[CT_WEB_TOKEN_MAX + 1];
};

struct ct_web_tls {
    const struct ct_openssl *ssl;
    SSL *end;
    BIO *in, *out; /* owned by `end` */
};

/* ---- who one is ---- */

static int load_token(const char *path, char token[CT_WEB_TOKEN_MAX + 1], struct ct_error *err)
{
    char text[CT_WEB_TOKEN_MAX + 3];
    off_t size = 0;
    int fd = -1, code = ct_net_secret_open("token file", path, &fd, &size, err);

    if (code != 0)
        return code;
    ssize_t count = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[CT_MAX(count, 0)] = '\0';
    size_t length = strcspn(text, "\r\n");
    bool is_one_line = text[length + strspn(text + length, "\r\n")] == '\0';
    for (size_t i = 0; i < length; i++)
        is_one_line = is_one_line && text[i] > ' ' && text[i] < 0x7f;
    if (!is_one_line || length < CT_WEB_TOKEN_MIN || length > CT_WEB_TOKEN_MAX)
        code = ct_error_set(err, CT_EDATA,
                            "token file %s must have one line of %d to %d printable characters "
                            "without blanks: (umask 077; openssl rand -hex 32 > %s)",
                            path, CT_WEB_TOKEN_MIN, CT_WEB_TOKEN_MAX, path);
    else
        memcpy(token, text, length);
    explicit_bzero(text, sizeof(text));
    return code;
}

static int refuse_pem(const struct ct_openssl *ssl, const char *path, const char *what,
                      struct ct_error *err)
{
    const char *reason = ssl->ERR_reason_error_string(ssl->ERR_peek_last_error());

    return ct_error_set(err, CT_EDATA,
                        "%s has no %s (%s): give a PEM file with the certificate, its chain and "
                        "its private key",
                        path, what, reason != NULL ? reason : "unknown");
}

static int load_certificate(struct ct_web_identity *identity, const char *path,
                            struct ct_error *err)
{
    const struct ct_openssl *ssl = identity->ssl;
    off_t size = 0;
    int fd = -1, code = ct_net_secret_open("certificate file", path, &fd, &size, err);

    if (code != 0)
        return code;
    close(fd);
    ssl->ERR_clear_error();
    if (ssl->SSL_CTX_use_certificate_chain_file(identity->context, path) != 1)
        return refuse_pem(ssl, path, "certificate", err);
    if (ssl->SSL_CTX_use_PrivateKey_file(identity->context, path, SSL_FILETYPE_PEM) != 1 ||
        ssl->SSL_CTX_check_private_key(identity->context) != 1)
        return refuse_pem(ssl, path, "private key of its certificate", err);
    return 0;
}

int ct_web_identity_load(const char *certificate, const char *token_file,
                         struct ct_web_identity **ret_identity, struct ct_error *err)
{
    struct ct_web_identity *identity = calloc(1, sizeof(*identity));

    if (identity == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a certificate");
    int code = ct_openssl_get(&identity->ssl, err);
    if (code != 0) {
        free(identity);
        return code;
    }
    const struct ct_openssl *ssl = identity->ssl;
    identity->context = ssl->SSL_CTX_new(ssl->TLS_server_method());
    if (identity->context == NULL) {
        code = ct_error_set(err, CT_ENOMEM, "no memory for a certificate");
    } else {
        ssl->SSL_CTX_set_options(identity->context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
        ssl->SSL_CTX_ctrl(identity->context, SSL_CTRL_MODE,
                          SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
        ssl->SSL_CTX_ctrl(identity->context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF,
                          NULL);
        ssl->SSL_CTX_ctrl(identity->context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
        ssl->SSL_CTX_set_num_tickets(identity->context, 0);
        code = load_certificate(identity, certificate, err);
    }
    if (code == 0)
        code = load_token(token_file, identity->token, err);
    if (code != 0) {
        ct_web_identity_free(identity);
        return code;
    }
    *ret_identity = identity;
    return 0;
}

void ct_web_identity_free(struct ct_web_identity *identity)
{
    if (identity == NULL)
        return;
    if (identity->context != NULL)
        identity->ssl->SSL_CTX_free(identity->context);
    explicit_bzero(identity, sizeof(*identity));
    free(identity);
}

/* ---- who asks ---- */

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

/* Base64 (RFC 4648); returns how many bytes, as many as there is room for. */
static size_t decode(const char *text, size_t size, char *to, size_t room)
{
    unsigned bits = 0, count = 0;
    size_t used = 0;

    for (size_t i = 0; i < size && digit_of(text[i]) >= 0 && used < room; i++) {
        bits = bits << 6 | (unsigned)digit_of(text[i]);
        count += 6;
        if (count < 8)
            continue;
        count -= 8;
        to[used++] = (char)(bits >> count & 0xff);
    }
    return used;
}

size_t ct_web_token(const char *authorization, char ret_token[CT_WEB_TOKEN_MAX + 1])
{
    char pair[CT_WEB_TOKEN_MAX + 128];
    const char *token = NULL;
    size_t length = 0;

    if (authorization == NULL)
        return 0;
    size_t size = strcspn(authorization, "\r\n");
    if (size > 7 && strncasecmp(authorization, "Bearer ", 7) == 0) {
        token = authorization + 7;
        length = size - 7;
    } else if (size > 6 && strncasecmp(authorization, "Basic ", 6) == 0) {
        size_t count = decode(authorization + 6, size - 6, pair, sizeof(pair));
        const char *colon = memchr(pair, ':', count);
        token = colon != NULL ? colon + 1 : NULL;
        length = colon != NULL ? (size_t)(pair + count - colon) - 1 : 0;
    }
    if (length > CT_WEB_TOKEN_MAX)
        length = 0;
    if (length > 0)
        memcpy(ret_token, token, length);
    ret_token[length] = '\0';
    explicit_bzero(pair, sizeof(pair));
    return length;
}

bool ct_web_identity_accepts(const struct ct_web_identity *identity, const char *token, size_t size)
{
    return size == strlen(identity->token) && ct_secret_equal(token, identity->token, size);
}

/* ---- a connection ---- */

struct ct_web_tls *ct_web_tls_new(const struct ct_web_identity *identity)
{
    struct ct_web_tls *tls = calloc(1, sizeof(*tls));

    if (tls == NULL)
        return NULL;
    tls->ssl = identity->ssl;
    tls->end = tls->ssl->SSL_new(identity->context);
    if (tls->end != NULL) {
        tls->in = tls->ssl->BIO_new(tls->ssl->BIO_s_mem());
        tls->out = tls->ssl->BIO_new(tls->ssl->BIO_s_mem());
        tls->ssl->SSL_set_bio(tls->end, tls->in, tls->out);
    }
    if (tls->end == NULL || tls->in == NULL || tls->out == NULL) {
        ct_web_tls_free(tls);
        return NULL;
    }
    tls->ssl->SSL_set_accept_state(tls->end);
    return tls;
}

void ct_web_tls_free(struct ct_web_tls *tls)
{
    if (tls == NULL)
        return;
    if (tls->end != NULL)
        tls->ssl->SSL_free(tls->end);
    free(tls);
}

static int drain(struct ct_web_tls *tls, struct ct_buf *out)
{
    for (;;) {
        char *to = ct_buf_reserve(out, PART);

        if (to == NULL)
            return CT_ENOMEM;
        int count = tls->ssl->BIO_read(tls->out, to, PART);
        if (count <= 0)
            return 0;
        out->size += (size_t)count;
    }
}

int ct_web_tls_feed(struct ct_web_tls *tls, const void *data, size_t size, struct ct_buf *out)
{
    CT_ASSERT(size <= INT_MAX);
    if (tls->ssl->BIO_write(tls->in, data, (int)size) != (int)size)
        return CT_ENOMEM;
    tls->ssl->ERR_clear_error();
    (void)tls->ssl->SSL_do_handshake(tls->end); /* what is wrong, reading tells */
    return drain(tls, out);
}

long ct_web_tls_read(struct ct_web_tls *tls, void *to, size_t room)
{
    tls->ssl->ERR_clear_error();
    int count = tls->ssl->SSL_read(tls->end, to, (int)CT_MIN(room, (size_t)INT_MAX));
    int reason = count > 0 ? SSL_ERROR_NONE : tls->ssl->SSL_get_error(tls->end, count);

    if (count > 0)
        return count;
    return reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE ? 0 : CT_ECLOSED;
}

int ct_web_tls_write(struct ct_web_tls *tls, const void *data, size_t size, struct ct_buf *out)
{
    for (size_t at = 0; at < size;) {
        size_t part = CT_MIN(size - at, (size_t)PART);

        tls->ssl->ERR_clear_error();
        if (tls->ssl->SSL_write(tls->end, (const char *)data + at, (int)part) != (int)part)
            return CT_ECLOSED;
        at += part;
        if (drain(tls, out) != 0)
            return CT_ENOMEM;
    }
    return 0;
}
