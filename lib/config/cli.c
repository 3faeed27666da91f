/* The command line:  [options] FILE.yaml [options] [-- words for the trainer]
 *                     [options] PROGRAM [words for the program, untouched]
 *
 * Every key is an option under its path (--optim.lr 0.1, --optim.lr=0.1); keys of launch, and those
 * outside any section, also without the section (--nnodes 2). Dashes are as good as underscores.
 * A flag needs no value: --standalone; it takes one behind "=", and under its path also as the next
 * word when that is true or false. As with torchrun, the beginning of a name without a section is
 * enough when no other name begins so (--nproc 2); a note says what was understood. */
#include "config/loader.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

struct command_line {
    struct ct_config_loader *loader;
    struct ct_config_command *command;
    int at;       /* the next word of argv */
    bool unknown; /* an option was no option: the word behind it may be its value */
};

static const char *next_word(struct command_line *c)
{
    return c->at < c->loader->in->argc ? c->loader->in->argv[c->at] : NULL;
}

/* The origin of what an option says: `name` is a part of argv's word, copied. */
static struct ct_config_origin origin_of(const struct command_line *c, const char *name,
                                         size_t length)
{
    const char *copy = ct_arena_strndup(&c->loader->cfg->arena, name, length);

    return (struct ct_config_origin){.layer = CT_CONFIG_COMMAND_LINE,
                                     .name = copy != NULL ? copy : "the command line"};
}

static const struct ct_config_key *find_key(const char *name)
{
    char path[128];
    const struct ct_config_key *key = ct_config_key_find(name);

    if (key != NULL || strchr(name, '.') != NULL)
        return key;
    (void)snprintf(path, sizeof path, "launch.%s", name);
    return ct_config_key_find(path);
}

/* Names without a section: keys of launch, keys outside any section, torchrun's other options. */
static const char *short_name_at(const void *context, size_t index)
{
    const struct ct_torchrun_option *option;

    (void)context;
    if (index >= CT_CONFIG_KEYS) {
        option = ct_torchrun_at(index - CT_CONFIG_KEYS);
        return option->name;
    }
    const struct ct_config_key *key = &ct_config_keys[index];
    return key->section[0] == '\0' || strcmp(key->section, "launch") == 0 ? key->name : key->path;
}

static size_t short_name_count(void)
{
    size_t count = CT_CONFIG_KEYS;

    while (ct_torchrun_at(count - CT_CONFIG_KEYS) != NULL)
        count++;
    return count;
}

/* Does `name` begin with `beginning`, dashes being as good as underscores? */
static bool begins(const char *name, const char *beginning)
{
    char cut[128];

    (void)snprintf(cut, sizeof cut, "%.*s", (int)strlen(beginning), name);
    return ct_config_same_name(cut, beginning);
}

/* The names without a section that begin with `beginning`, "--a, --b", in `list`; how many. */
static size_t complete(const char *beginning, const char **ret_name, struct ct_buf *list)
{
    size_t found = 0, count = short_name_count();

    for (size_t i = 0; i < count; i++) {
        const char *name = short_name_at(NULL, i);
        bool again = i >= CT_CONFIG_KEYS && find_key(name) != NULL;

        if (again || strchr(name, '.') != NULL || !begins(name, beginning))
            continue;
        (void)ct_buf_printf(list, "%s--%s", found > 0 ? ", " : "", name);
        *ret_name = name;
        found++;
    }
    return found;
}

const char *ct_config_option_like(const char *name)
{
    const char *meant = ct_config_synonym(name), *near = NULL;

    if (meant != NULL)
        return meant;
    if (strchr(name, '.') == NULL)
        near = ct_nearest(name, short_name_count(), short_name_at, NULL);
    return near != NULL ? near : ct_config_guess(name);
}

static void complain_unknown(struct command_line *c, const char *name,
                             const struct ct_config_origin *origin)
{
    const char *guess = ct_config_option_like(name);

    c->unknown = true;
    if (guess != NULL)
        ct_config_complain(c->loader, origin, "", "is no option; did you mean --%s?", guess);
    else
        ct_config_complain(c->loader, origin, "",
                           "is no option; see ctrun help run; put the program's own options after "
                           "the program");
}

