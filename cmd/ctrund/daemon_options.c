/* One table, three uses: parsing, the help text, the nearest name in an error. */
#include "daemon_options.h"

#include "base/assert.h"
#include "base/str.h"

#include <string.h>

static const char *const names[] = {
#define OPTION(name, field, argument, help) #name,
#include "daemon_options.def"
#undef OPTION
};

static const char help_text[] =
    "usage: ctrund [--listen ENDPOINT]... [OPTION]...\n"
    "\n"
    "The rendezvous of ctrun as a program of its own: it serves many jobs at once, one that "
    "begins\n"
    "with the first `ctrun --rdzv_endpoint ENDPOINT --rdzv_id NAME` that names it.\n"
    "\n"
#define OPTION(name, field, argument, help) "  --" #name " " argument "\n        " help "\n"
#include "daemon_options.def"
#undef OPTION
    "  --help, --version\n"
    "\n"
    "SIGTERM and SIGINT shut it down cleanly, SIGHUP has it read the key file again.\n"
    "Exit status: 0, or as of ctrun(1).\n";

const char *ct_ctrund_options_help(void)
{
    return help_text;
}

static const char *name_at(const void *context, size_t index)
{
    (void)context;
    return names[index];
}

/* Does `argument` (behind its dashes) name the option? '-' and '_' are the same. */
static bool is_named(const char *argument, size_t size, const char *name)
{
    if (strlen(name) != size)
        return false;
    for (size_t i = 0; i < size; i++)
        if (argument[i] != name[i] && !(argument[i] == '-' && name[i] == '_'))
            return false;
    return true;
}

/* Where the value of an option goes; NULL for an unknown one. */
static const char **place_of(struct ct_ctrund_options *options, const char *argument, size_t size)
{
    const char **const places[] = {
#define OPTION(name, field, argument, help) &options->field,
#include "daemon_options.def"
#undef OPTION
    };
    for (size_t i = 0; i < CT_COUNT(names); i++)
        if (is_named(argument, size, names[i]))
            return places[i];
    return NULL;
}

static int unknown(const char *argument, struct ct_error *err)
{
    const char *near = ct_nearest(argument, CT_COUNT(names), name_at, NULL);
    return ct_error_set(err, CT_EUSAGE, "unknown option --%s%s%s%s; see ctrund --help", argument,
                        near != NULL ? ": did you mean --" : "", near != NULL ? near : "",
                        near != NULL ? "?" : "");
}

/* An argument, and its value if that is the next one; returns how many they are, or a code. */
static int parse(struct ct_ctrund_options *options, char *const *argv, struct ct_error *err)
{
    const char *argument = argv[0];

    if (strcmp(argument, "-h") == 0 || strcmp(argument, "--help") == 0) {
        options->help = true;
        return 1;
    }
    if (strcmp(argument, "--version") == 0) {
        options->version = true;
        return 1;
    }
    if (!ct_starts_with(argument, "--"))
        return ct_error_set(err, CT_EUSAGE, "unexpected argument \"%s\"; see ctrund --help",
                            argument);
    argument += 2;
    size_t size = strcspn(argument, "=");
    const char **place = place_of(options, argument, size);
    if (place == NULL)
        return unknown(argument, err);
    bool listens = place == &options->listen[options->listen_count];
    if (listens && options->listen_count == CT_CTRUND_LISTEN_LIMIT)
        return ct_error_set(err, CT_EUSAGE, "--listen can be given %d times",
                            CT_CTRUND_LISTEN_LIMIT);
    if (argument[size] != '=' && argv[1] == NULL)
        return ct_error_set(err, CT_EUSAGE, "option --%s needs a value", argument);
    *place = argument[size] == '=' ? argument + size + 1 : argv[1];
    options->listen_count += listens ? 1 : 0;
    return argument[size] == '=' ? 1 : 2;
}

/* All are read, past an error too: one of them says in which format it is reported. */
int ct_ctrund_options_parse(struct ct_ctrund_options *options, int argc, char **argv,
                            struct ct_error *err)
{
    struct ct_error later;
    int code = 0;

    *options = (struct ct_ctrund_options){0};
    for (int i = 1, taken; i < argc; i += CT_MAX(taken, 1)) {
        taken = parse(options, argv + i, code == 0 ? err : &later);
        if (taken < 0 && code == 0)
            code = taken;
    }
    if (options->listen_count == 0)
        options->listen[options->listen_count++] = "127.0.0.1:29400";
    return code;
}
