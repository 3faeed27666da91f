/* One table, four uses: arguments, the file, the help text, the nearest name in an error. */
#include "daemon_options.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "config/tree.h"

#include <string.h>

enum { FILE_BYTES = 1 << 16, ARENA_BYTES = 1 << 20 };

static const char *const names[] = {
#define OPTION(name, field, argument, help) #name,
#include "daemon_options.def"
#undef OPTION
};

static const char help_text[] =
    "usage: ctrund [--config FILE] [--listen ENDPOINT]... [OPTION]...\n"
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

/* ---- the file -------------------------------------------------------------------------------- */

struct file {
    const char *path;
    struct ct_ctrund_options *options;
    struct ct_ctrund_options given; /* by arguments */
    struct ct_error *err;
};

static int complain(const struct file *file, const struct ct_config_node *node, const char *format)
{
    return ct_error_set(file->err, CT_ECONFIG, "%s:%d:%d: %s %s", file->path, node->line,
                        node->column, node->name != NULL ? node->name : "the file", format);
}

static int unknown_key(const struct file *file, const struct ct_config_node *node)
{
    const char *near = ct_nearest(node->name, CT_COUNT(names), name_at, NULL);

    return ct_error_set(file->err, CT_ECONFIG, "%s:%d:%d: unknown key %.100s%s%s%s", file->path,
                        node->line, node->column, node->name,
                        near != NULL ? ": did you mean " : "; ctrund --help lists all",
                        near != NULL ? near : "", near != NULL ? "?" : "");
}

/* "listen" may be one value or several. */
static int take_listen(const struct file *file, const struct ct_config_node *node)
{
    const struct ct_config_node *word = node->kind == CT_CONFIG_NODE_LIST ? node->first : node;
    struct ct_ctrund_options *options = file->options;

    if (node->kind == CT_CONFIG_NODE_MAP)
        return complain(file, node, "wants one value or a list of values");
    for (; word != NULL; word = word->next) {
        if (word->kind != CT_CONFIG_NODE_WORD)
            return complain(file, node, "wants one value or a list of values");
        if (options->listen_count == CT_CTRUND_LISTEN_LIMIT)
            return complain(file, node, "can have 8 values");
        options->listen[options->listen_count++] = word->text;
        if (node->kind == CT_CONFIG_NODE_WORD)
            break;
    }
    return 0;
}

static int take(const struct file *file, const struct ct_config_node *node)
{
    struct ct_ctrund_options given = file->given;
    const char **place = place_of(file->options, node->name, strlen(node->name));
    const char **argument = place_of(&given, node->name, strlen(node->name));

    if (place == NULL)
        return unknown_key(file, node);
    if (place == &file->options->config)
        return complain(file, node, "names another file; write its keys here");
    if (place == &file->options->listen[file->options->listen_count])
        return given.listen_count > 0 ? 0 : take_listen(file, node);
    if (node->kind != CT_CONFIG_NODE_WORD)
        return complain(file, node, "wants one value");
    if (*argument != NULL)
        return 0;
    *place = node->text;
    for (size_t i = 0; i < CT_COUNT(names); i++)
        if (is_named(node->name, strlen(node->name), names[i]))
            file->options->in_file[i] = true;
    return 0;
}