/* The value behind an option that needs one, or NULL after a complaint. */
static const char *next_value(struct command_line *c, const struct ct_config_origin *origin)
{
    char shown[CT_CONFIG_SHOWN_ROOM];
    const char *word = next_word(c);

    if (word == NULL) {
        ct_config_complain(c->loader, origin, "", "wants a value");
        return NULL;
    }
    if (ct_starts_with(word, "--")) {
        ct_config_complain(c->loader, origin, "",
                           "wants a value, but %s follows; write %s=VALUE if that is the value",
                           ct_config_shown(word, shown), origin->name);
        return NULL;
    }
    c->at++;
    return word;
}

static void read_key(struct command_line *c, const struct ct_config_key *key, const char *value,
                     const struct ct_config_origin *origin)
{
    bool flag = key->type == CT_CONFIG_TYPE_BOOL;
    bool ignored;

    if (value == NULL && flag) {
        const char *word = next_word(c);
        bool dotted = strchr(origin->name, '.') != NULL;
        value = "true";
        if (dotted && word != NULL && ct_parse_bool(word, &ignored) == 0) {
            value = word;
            c->at++;
        }
    } else if (value == NULL) {
        value = next_value(c, origin);
    }
    if (value != NULL)
        ct_config_set_text(c->loader, key, value, origin);
}

static void read_torchrun(struct command_line *c, const struct ct_torchrun_option *option,
                          const char *value, const struct ct_config_origin *origin)
{
    if (option->action == CT_TORCHRUN_KEY) {
        read_key(c, ct_config_key_find(option->text), value, origin);
        return;
    }
    if (option->action == CT_TORCHRUN_SET) {
        if (value != NULL)
            ct_config_complain(c->loader, origin, "", "takes no value");
        else
            ct_torchrun_apply(c->loader, option, NULL, origin);
        return;
    }
    if (value == NULL)
        value = next_value(c, origin);
    if (value != NULL)
        ct_torchrun_apply(c->loader, option, value, origin);
}

int ct_config_option_width(const char *word, const char *next)
{
    size_t length = strcspn(word, "=");
    const struct ct_torchrun_option *option = NULL;
    const struct ct_config_key *key = NULL;
    struct ct_buf matches;
    char copy[128];
    const char *name = copy + 2;
    bool dashes = ct_starts_with(word, "--"), ignored;

    (void)snprintf(copy, sizeof copy, "%.*s", (int)length, word);
    if (!dashes) {
        option = word[0] == '-' ? ct_torchrun_find_letter(word[1]) : NULL;
    } else if ((key = find_key(name)) == NULL && (option = ct_torchrun_find(name)) == NULL &&
               name[0] != '\0') {
        ct_buf_init(&matches, 0);
        if (complete(name, &name, &matches) > 0) {
            key = find_key(name);
            option = ct_torchrun_find(name);
        }
        ct_buf_deinit(&matches);
    }
    if (key == NULL && option == NULL)
        return 0;
    if (key == NULL && option->action == CT_TORCHRUN_KEY)
        key = ct_config_key_find(option->text);
    bool flag = key != NULL && key->type == CT_CONFIG_TYPE_BOOL;
    bool has_value = dashes ? word[length] == '=' : word[2] != '\0';
    if (has_value || next == NULL)
        return 1;
    if (flag)
        return strchr(name, '.') != NULL && ct_parse_bool(next, &ignored) == 0 ? 2 : 1;
    return 2;
}

/* "--name", "--name=value". */
static void read_long(struct command_line *c, const char *word)
{
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    struct ct_config_origin origin = origin_of(c, word, length);
    const char *name = origin.name + 2;
    struct ct_buf matches;
    size_t found = 0;

    ct_buf_init(&matches, 0);
    if (find_key(name) == NULL && ct_torchrun_find(name) == NULL && name[0] != '\0')
        found = complete(name, &name, &matches);
    const struct ct_torchrun_option *option = ct_torchrun_find(name);
    const struct ct_config_key *key = find_key(name);
    if (found == 1)
        ct_config_note(c->loader, &origin, "", "is taken for --%s", name);
    if (found > 1)
        ct_config_complain(c->loader, &origin, "", "begins more than one option: %s",
                           ct_buf_str(&matches));
    else if (key != NULL)
        read_key(c, key, value, &origin);
    else if (option != NULL)
        read_torchrun(c, option, value, &origin);
    else
        complain_unknown(c, name, &origin);
    ct_buf_deinit(&matches);
}

