/* Certificates in place of a key, as a filter over buffers: two engines, and a wire that the test
 * holds in its hand; and clients that are OpenSSL's own, which show what ours would not load. */
#include "keys/certificates.h"

#include "certificate_site.h"
#include "net/tls.h"
#include "site_ca.h"

#include "base/assert.h"
#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ct_key secret = {.secret = "0123456789abcdef0123456789abcdeA"};

static struct ct_tls *client, *server;
static struct ct_error client_err, server_err;
static struct ct_buf to_server, to_client;

static void set_up(void)
{
    site_set_up();
    client_err = server_err = (struct ct_error){0};
    ct_buf_init(&to_server, 0);
    ct_buf_init(&to_client, 0);
}

static void tear_down(void)
{
    ct_tls_free(client);
    ct_tls_free(server);
    client = server = NULL;
    ct_buf_deinit(&to_server);
    ct_buf_deinit(&to_client);
    site_tear_down();
}

TestSuite(certificates, .init = set_up, .fini = tear_down, .timeout = 60);

/* Append the file of one to that of the other. */
static void append(const char *from, const char *to)
{
    struct ct_buf text;
    FILE *file = fopen(site_path(to, "pem"), "a");

    ct_buf_init(&text, 0);
    cr_assert_eq(ct_fs_read(site_path(from, "pem"), 1 << 20, &text, NULL), 0);
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text.data, 1, text.size, file), text.size);
    cr_assert_eq(fclose(file), 0);
    ct_buf_deinit(&text);
}

/* ---- the wire ---- */

/* Carry what lies in `wire` to `tls`, and read; the last result. */
static long carry(struct ct_buf *wire, struct ct_tls *tls, struct ct_error *err)
{
    static char plain[70000];

    cr_assert_eq(ct_tls_feed(tls, wire->data, wire->size), 0);
    ct_buf_clear(wire);
    return ct_tls_read(tls, plain, sizeof plain, err);
}

/* The whole handshake, and what comes behind it; the results of the two last reads. */
static void shake(long *ret_client, long *ret_server)
{
    *ret_server = 0;
    *ret_client = ct_tls_handshake(client, &client_err);
    (void)ct_tls_drain(client, &to_server);
    for (int turn = 0; turn < 4; turn++) {
        if (*ret_server == 0)
            *ret_server = carry(&to_server, server, &server_err);
        (void)ct_tls_drain(server, &to_client);
        if (*ret_client == 0)
            *ret_client = carry(&to_client, client, &client_err);
        (void)ct_tls_drain(client, &to_server);
    }
}

/* A server of the ring `ca`, that takes `secret` too. */
static void make_server(const char *name, const char *ca)
{
    struct ct_key_ring *ring = NULL;
    struct ct_key own = site_load(name, ca);

    cr_assert_eq(ct_key_ring_of(&secret, true, &ring, NULL), 0);
    ct_key_ring_set_certificates(ring, own.certificates);
    ct_net_key_wipe(&own);
    cr_assert_eq(ct_tls_new_server(&server, ring, &server_err), 0, "%s", server_err.text);
    ct_key_ring_unref(ring);
}

static void make_client(const char *name, const char *ca, const char *job)
{
    struct ct_key own = site_load(name, ca);

    cr_assert_eq(ct_tls_new_client(&client, &own, job, &client_err), 0, "%s", client_err.text);
    ct_net_key_wipe(&own);
}

static void make(const char *server_names, const char *client_names)
{
    site_sign("daemon", server_names);
    site_sign("ada", client_names);
    make_server("daemon", "ca");
    make_client("ada", "ca", "ada-1");
}

static void shake_well(void)
{
    long c, s;

    shake(&c, &s);
    cr_assert(c == 0 && s == 0, "%s %s", client_err.text, server_err.text);
    cr_assert(ct_tls_ready(client) && ct_tls_ready(server));
}

