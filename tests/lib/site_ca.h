/* A site's certificate authority for tests, made by the openssl program in a folder of the test.
 *
 *      site_ca_new(folder, "ca");                                     ca.pem, ca.key
 *      site_ca_sign(folder, "ca", "ada", "URI:ctrun://agent/x", -60, 3600);   ada.pem, ada.key
 *
 * What fails ends the process, with the command. */
#ifndef TESTS_SITE_CA_H
#define TESTS_SITE_CA_H

#include <stdbool.h>

/* Make a CA that signs itself; for ten years. */
void site_ca_new(const char *folder, const char *name);

/* Make a certificate for `name`, good from `from_s` to `to_s` seconds from now; `names` is its
 * subjectAltName, "" for none. */
void site_ca_sign(const char *folder, const char *ca, const char *name, const char *names,
                  int from_s, int to_s);

/* Make a CA that another one signs: `name`.pem has itself alone. */
void site_ca_sign_ca(const char *folder, const char *ca, const char *name);

/* Revoke a certificate: `ca`.pem has the list of revoked ones from now on. */
void site_ca_revoke(const char *folder, const char *ca, const char *name);

#endif