/* "-nproc_per_node 2": a dash is missing; or some letter that is no option. */
static void complain_short(struct command_line *c, const char *word,
                           const struct ct_config_origin *origin)
{
    char dashed[128];

    (void)snprintf(dashed, sizeof dashed, "-%s", word);
    if (word[2] != '\0' && ct_config_option_width(dashed, NULL) > 0)
        ct_config_complain(c->loader, origin, "", "is no option; write two dashes: %s", dashed);
    else
        ct_config_complain(c->loader, origin, "", "is no option; see ctrun --help");
}

/* "master_addr", "rdzv_id=7", as behind a single dash. */
static bool is_long_name(const char *text)
{
    char name[128];
    size_t length = strcspn(text, "=");

    (void)snprintf(name, sizeof name, "%.*s", (int)length, text);
    return length > 1 && (find_key(name) != NULL || ct_torchrun_find(name) != NULL);
}

/* "-m", "-r 3", "-r3", "-r=3". */
static void read_short(struct command_line *c, const char *word)
{
    const struct ct_torchrun_option *option = ct_torchrun_find_letter(word[1]);
    struct ct_config_origin origin =
        origin_of(c, word, option != NULL && !is_long_name(word + 1) ? 2 : strlen(word));
    const char *value = word[2] != '\0' ? word + 2 + (word[2] == '=') : NULL;

    if (option != NULL && !is_long_name(word + 1))
        read_torchrun(c, option, value, &origin);
    else
        complain_short(c, word, &origin);
}

static bool is_yaml(const struct command_line *c, const char *word)
{
    return c->loader->in->file_only || ct_ends_with(word, ".yaml") || ct_ends_with(word, ".yml");
}

/* The first word that is no option. Returns true when everything behind it is not ours. */
static bool read_positional(struct command_line *c, const char *word)
{
    struct ct_config_origin origin = origin_of(c, word, strlen(word));

    if (c->command->file != NULL) {
        if (c->unknown)
            return false;
        ct_config_complain(c->loader, &origin, "",
                           "is one word too many: %s is the file already, and words for the "
                           "trainer come behind \"--\"",
                           c->command->file);
        return false;
    }
    if (is_yaml(c, word)) {
        c->command->file = word;
        return false;
    }
    c->command->program = word;
    return true;
}

void ct_config_read_command_line(struct ct_config_loader *loader)
{
    struct command_line c = {.loader = loader, .command = &loader->cfg->command};
    const char *word;
    bool ended = false;

    while (!ended && (word = next_word(&c)) != NULL) {
        c.at++;
        if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
            c.command->help = true;
            return;
        }
        if (strcmp(word, "--version") == 0) {
            c.command->version = true;
            return;
        }
        if (ct_starts_with(word, "--version=") || ct_starts_with(word, "--help=")) {
            const struct ct_config_origin origin = origin_of(&c, word, strcspn(word, "="));
            ct_config_complain(loader, &origin, "", "takes no value");
            c.command->program = word; /* so that none is missed */
            return;
        }
        if (strcmp(word, "--") == 0) {
            c.command->ended = c.command->file == NULL;
            word = c.command->file == NULL ? next_word(&c) : NULL;
            c.at += word != NULL;
            ended = word == NULL || read_positional(&c, word) || c.command->file != NULL;
        } else if (ct_starts_with(word, "--")) {
            read_long(&c, word);
        } else if (word[0] == '-' && word[1] != '\0') {
            read_short(&c, word);
        } else {
            ended = read_positional(&c, word);
        }
    }
    if (c.at < loader->in->argc) {
        c.command->args = loader->in->argv + c.at;
        c.command->arg_count = loader->in->argc - c.at;
    }
}