static void assert_both_refuse(int code, const char *at_server, int client_code,
                               const char *at_client)
{
    long c, s;

    shake(&c, &s);
    cr_assert_eq(s, code, "%ld %s", s, server_err.text);
    cr_assert_not_null(strstr(server_err.text, at_server), "%s", server_err.text);
    cr_assert_eq(c, client_code, "%ld %s", c, client_err.text);
    cr_assert_not_null(strstr(client_err.text, at_client), "%s", client_err.text);
    cr_assert_not(ct_tls_ready(server));
}

/* ---- right ones ---- */

Test(certificates, two_of_one_ca_meet_and_the_server_knows_who_it_is)
{
    make("URI:ctrun://all/*", "URI:ctrun://agent/ada-*");
    shake_well();
    const struct ct_grant *grant = ct_tls_grant(server);
    struct ct_key own = site_load("ada", "ca");
    cr_assert_str_eq(grant->name, "ada");
    cr_assert_str_eq(grant->id, ct_certificates_grant(own.certificates)->id);
    cr_assert_eq(strspn(grant->id, "0123456789abcdef"), 16);
    ct_net_key_wipe(&own);
    cr_assert_eq(grant->by, CT_KEY_CERTIFICATE);
    cr_assert_not(grant->expired);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_JOIN, "ada-1", -1, NULL), 0);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_NEW, "ada-1", -1, NULL), 0);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_ORDER, "ada-1", -1, &server_err), CT_EAUTH);
    cr_assert_str_eq(server_err.text,
                     "certificate ada has the role agent, which may not give orders");
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_JOIN, "bob-1", -1, &server_err), CT_EAUTH);
    cr_assert_str_eq(server_err.text, "certificate ada is for the jobs ada-*, not for bob-1");
    cr_assert_null(ct_tls_grant(client));
}

Test(certificates, text_goes_both_ways)
{
    char text[16];

    make("URI:ctrun://all/*", "URI:ctrun://agent/ada-*");
    shake_well();
    cr_assert_eq(ct_tls_write(client, "hello", 5, &to_server, NULL), 0);
    cr_assert_eq(ct_tls_feed(server, to_server.data, to_server.size), 0);
    cr_assert_eq(ct_tls_read(server, text, sizeof text, &server_err), 5);
    cr_assert_eq(ct_tls_write(server, "world", 5, &to_client, NULL), 0);
    cr_assert_eq(ct_tls_feed(client, to_client.data, to_client.size), 0);
    cr_assert_eq(ct_tls_read(client, text, sizeof text, &client_err), 5);
}

Test(certificates, each_uri_allows_what_it_says)
{
    make(
        "URI:ctrun://all/*",
        "DNS:ada.example,URI:https://example/x,URI:ctrun://agent/ada-*,URI:ctrun://operator/night");
    shake_well();
    const struct ct_grant *grant = ct_tls_grant(server);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_JOIN, "ada-1", -1, NULL), 0);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_ORDER, "night", -1, NULL), 0);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_READ, "night", -1, NULL), 0);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_JOIN, "night", -1, NULL), CT_EAUTH);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_ORDER, "ada-1", -1, &server_err), CT_EAUTH);
    cr_assert_str_eq(server_err.text, "certificate ada is for the jobs night, not for ada-1");
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_HOLD, "ada-1", -1, NULL), CT_EAUTH);
}

Test(certificates, a_key_opens_the_same_server)
{
    long c, s;

    site_sign("daemon", "URI:ctrun://all/*");
    make_server("daemon", "ca");
    cr_assert_eq(ct_tls_new_client(&client, &secret, "ada-1", &client_err), 0);
    shake(&c, &s);
    cr_assert(c == 0 && s == 0, "%s %s", client_err.text, server_err.text);
    cr_assert_eq(ct_tls_grant(server)->by, CT_KEY_SECRET);
    cr_assert_eq(ct_tls_grant(server)->role, CT_ROLE_ALL);
}

