/* A site's certificates in a folder of the test, for tests of certificates. */
#ifndef TESTS_UNIT_NET_CERTIFICATE_SITE_H
#define TESTS_UNIT_NET_CERTIFICATE_SITE_H

#include "keys/key_source.h"

enum { HOUR = 3600, DAY = 86400 };

/* Make the folder, with a CA "ca"; remove it. */
void site_set_up(void);
void site_tear_down(void);
const char *site_folder(void);

/* Return "<folder>/<name>.<ending>"; eight stay valid. */
const char *site_path(const char *name, const char *ending);

/* Return the files of a certificate and a CA; two stay valid. */
struct ct_key_source site_files(const char *name, const char *ca);

/* Have "ca" sign a certificate for 30 days. */
void site_sign(const char *name, const char *names);

/* Load a certificate, to be wiped; the test fails when that is not possible. */
struct ct_key site_load(const char *name, const char *ca);

#endif
