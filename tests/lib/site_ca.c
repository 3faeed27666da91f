/* See site_ca.h. */
#include "site_ca.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COMMAND = 4096, DATE = 32 };

#define NEW_KEY "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
#define BY_CA "openssl ca -batch -config ca.cnf -cert %s.pem -keyfile %s.key"

static void run(const char *command)
{
    if (system(command) == 0)
        return;
    (void)fprintf(stderr, "site_ca: this failed: %s\n", command);
    abort();
}

__attribute__((format(printf, 1, 2))) static void run_in(const char *format, ...);

static void run_in(const char *format, ...)
{
    char command[COMMAND];
    va_list list;

    va_start(list, format);
    int size = vsnprintf(command, sizeof command, format, list);
    va_end(list);
    if (size < 0 || size >= COMMAND)
        abort();
    run(command);
}

void site_ca_new(const char *folder, const char *name)
{
    run_in(
        "cd %s && : >>index.txt && printf '[ca]\\ndefault_ca=site\\n[site]\\ndatabase=index.txt\\n"
        "new_certs_dir=.\\ndefault_md=sha256\\npolicy=any\\nunique_subject=no\\nrand_serial=yes\\n"
        "default_crl_days=30\\n[any]\\ncommonName=supplied\\n' >ca.cnf && "
        "openssl req -x509 " NEW_KEY " -keyout %s.key -out %s.pem -days 3650 -subj '/CN=%s' "
        "2>/dev/null",
        folder, name, name, name);
}

static void put_date(int from_now_s, char to[DATE])
{
    time_t at = time(NULL) + from_now_s;
    struct tm parts;

    (void)gmtime_r(&at, &parts);
    (void)strftime(to, DATE, "%Y%m%d%H%M%SZ", &parts);
}

static void sign(const char *folder, const char *ca, const char *name, const char *extensions,
                 int from_s, int to_s)
{
    char from[DATE], to[DATE];

    put_date(from_s, from);
    put_date(to_s, to);
    run_in("cd %s && openssl req " NEW_KEY " -keyout %s.key -out %s.csr -subj '/CN=%s' 2>/dev/null "
           "&& printf '%%s\\n' '%s' >%s.ext && " BY_CA
           " -in %s.csr -out %s.pem -notext -startdate %s -enddate %s -extfile %s.ext 2>%s.err",
           folder, name, name, name, extensions, name, ca, ca, name, name, from, to, name, name);
}

void site_ca_sign(const char *folder, const char *ca, const char *name, const char *names,
                  int from_s, int to_s)
{
    char extensions[COMMAND / 2];

    (void)snprintf(extensions, sizeof extensions, "%s%s", names[0] != '\0' ? "subjectAltName=" : "",
                   names[0] != '\0' ? names : "keyUsage=digitalSignature");
    sign(folder, ca, name, extensions, from_s, to_s);
}

void site_ca_sign_ca(const char *folder, const char *ca, const char *name)
{
    sign(folder, ca, name, "basicConstraints=critical,CA:TRUE", -3600, 86400);
}

void site_ca_revoke(const char *folder, const char *ca, const char *name)
{
    run_in("cd %s && " BY_CA " -revoke %s.pem 2>/dev/null && " BY_CA
           " -gencrl -out %s.crl 2>/dev/null && openssl x509 -in %s.pem -out %s.new && "
           "cat %s.crl >>%s.new && mv %s.new %s.pem",
           folder, ca, ca, name, ca, ca, ca, ca, ca, ca, ca, ca, ca);
}
