/* The command-line options of a subcommand, whose names, values and help are rows of commands.def,
 * and its positional arguments.
 *
 *     ctrun sample runs/novel --tokens 100 --seed=7 */
#ifndef CT_CTRUN_CLI_OPTIONS_H
#define CT_CTRUN_CLI_OPTIONS_H

#include "base/error.h"

#include <stddef.h>

enum ct_option_type {
    CT_OPTION_TEXT,   /* const char * */
    CT_OPTION_TEXTS,  /* struct ct_option_texts; may be given several times */
    CT_OPTION_NUMBER, /* int64_t */
    CT_OPTION_REAL,   /* double */
    CT_OPTION_BYTES,  /* uint64_t, above 0 */
    CT_OPTION_TIME,   /* uint64_t, milliseconds, above 0 */
    CT_OPTION_FLAG    /* bool; takes no value */
};

enum { CT_OPTION_TEXTS_MAX = 64 };

struct ct_option_texts {
    const char *at[CT_OPTION_TEXTS_MAX];
    int count;
};

struct ct_option {
    const char *name; /* "tokens" for --tokens N and --tokens=N; "_" and "-" are alike */
    enum ct_option_type type;
    void *to;
};

struct ct_cli_options {
    const char *command; /* its name in commands.def */
    const struct ct_option *options;
    size_t option_count;
    const char *letters; /* "o": -o is the option whose name begins with o; NULL: none */
    const char **places; /* positional arguments, at most `room` */
    int room, count;
    char **rest; /* for options of the configuration, as many as argv has; NULL: none are taken */
    int rest_count;
};

/* Parse `argv` (without the command's name): options into their places, positional arguments into
 * `places`, options of the configuration with their values into `rest`. All arguments after "--"
 * are positional. 0, or CT_EUSAGE, which names the argument. */
int ct_cli_options_read(struct ct_cli_options *cli, int argc, char *const *argv,
                        struct ct_error *err);

#endif
