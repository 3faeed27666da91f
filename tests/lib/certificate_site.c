/* See certificate_site.h. */
#include "certificate_site.h"

#include "base/assert.h"
#include "base/fs.h"
#include "site_ca.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[64];

void site_set_up(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/certificates-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    site_ca_new(folder, "ca");
}

void site_tear_down(void)
{
    ct_fs_remove_tree(folder);
}

const char *site_folder(void)
{
    return folder;
}

const char *site_path(const char *name, const char *ending)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % CT_COUNT(paths)];

    (void)snprintf(path, sizeof paths[0], "%s/%s.%s", folder, name, ending);
    return path;
}

struct ct_key_source site_files(const char *name, const char *ca)
{
    return (struct ct_key_source){
        .tls = {site_path(name, "pem"), site_path(name, "key"), site_path(ca, "pem")}};
}

void site_sign(const char *name, const char *names)
{
    site_ca_sign(folder, "ca", name, names, -HOUR, 30 * DAY);
}

struct ct_key site_load(const char *name, const char *ca)
{
    const struct ct_key_source source = site_files(name, ca);
    struct ct_key key = {.kind = CT_KEY_SECRET};
    struct ct_error err = {0};

    cr_assert_eq(ct_key_source_load(&source, &key, &err), 0, "%s", err.text);
    cr_assert_eq(key.kind, CT_KEY_CERTIFICATE);
    return key;
}
