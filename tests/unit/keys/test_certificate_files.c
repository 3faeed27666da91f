/* The files of a certificate: what is wrong with them is named, and renewed ones are taken. */
#include "keys/certificates.h"

#include "certificate_site.h"
#include "site_ca.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

TestSuite(certificate_files, .init = site_set_up, .fini = site_tear_down, .timeout = 60);

static void assert_refused(const struct ct_key_source *source, int code, const char *words)
{
    struct ct_key key = {.kind = CT_KEY_SECRET};
    struct ct_error err = {0};

    cr_assert_eq(ct_key_source_load(source, &key, &err), code, "%s", err.text);
    cr_assert_not_null(strstr(err.text, words), "%s", err.text);
    cr_assert_null(key.certificates);
}

Test(certificate_files, what_is_wrong_with_a_file_is_named)
{
    site_sign("ada", "URI:ctrun://agent/*");
    site_sign("bob", "URI:ctrun://agent/*");
    site_sign("web", "DNS:web.example");
    site_ca_new(site_folder(), "other");
    site_ca_sign(site_folder(), "ca", "soon", "URI:ctrun://agent/*", HOUR, DAY);
    struct ct_key_source source = site_files("ada", "ca");

    source.tls.ca = "";
    assert_refused(&source, CT_EUSAGE, "belong together: --tls_ca is missing");
    source.tls = (struct ct_certificate_files){.key = site_path("ada", "key")};
    assert_refused(&source, CT_EUSAGE, "--tls_cert is missing");
    source = site_files("ada", "ca");
    source.key_file = site_path("ada", "key");
    assert_refused(&source, CT_EUSAGE, "leave out the other");
    source = site_files("nobody", "ca");
    assert_refused(&source, CT_ENOINPUT, "cannot open certificate file");
    source = site_files("ada", "nobody");
    assert_refused(&source, CT_ENOINPUT, "cannot open CA file");
    source = site_files("ada", "ca");
    source.tls.key = site_path("bob", "key");
    assert_refused(&source, CT_EDATA, "is not the private key of the certificate in");
    source = site_files("ada", "other");
    assert_refused(&source, CT_EDATA, "is not signed by the CA in");
    source = site_files("web", "ca");
    assert_refused(&source, CT_EDATA, "certificate web: it has no URI ctrun://ROLE/JOBS");
    source = site_files("soon", "ca");
    assert_refused(&source, CT_EDATA, "not yet valid");
    source = site_files("ada", "ca");
    source.tls.chain = site_path("ada", "ext");
    assert_refused(&source, CT_EDATA, "has no certificate that can be used");
    source.tls.chain = site_folder();
    assert_refused(&source, CT_EDATA, "is no regular file");
    source = site_files("ada", "ca");
    source.tls.ca = site_path("ada", "ext");
    assert_refused(&source, CT_EDATA, "has no certificate of a CA that can be used");
    cr_assert_eq(chmod(site_path("ada", "key"), 0644), 0);
    source = site_files("ada", "ca");
    assert_refused(&source, CT_EAUTH, "is open to others (mode 0644): chmod 600");
}

Test(certificate_files, a_key_with_a_passphrase_asks_nobody)
{
    char command[512];

    site_sign("ada", "URI:ctrun://agent/*");
    (void)snprintf(command, sizeof command,
                   "openssl pkey -in %s -aes128 -passout pass:secret -out %s && chmod 600 %s",
                   site_path("ada", "key"), site_path("shut", "key"), site_path("shut", "key"));
    cr_assert_eq(system(command), 0);
    struct ct_key_source source = site_files("ada", "ca");
    source.tls.key = site_path("shut", "key");
    assert_refused(&source, CT_EDATA, "or has a passphrase");
}

Test(certificate_files, renewed_files_are_taken_and_half_renewed_ones_are_not)
{
    site_sign("ada", "URI:ctrun://agent/*");
    const struct ct_key_source source = site_files("ada", "ca");
    struct ct_key key = site_load("ada", "ca");
    struct ct_certificates *before = key.certificates;
    char first[CT_GRANT_ID];

    memcpy(first, ct_certificates_grant(before)->id, sizeof first);
    cr_assert_eq(rename(site_path("ada", "key"), site_path("kept", "key")), 0);
    ct_key_source_reload(&source, &key);
    cr_assert_eq(key.certificates, before);
    site_sign("ada", "URI:ctrun://agent/*");
    ct_key_source_reload(&source, &key);
    cr_assert_str_neq(ct_certificates_grant(key.certificates)->id, first);
    ct_net_key_wipe(&key);
}

Test(certificate_files, a_week_before_its_end_it_is_told)
{
    int64_t now_s = time(NULL);
    struct ct_error err = {0};

    site_ca_sign(site_folder(), "ca", "ada", "URI:ctrun://agent/*", -HOUR, 8 * DAY);
    struct ct_key key = site_load("ada", "ca");
    const struct ct_certificates *own = key.certificates;
    int64_t end_s = ct_certificates_expire_s(own);

    cr_assert(end_s > now_s + 8 * DAY - 60 && end_s < now_s + 8 * DAY + 60);
    cr_assert_eq(ct_certificates_judge_time(own, end_s - 7 * DAY - 1, &err), 0);
    cr_assert_eq(ct_certificates_judge_time(own, end_s - 7 * DAY, &err), CT_EUNAVAILABLE);
    cr_assert_not_null(strstr(err.text, "the certificate ada expires in 168 hours, on 20"), "%s",
                       err.text);
    cr_assert_eq(ct_certificates_judge_time(own, end_s + 1, &err), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "the certificate ada has expired on 20"), "%s", err.text);
    ct_net_key_wipe(&key);
}
