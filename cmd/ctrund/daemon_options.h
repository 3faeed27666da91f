/* The options of ctrund: its command line, and the YAML file that --config names.
 *
 *      listen: [0.0.0.0:29400, "unix:/run/ctrund/socket"]     a list, or one value
 *      key_file: /etc/ctrun/ctrund.key
 *
 * Both are read by one table, daemon_options.def. An option that is given on the command line
 * replaces what the file says of it. */
#ifndef CT_CTRUND_DAEMON_OPTIONS_H
#define CT_CTRUND_DAEMON_OPTIONS_H

#include "base/arena.h"
#include "base/error.h"
#include "keys/certificates.h"
#include "rendezvous/service/accounts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_CTRUND_LISTEN_LIMIT = 8 };

enum {
#define OPTION(name, field, argument, help) CT_CTRUND_OPTION_##name,
#include "daemon_options.def"
#undef OPTION
    CT_CTRUND_OPTIONS,
};

struct ct_ctrund_options {
    const char *listen[CT_CTRUND_LISTEN_LIMIT + 1]; /* one more, for the one too many */
    size_t listen_count;
    const char *config;
    const char *key_file;
    const char *key_ring;
    struct ct_certificate_files tls;
    const char *journal;
    const char *peers;
    const char *takeover;
    const char *port_file;
    const char *status;
    const char *status_tls, *status_token;
    const char *on_event;
    const char *on_event_kinds;
    const char *audit;
    const char *jobs, *links, *store_bytes, *store_keys, *share;
    const char *log_level;
    const char *log_format;
    bool in_file[CT_CTRUND_OPTIONS]; /* by the table's order: its value is the file's */
    bool help;
    bool version;
    struct ct_arena arena; /* what the file says */
};

/* Read the arguments, and the file if they name one; values point into argv and the arena. 0;
 * CT_EUSAGE, CT_ECONFIG (file:line:column) or CT_ENOINPUT with the sentence. */
int ct_ctrund_options_parse(struct ct_ctrund_options *options, int argc, char **argv,
                            struct ct_error *err);

/* Read the options that are quotas. `links` is the number of connections that the system allows.
 * The texts that say who set them are the options'. 0; CT_EUSAGE with the sentence. */
int ct_ctrund_options_quotas(const struct ct_ctrund_options *options, uint32_t links,
                             struct ct_quotas *ret_quotas, struct ct_error *err);

/* Release what was read; NULL is ignored. */
void ct_ctrund_options_deinit(struct ct_ctrund_options *options);

/* Return the text of --help. */
const char *ct_ctrund_options_help(void);

#endif