static int read_file(struct ct_ctrund_options *options, struct ct_error *err)
{
    struct file file = {.path = options->config, .options = options, .given = *options, .err = err};
    struct ct_config_tree_problem problem = {0};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    int rc = ct_fs_read(file.path, FILE_BYTES, &text, err);
    const struct ct_config_node *map =
        rc == 0 ? ct_config_tree_parse(ct_buf_str(&text), &options->arena, &problem) : NULL;
    ct_buf_deinit(&text);
    if (rc != 0)
        return rc;
    if (map == NULL)
        return ct_error_set(err, CT_ECONFIG, "%s:%d:%d: the file %s", file.path,
                            CT_MAX(problem.line, 1), CT_MAX(problem.column, 1), problem.text);
    if (map->kind != CT_CONFIG_NODE_MAP)
        return complain(&file, map, "wants lines such as `listen: 127.0.0.1:29400`");
    for (const struct ct_config_node *node = map->first; node != NULL && rc == 0; node = node->next)
        rc = take(&file, node);
    return rc;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* All are read, past an error too: one of them says in which format it is reported. */
int ct_ctrund_options_parse(struct ct_ctrund_options *options, int argc, char **argv,
                            struct ct_error *err)
{
    struct ct_error later;
    int code = 0;

    *options = (struct ct_ctrund_options){0};
    ct_arena_init(&options->arena, ARENA_BYTES);
    for (int i = 1, taken; i < argc; i += CT_MAX(taken, 1)) {
        taken = parse(options, argv + i, code == 0 ? err : &later);
        if (taken < 0 && code == 0)
            code = taken;
    }
    if (code == 0 && options->config != NULL && !options->help && !options->version)
        code = read_file(options, err);
    if (options->listen_count == 0)
        options->listen[options->listen_count++] = "127.0.0.1:29400";
    return code;
}

/* ---- quotas ---------------------------------------------------------------------------------- */

static const char *setter(const struct ct_ctrund_options *options, const char *value, size_t index)
{
    if (value == NULL)
        return NULL;
    return options->in_file[index] ? options->config : "the command line";
}

/* A number from 1 to `most`; absent, 0. */
static int read_amount(const char *name, const char *text, uint64_t most, uint64_t *ret_amount,
                       struct ct_error *err)
{
    uint64_t amount = 0;

    *ret_amount = 0;
    if (text == NULL)
        return 0;
    int rc = strcmp(name, "store_bytes") == 0 ? ct_parse_bytes(text, &amount)
                                              : ct_parse_u64(text, &amount);
    if (rc != 0 || amount == 0 || amount > most)
        return ct_error_set(err, CT_EUSAGE, "--%s is a number from 1 to %llu, not \"%s\"", name,
                            (unsigned long long)most, text);
    *ret_amount = amount;
    return 0;
}

int ct_ctrund_options_quotas(const struct ct_ctrund_options *options, uint32_t links,
                             struct ct_quotas *ret_quotas, struct ct_error *err)
{
    const struct {
        const char *name, *text;
        uint64_t most;
        size_t index;
    } rows[CT_QUOTAS] = {
        [CT_QUOTA_JOBS] = {"jobs", options->jobs, 1 << 20, CT_CTRUND_OPTION_jobs},
        [CT_QUOTA_LINKS] = {"links", options->links, links, CT_CTRUND_OPTION_links},
        [CT_QUOTA_BYTES] = {"store_bytes", options->store_bytes, (uint64_t)1 << 40,
                            CT_CTRUND_OPTION_store_bytes},
        [CT_QUOTA_KEYS] = {"store_keys", options->store_keys, 1 << 30, CT_CTRUND_OPTION_store_keys},
    };
    struct ct_quotas quotas = {.share = 0};
    uint64_t percent;

    for (size_t i = 0; i < CT_QUOTAS; i++) {
        if (read_amount(rows[i].name, rows[i].text, rows[i].most, &quotas.total[i], err) != 0)
            return err->code;
        quotas.set_by[i] = setter(options, rows[i].text, rows[i].index);
    }
    if (quotas.total[CT_QUOTA_LINKS] == 0) {
        quotas.total[CT_QUOTA_LINKS] = links;
        quotas.set_by[CT_QUOTA_LINKS] = "`ulimit -Hn`";
    }
    if (read_amount("share", options->share, 100, &percent, err) != 0)
        return err->code;
    quotas.share = (uint32_t)percent;
    quotas.share_set_by = setter(options, options->share, CT_CTRUND_OPTION_share);
    if (percent == 0 && options->key_file == NULL) { /* on loopback, to this user and root */
        quotas.share = 100;
        quotas.share_set_by = "having no key, so no other users";
    }
    *ret_quotas = quotas;
    return 0;
}

void ct_ctrund_options_deinit(struct ct_ctrund_options *options)
{
    if (options != NULL)
        ct_arena_deinit(&options->arena);
}