Test(certificates, a_key_that_is_not_in_the_ring_costs_no_signature_and_is_named)
{
    static const struct ct_key wrong = {.secret = "0123456789abcdef0123456789abcdeB"};

    site_sign("daemon", "URI:ctrun://all/*");
    make_server("daemon", "ca");
    cr_assert_eq(ct_tls_new_client(&client, &wrong, "ada-1", &client_err), 0);
    assert_both_refuse(CT_EAUTH, "the peer has another key (tag ", CT_EAUTH,
                       "the peer did not accept this side's key (tag ");
}

Test(certificates, a_ca_between_is_sent_along)
{
    site_ca_sign_ca(site_folder(), "ca", "between");
    site_sign("daemon", "URI:ctrun://all/*");
    site_ca_sign(site_folder(), "between", "ada", "URI:ctrun://agent/*", -HOUR, DAY);
    append("between", "ada");
    make_server("daemon", "ca");
    make_client("ada", "ca", "ada-1");
    shake_well();
    cr_assert_str_eq(ct_tls_grant(server)->name, "ada");
}

Test(certificates, a_hello_counts_as_its_holders_once_all_is_shown)
{
    uint64_t hello = 0;

    make("URI:ctrun://all/*", "URI:ctrun://agent/*");
    cr_assert_eq(ct_tls_handshake(client, &client_err), 0);
    cr_assert_eq(ct_tls_drain(client, &to_server), 0);
    cr_assert_eq(carry(&to_server, server, &server_err), 0);
    cr_assert_not(ct_tls_is_bound(server, &hello));
    shake_well();
    cr_assert(ct_tls_is_bound(server, &hello));
}

/* ---- wrong ones ---- */

Test(certificates, one_of_another_ca_is_refused_and_both_ends_say_so)
{
    site_ca_new(site_folder(), "other");
    site_sign("daemon", "URI:ctrun://all/*");
    site_ca_sign(site_folder(), "other", "eve", "URI:ctrun://all/*", -HOUR, DAY);
    append("ca", "other"); /* she believes the server */
    make_server("daemon", "ca");
    make_client("eve", "other", "ada-1");
    assert_both_refuse(CT_EAUTH, "the certificate of the other end is not believed: ", CT_EAUTH,
                       "the peer did not accept this side's certificate (");
}

Test(certificates, a_server_of_another_ca_is_refused)
{
    site_ca_new(site_folder(), "other");
    site_ca_sign(site_folder(), "other", "daemon", "URI:ctrun://all/*", -HOUR, DAY);
    site_sign("ada", "URI:ctrun://agent/*");
    append("ca", "other");
    make_server("daemon", "other");
    make_client("ada", "ca", "ada-1");
    assert_both_refuse(CT_EAUTH, "the peer did not accept this side's certificate (", CT_EAUTH,
                       "the certificate of the other end is not believed: ");
}

Test(certificates, a_server_that_may_not_serve_the_job_is_refused)
{
    static const char *const names[] = {"URI:ctrun://reader/*", "URI:ctrun://agent/bob-*",
                                        "URI:ctrun://operator/*,URI:ctrun://relay/*"};

    for (size_t i = 0; i < CT_COUNT(names); i++) {
        make(names[i], "URI:ctrun://agent/ada-*");
        assert_both_refuse(CT_EAUTH, "handshake failure", CT_EAUTH,
                           "the other end may not serve job ada-1, which takes the role all or "
                           "agent: certificate daemon ");
        tear_down();
        set_up();
    }
}

Test(certificates, a_node_may_serve_its_job_and_not_all_jobs)
{
    make("URI:ctrun://agent/ada-*", "URI:ctrun://agent/ada-*");
    shake_well();
    ct_tls_free(client);
    ct_tls_free(server);
    make_server("daemon", "ca");
    make_client("ada", "ca", "");
    assert_both_refuse(CT_EAUTH, "handshake failure", CT_EAUTH, "may not serve all jobs");
}

