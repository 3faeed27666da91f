/* A certificate and a token for an HTTP server: web_tls.h, with OpenSSL's own client. */
#include "net/web_tls.h"

#include "keys/openssl.h"
#include "test_pem.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef0123"

static char folder[64];
static char certificate[96], token[96];

static void write_file(char path[96], const char *name, const char *text, mode_t mode)
{
    (void)snprintf(path, 96, "%s/%s", folder, name);
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    cr_assert_eq(chmod(path, mode), 0);
}

static void set_up(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/web-tls-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    write_file(certificate, "page.pem", test_pem, 0600);
    write_file(token, "token", TOKEN "\n", 0600);
}

static void tear_down(void)
{
    (void)unlink(certificate);
    (void)unlink(token);
    (void)rmdir(folder);
}

TestSuite(web_tls, .timeout = 20, .init = set_up, .fini = tear_down);

static struct ct_web_identity *load(void)
{
    struct ct_web_identity *identity = NULL;
    struct ct_error err = {0};

    cr_assert_eq(ct_web_identity_load(certificate, token, &identity, &err), 0, "%s", err.text);
    return identity;
}

static void assert_refused(int code, const char *words)
{
    struct ct_web_identity *identity = NULL;
    struct ct_error err = {0};

    cr_assert_eq(ct_web_identity_load(certificate, token, &identity, &err), code, "%s", err.text);
    cr_assert_not_null(strstr(err.text, words), "%s", err.text);
    cr_assert_null(identity);
}

Test(web_tls, a_bad_token_or_certificate_is_named)
{
    static char half[sizeof test_pem];

    write_file(token, "token", "short\n", 0600);
    assert_refused(CT_EDATA, "must have one line of 16 to 256 printable characters");
    write_file(token, "token", TOKEN "\n" TOKEN "\n", 0600);
    assert_refused(CT_EDATA, "must have one line");
    write_file(token, "token", TOKEN " with blanks", 0600);
    assert_refused(CT_EDATA, "must have one line");
    write_file(token, "token", TOKEN, 0606);
    assert_refused(CT_EAUTH, "is open to others (mode 0606): chmod 600");
    write_file(token, "token", TOKEN, 0600);
    write_file(certificate, "page.pem", "no certificate\n", 0600);
    assert_refused(CT_EDATA, "has no certificate");
    memcpy(half, test_pem, sizeof half);
    *strstr(half, "-----BEGIN PRIVATE KEY") = '\0';
    write_file(certificate, "page.pem", half, 0600);
    assert_refused(CT_EDATA, "has no private key of its certificate");
    (void)unlink(certificate);
    assert_refused(CT_ENOINPUT, "cannot open certificate file");
}

static bool accepts(const struct ct_web_identity *identity, const char *authorization)
{
    char text[CT_WEB_TOKEN_MAX + 1];
    size_t size = ct_web_token(authorization, text);

    return ct_web_identity_accepts(identity, text, size);
}

Test(web_tls, the_token_is_accepted_as_bearer_and_as_password_and_nothing_else_is)
{
    struct ct_web_identity *identity = load();

    cr_assert(accepts(identity, "Bearer " TOKEN "\r\nHost: x"));
    cr_assert(accepts(identity, "bearer " TOKEN));
    /* "me:0123456789abcdef0123" and ":0123456789abcdef0123" */
    cr_assert(accepts(identity, "Basic bWU6MDEyMzQ1Njc4OWFiY2RlZjAxMjM=\r\n"));
    cr_assert(accepts(identity, "Basic OjAxMjM0NTY3ODlhYmNkZWYwMTIz"));
    static const char *const wrong[] = {NULL,
                                        "",
                                        "Bearer",
                                        "Bearer ",
                                        "Bearer 0123456789abcdef012",
                                        "Bearer 0123456789abcdef01234",
                                        "Bearer 0123456789abcdef0124",
                                        "Basic MDEyMzQ1Njc4OWFiY2RlZjAxMjM=",
                                        "Basic bWU6MDEyMzQ1Njc4OWFiY2RlZjAxMjQ=",
                                        "Basic !!!!",
                                        ("Digest " TOKEN)};
    for (size_t i = 0; i < CT_COUNT(wrong); i++)
        cr_assert_not(accepts(identity, wrong[i]), "%s", wrong[i]);
    ct_web_identity_free(identity);
}

