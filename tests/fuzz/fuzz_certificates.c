/* Fuzz: what a stranger sends to a server that has certificates, by the first byte of the input:
 *
 *      'u'  a URI of a certificate, and a common name
 *      'c'  a certificate (DER): what is read of it, and whether it is believed
 *      else bytes of a TLS handshake, in pieces of as many bytes as the first one says (0: at once)
 *
 * Nobody is let in, and nothing is allowed that a certificate of the CA does not say. The CA is
 * made anew by the openssl program. */
#include "base/assert.h"
#include "base/fs.h"
#include "keys/certificate_reader.h"
#include "keys/certificate_uri.h"
#include "keys/key_source.h"
#include "net/tls.h"
#include "site_ca.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    const struct ct_openssl *ssl;
    struct ct_key own;
    struct ct_key_ring *ring;
    X509 *(*parse)(X509 **, const unsigned char **, long);
    void (*free_certificate)(X509 *);
} world;

static void set_up(void)
{
    static const struct ct_key secret = {.secret = "0123456789abcdef0123456789abcdeA"};
    char folder[] = "/tmp/fuzz-certificates-XXXXXX", chain[64], key[64], ca[64];
    const struct ct_key_source source = {.tls = {chain, key, ca}};
    void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);

    if (world.ssl != NULL)
        return;
    CT_ASSERT(library != NULL && mkdtemp(folder) != NULL);
    (void)snprintf(chain, sizeof chain, "%s/daemon.pem", folder);
    (void)snprintf(key, sizeof key, "%s/daemon.key", folder);
    (void)snprintf(ca, sizeof ca, "%s/ca.pem", folder);
    site_ca_new(folder, "ca");
    site_ca_sign(folder, "ca", "daemon", "URI:ctrun://all/*", -60, 86400);
    int code = ct_openssl_get(&world.ssl, NULL);
    CT_ASSERT(code == 0);
    code = ct_key_source_load(&source, &world.own, NULL);
    CT_ASSERT(code == 0);
    code = ct_key_ring_of(&secret, true, &world.ring, NULL);
    CT_ASSERT(code == 0);
    ct_key_ring_set_certificates(world.ring, world.own.certificates);
    ct_fs_remove_tree(folder);
    void *parse = dlsym(library, "d2i_X509"), *release = dlsym(library, "X509_free");
    CT_ASSERT(parse != NULL && release != NULL);
    memcpy(&world.parse, &parse, sizeof parse);
    memcpy(&world.free_certificate, &release, sizeof release);
}

static void check_grant(const struct ct_grant *grant)
{
    CT_ASSERT(grant->role < CT_ROLES && grant->jobs[0] != '\0');
    CT_ASSERT(memchr(grant->jobs, '\0', sizeof grant->jobs) != NULL);
    CT_ASSERT(strpbrk(grant->jobs, " \t\r\n\x7f") == NULL);
    (void)ct_grant_may(grant, CT_RIGHT_JOIN, "night", -1, NULL);
}

static void read_uri(const uint8_t *data, size_t size)
{
    struct ct_grant grant = {.name = ""};
    struct ct_error err = {0};
    int code = ct_certificate_uri_read(data, size, &grant, &err);

    CT_ASSERT(code == 0 || code == 1 || (code == CT_EDATA && err.text[0] != '\0'));
    CT_ASSERT(strpbrk(err.text, "\r\n\x1b") == NULL);
    if (code == 1)
        check_grant(&grant);
    ct_certificate_name_clean(data, size, grant.name);
    CT_ASSERT(size == 0 || ct_grant_read_name(&grant, grant.name, NULL) == 0);
}

static void read_certificate(const uint8_t *data, size_t size)
{
    const unsigned char *at = data;
    struct ct_grant *grants = NULL;
    struct ct_error err = {0};
    X509 *certificate = world.parse(NULL, &at, (long)size);

    if (certificate == NULL)
        return;
    int code = ct_certificate_read(world.ssl, certificate, &grants, &err);
    CT_ASSERT(code == 0 || err.text[0] != '\0');
    for (const struct ct_grant *grant = grants; grant != NULL; grant = grant->next)
        check_grant(grant);
    if (code == 0)
        CT_ASSERT(strlen(grants->id) == CT_GRANT_ID - 1 && grants->by == CT_KEY_CERTIFICATE);
    (void)ct_certificate_expires_s(world.ssl, certificate);
    free(grants);
    world.free_certificate(certificate);
}

static void shake_hands(const uint8_t *data, size_t size, size_t piece)
{
    struct ct_tls *tls = NULL;
    struct ct_error err = {0};
    struct ct_buf out;
    char plain[256];
    long result = 0;
    int code = ct_tls_new_server(&tls, world.ring, &err);

    CT_ASSERT(code == 0);
    ct_buf_init(&out, 0);
    while (result >= 0 && size > 0) {
        size_t part = piece == 0 ? size : CT_MIN(piece, size);

        code = ct_tls_feed(tls, data, part);
        CT_ASSERT(code == 0);
        data += part;
        size -= part;
        result = ct_tls_read(tls, plain, sizeof plain, &err);
        (void)ct_tls_drain(tls, &out);
        CT_ASSERT(result <= 0 && (result == 0 || err.text[0] != '\0'));
    }
    CT_ASSERT(!ct_tls_ready(tls));
    ct_buf_deinit(&out);
    ct_tls_free(tls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    set_up();
    if (size == 0)
        return 0;
    if (data[0] == 'u')
        read_uri(data + 1, size - 1);
    else if (data[0] == 'c')
        read_certificate(data + 1, size - 1);
    else
        shake_hands(data + 1, size - 1, data[0]);
    return 0;
}