Test(certificates, one_that_has_expired_is_believed_and_begins_nothing_new)
{
    site_sign("daemon", "URI:ctrun://all/*");
    site_ca_sign(site_folder(), "ca", "ada", "URI:ctrun://agent/*,URI:ctrun://reader/*", -DAY, -1);
    make_server("daemon", "ca");
    make_client("ada", "ca", "ada-1");
    shake_well();
    const struct ct_grant *grant = ct_tls_grant(server);
    cr_assert(grant->expired && grant->next->expired);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_JOIN, "ada-1", -1, NULL), 0);
    cr_assert_eq(ct_grant_may(grant, CT_RIGHT_NEW, "ada-1", -1, &server_err), CT_EAUTH);
    cr_assert_not_null(strstr(server_err.text, "certificate ada has expired"), "%s",
                       server_err.text);
}

Test(certificates, a_server_whose_date_is_over_is_for_those_whose_job_runs)
{
    site_ca_sign(site_folder(), "ca", "daemon", "URI:ctrun://all/*", -DAY, -1);
    site_sign("ada", "URI:ctrun://agent/*");
    make_server("daemon", "ca");
    make_client("ada", "ca", "ada-1");
    assert_both_refuse(CT_EAUTH, "handshake failure", CT_EAUTH,
                       "the certificate daemon of the other end has expired");
    ct_tls_free(client);
    ct_tls_free(server);
    make_server("daemon", "ca");
    make_client("ada", "ca", "ada-1");
    ct_tls_accept_expired(client);
    ct_buf_clear(&to_client);
    ct_buf_clear(&to_server);
    shake_well();
}

Test(certificates, a_revoked_one_is_refused_from_then_on)
{
    site_sign("eve", "URI:ctrun://agent/*");
    make("URI:ctrun://all/*", "URI:ctrun://agent/*");
    shake_well();
    struct ct_tls *open_end = server;
    ct_tls_free(client);
    site_ca_revoke(site_folder(), "ca", "ada");
    make_server("daemon", "ca");
    make_client("eve", "ca", "ada-1");
    shake_well();
    ct_tls_free(client);
    ct_tls_free(server);

    struct ct_key own = site_load("daemon", "ca");
    struct ct_key_ring *ring = NULL;
    cr_assert_eq(ct_key_ring_of(&own, true, &ring, NULL), 0);
    cr_assert_not(ct_tls_is_accepted(open_end, ring));
    ct_key_ring_unref(ring);
    ct_net_key_wipe(&own);
    ct_tls_free(open_end);
    client = server = NULL;
}

static bool never(void *user)
{
    (void)user;
    return false;
}

Test(certificates, a_crowd_is_turned_away_before_it_costs_a_signature)
{
    make("URI:ctrun://all/*", "URI:ctrun://agent/*");
    ct_tls_set_gate(server, never, NULL);
    assert_both_refuse(CT_EUNAVAILABLE, "than are let in a second", CT_ECLOSED,
                       "has no time for a TLS handshake now");
}

/* ---- OpenSSL's own clients, which show what ours would not load ---- */

struct raw {
    const struct ct_openssl *ssl;
    SSL_CTX *context;
    SSL *end;
    BIO *in, *out;
};

static void raw_open(struct raw *raw, const char *name)
{
    cr_assert_eq(ct_openssl_get(&raw->ssl, NULL), 0);
    raw->context = raw->ssl->SSL_CTX_new(raw->ssl->TLS_method());
    if (name != NULL) {
        cr_assert_eq(
            raw->ssl->SSL_CTX_use_certificate_chain_file(raw->context, site_path(name, "pem")), 1);
        cr_assert_eq(raw->ssl->SSL_CTX_use_PrivateKey_file(raw->context, site_path(name, "key"),
                                                           SSL_FILETYPE_PEM),
                     1);
    }
    raw->end = raw->ssl->SSL_new(raw->context);
    raw->in = raw->ssl->BIO_new(raw->ssl->BIO_s_mem());
    raw->out = raw->ssl->BIO_new(raw->ssl->BIO_s_mem());
    raw->ssl->SSL_set_bio(raw->end, raw->in, raw->out);
    raw->ssl->SSL_set_connect_state(raw->end);
}

