/* The command line of ctrund. */
#ifndef CT_CTRUND_DAEMON_OPTIONS_H
#define CT_CTRUND_DAEMON_OPTIONS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { CT_CTRUND_LISTEN_LIMIT = 8 };

struct ct_ctrund_options {
    const char *listen[CT_CTRUND_LISTEN_LIMIT + 1]; /* one more, for the one too many */
    size_t listen_count;
    const char *key_file;
    const char *journal;
    const char *peers;
    const char *takeover;
    const char *port_file;
    const char *status;
    const char *log_level;
    const char *log_format;
    bool help;
    bool version;
};

/* Read the arguments; the values point into argv. 0, or CT_EUSAGE with the sentence. */
int ct_ctrund_options_parse(struct ct_ctrund_options *options, int argc, char **argv,
                            struct ct_error *err);

/* Return the text of --help. */
const char *ct_ctrund_options_help(void);

#endif