/* A client over memory: what it wants to send goes into the server, and back. */
struct client {
    const struct ct_openssl *ssl;
    SSL_CTX *context;
    SSL *end;
    BIO *in, *out;
};

static struct client connect_client(void)
{
    struct client client;

    cr_assert_eq(ct_openssl_get(&client.ssl, NULL), 0);
    client.context = client.ssl->SSL_CTX_new(client.ssl->TLS_method());
    client.end = client.ssl->SSL_new(client.context);
    client.in = client.ssl->BIO_new(client.ssl->BIO_s_mem());
    client.out = client.ssl->BIO_new(client.ssl->BIO_s_mem());
    client.ssl->SSL_set_bio(client.end, client.in, client.out);
    client.ssl->SSL_set_connect_state(client.end);
    return client;
}

static void pass_on(struct client *client, struct ct_web_tls *server)
{
    char bytes[4096];
    struct ct_buf out;
    int count;

    ct_buf_init(&out, 0);
    while ((count = client->ssl->BIO_read(client->out, bytes, sizeof bytes)) > 0)
        cr_assert_eq(ct_web_tls_feed(server, bytes, (size_t)count, &out), 0);
    if (out.size > 0)
        (void)client->ssl->BIO_write(client->in, out.data, (int)out.size);
    ct_buf_deinit(&out);
}

static void end_client(struct client *client)
{
    client->ssl->SSL_free(client->end);
    client->ssl->SSL_CTX_free(client->context);
}

Test(web_tls, a_request_and_a_long_answer_pass)
{
    enum { LONG = 100000 };
    struct ct_web_identity *identity = load();
    struct ct_web_tls *server = ct_web_tls_new(identity);
    struct client client = connect_client();
    char text[64], *answer = malloc(LONG), *seen = malloc(LONG);
    struct ct_buf out;
    int got = 0, count;

    for (int i = 0; i < 4; i++) {
        (void)client.ssl->SSL_do_handshake(client.end);
        pass_on(&client, server);
    }
    cr_assert_eq(ct_web_tls_read(server, text, sizeof text), 0);
    cr_assert_eq(client.ssl->SSL_write(client.end, "GET / HTTP/1.1", 14), 14);
    pass_on(&client, server);
    cr_assert_eq(ct_web_tls_read(server, text, 5), 5);
    cr_assert_eq(ct_web_tls_read(server, text + 5, sizeof text - 5), 9);
    cr_assert_eq(memcmp(text, "GET / HTTP/1.1", 14), 0);
    for (size_t i = 0; i < LONG; i++)
        answer[i] = (char)(i * 7);
    ct_buf_init(&out, 0);
    cr_assert_eq(ct_web_tls_write(server, answer, LONG, &out), 0);
    (void)client.ssl->BIO_write(client.in, out.data, (int)out.size);
    while (got < LONG && (count = client.ssl->SSL_read(client.end, seen + got, LONG - got)) > 0)
        got += count;
    cr_assert(got == LONG && memcmp(answer, seen, LONG) == 0, "%d bytes", got);
    ct_buf_deinit(&out);
    free(answer);
    free(seen);
    end_client(&client);
    ct_web_tls_free(server);
    ct_web_identity_free(identity);
}

Test(web_tls, what_is_no_tls_ends)
{
    struct ct_web_identity *identity = load();
    struct ct_web_tls *server = ct_web_tls_new(identity);
    static const char request[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    char text[64];
    struct ct_buf out;

    ct_buf_init(&out, 0);
    cr_assert_eq(ct_web_tls_feed(server, request, sizeof request - 1, &out), 0);
    cr_assert_eq(ct_web_tls_read(server, text, sizeof text), CT_ECLOSED);
    cr_assert_eq(ct_web_tls_write(server, "x", 1, &out), CT_ECLOSED);
    ct_buf_deinit(&out);
    ct_web_tls_free(server);
    ct_web_identity_free(identity);
}