static void raw_close(struct raw *raw)
{
    raw->ssl->SSL_free(raw->end);
    raw->ssl->SSL_CTX_free(raw->context);
}

/* The server's verdict on a client that shows the files of `name` (NULL: none). */
static long judge_raw(const char *name)
{
    static char bytes[1 << 20];
    struct raw raw;
    long result = 0;

    site_sign("daemon", "URI:ctrun://all/*");
    make_server("daemon", "ca");
    raw_open(&raw, name);
    for (int turn = 0; turn < 4 && result == 0; turn++) {
        (void)raw.ssl->SSL_do_handshake(raw.end);
        int size = raw.ssl->BIO_read(raw.out, bytes, sizeof bytes);
        cr_assert_eq(ct_buf_append(&to_server, bytes, (size_t)CT_MAX(size, 0)), 0);
        result = carry(&to_server, server, &server_err);
        (void)ct_tls_drain(server, &to_client);
        if (to_client.size > 0)
            (void)raw.ssl->BIO_write(raw.in, to_client.data, (int)to_client.size);
        ct_buf_clear(&to_client);
    }
    raw_close(&raw);
    return result;
}

static void assert_raw_refused(const char *name, const char *words)
{
    long result = judge_raw(name);

    cr_assert_eq(result, CT_EAUTH, "%ld", result);
    cr_assert_not_null(strstr(server_err.text, words), "%s", server_err.text);
    cr_assert_not(ct_tls_ready(server));
    cr_assert_null(ct_tls_grant(server));
}

Test(certificates, whoever_shows_none_is_refused)
{
    assert_raw_refused(NULL, "the peer has neither a key of this side nor a certificate");
}

Test(certificates, one_that_its_holder_signed_is_refused)
{
    site_ca_new(site_folder(), "self");
    assert_raw_refused("self", "is not believed: self-signed certificate");
}

Test(certificates, one_without_a_uri_of_ours_is_refused)
{
    site_sign("web", "DNS:web.example,URI:https://web.example/");
    assert_raw_refused("web", "certificate web: it has no URI ctrun://ROLE/JOBS among its names");
}

Test(certificates, one_with_a_wrong_uri_is_refused_whatever_else_it_has)
{
    site_sign("odd", "URI:ctrun://agent/*,URI:ctrun://root/*");
    assert_raw_refused("odd", "its URI ctrun://root/* names a role that is none of all, agent");
}

Test(certificates, one_that_is_not_valid_yet_is_refused)
{
    site_ca_sign(site_folder(), "ca", "soon", "URI:ctrun://agent/*", HOUR, DAY);
    assert_raw_refused("soon", "is not believed: certificate is not yet valid");
}

Test(certificates, a_revoked_one_is_refused)
{
    site_sign("gone", "URI:ctrun://agent/*");
    site_ca_revoke(site_folder(), "ca", "gone");
    assert_raw_refused("gone", "is not believed: certificate revoked");
}

Test(certificates, a_chain_without_end_is_not_listened_to)
{
    site_sign("long", "URI:ctrun://agent/*");
    for (int i = 0; i < 100; i++)
        append("ca", "long");
    assert_raw_refused("long", "excessive message size");
}

Test(certificates, a_handshake_without_end_is_cut)
{
    unsigned char record[5 + 16384] = {0x16, 3, 3, 0x40, 0};
    long result = 0;
    size_t fed = 0;

    site_sign("daemon", "URI:ctrun://all/*");
    make_server("daemon", "ca");
    memcpy(record + 5, "\x01\x02\x00\xf0", 4); /* a hello of 131,312 bytes */
    for (; result == 0 && fed < 1 << 20; fed += sizeof record) {
        cr_assert_eq(ct_tls_feed(server, record, sizeof record), 0);
        result = ct_tls_handshake(server, &server_err);
    }
    cr_assert_eq(result, CT_EAUTH);
    cr_assert_leq(fed, (size_t)CT_TLS_HANDSHAKE + 2 * sizeof record);
}
