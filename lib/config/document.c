/* What config.def says, for others to read: the JSON schema, the manual page, the list of options,
 * shell completion. Nothing here knows a key by name. */
#include "config/loader.h"

#include "base/assert.h"
#include "base/json.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- JSON schema ---------------------------------------------------------------------------- */

/* What each type is in JSON's words. `element` is that of the scalars in a list. */
static const struct {
    const char *schema;
    const char *element;
    bool literal; /* the default is written as it stands, not as a string */
} json_types[] = {
    [CT_CONFIG_TYPE_BOOL] = {"\"type\": \"boolean\"", NULL, true},
    [CT_CONFIG_TYPE_INT] = {"\"type\": \"integer\"", NULL, true},
    [CT_CONFIG_TYPE_F64] = {"\"type\": \"number\"", NULL, true},
    [CT_CONFIG_TYPE_STR] = {"\"type\": [\"string\", \"number\", \"boolean\"]", NULL, false},
    [CT_CONFIG_TYPE_INPUT] = {"\"type\": \"string\"", NULL, false},
    [CT_CONFIG_TYPE_DURATION] = {"\"type\": [\"string\", \"number\"], "
                                 "\"pattern\": \"^[0-9.]+ *(ms|s|m|min|h)?$\"",
                                 NULL, false},
    [CT_CONFIG_TYPE_BYTES] = {"\"type\": [\"string\", \"integer\"], "
                              "\"pattern\": \"^[0-9.]+ *([kKmMgG]?[iI]?[bB])?$\"",
                              NULL, false},
    [CT_CONFIG_TYPE_NODES] = {"\"type\": [\"string\", \"integer\"], "
                              "\"pattern\": \"^[0-9]+(:[0-9]+)?$\"",
                              NULL, false},
    [CT_CONFIG_TYPE_INTS] = {"\"type\": [\"array\", \"integer\"], \"maxItems\": 64", "integer",
                             true},
    [CT_CONFIG_TYPE_STRS] = {"\"type\": [\"array\", \"string\"], \"maxItems\": 64", "string",
                             false},
    [CT_CONFIG_TYPE_PAIR] = {"\"type\": \"array\", \"minItems\": 2, \"maxItems\": 2", "number",
                             true},
    [CT_CONFIG_TYPE_INTERVAL] = {"\"type\": [\"string\", \"integer\"], "
                                 "\"pattern\": \"^[0-9]+ *(steps?|epochs?)?$\"",
                                 NULL, false},
    [CT_CONFIG_TYPE_LAYERS] = {"\"type\": [\"integer\", \"array\"]", NULL, false},
    [CT_CONFIG_TYPE_CHOICE] = {"\"type\": \"string\"", NULL, false},
};

static void put_bound(const char *name, bool open, long double bound, struct ct_buf *to)
{
    if (isinf(bound))
        return;
    (void)ct_buf_printf(to, ", \"%s%c%s\": %.19Lg", open ? "exclusive" : "",
                        open ? toupper((unsigned char)name[0]) : name[0], name + 1, bound);
}

/* The bounds of a number; quantities with units have theirs in words only. */
static void put_range(const struct ct_config_key *key, struct ct_buf *to)
{
    struct ct_config_range range;

    if (!json_types[key->type].literal || !ct_config_range_of(key, &range))
        return;
    put_bound("minimum", range.low_open, range.low, to);
    put_bound("maximum", range.high_open, range.high, to);
}

static void put_key_schema(const struct ct_config_key *key, struct ct_buf *to)
{
    const char *element = json_types[key->type].element;

    (void)ct_buf_puts(to, "{\"description\": ");
    ct_json_string(to, key->help);
    (void)ct_buf_puts(to, ", \"default\": ");
    if (json_types[key->type].literal)
        (void)ct_buf_puts(to, key->standard);
    else
        ct_json_string(to, key->standard);
    (void)ct_buf_printf(to, ", %s", json_types[key->type].schema);
    if (element != NULL)
        (void)ct_buf_printf(to, ", \"items\": {\"type\": \"%s\"", element);
    put_range(key, to);
    if (element != NULL)
        (void)ct_buf_puts(to, "}");
    for (size_t i = 0; key->words != NULL && key->words[i] != NULL; i++)
        (void)ct_buf_printf(to, "%s\"%s\"", i == 0 ? ", \"enum\": [" : ", ", key->words[i]);
    (void)ct_buf_puts(to, key->words != NULL ? "]}" : "}");
}

/* The properties that lie directly in `section`, and those of the sections in it. */
static void put_object_schema(const char *section, int depth, struct ct_buf *to)
{
    const char *comma = "";

    (void)ct_buf_printf(to, "\"type\": \"object\", \"additionalProperties\": false, "
                            "\"properties\": {");
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        if (strcmp(key->section, section) != 0)
            continue;
        (void)ct_buf_printf(to, "%s\n%*s\"%s\": ", comma, depth, "", key->name);
        put_key_schema(key, to);
        comma = ",";
    }
    for (size_t i = 0; i < ct_config_section_count; i++) {
        const struct ct_config_section *inner = &ct_config_sections[i];
        if (!ct_config_lies_in(inner->path, section))
            continue;
        (void)ct_buf_printf(to, "%s\n%*s\"%s\": {\"description\": ", comma, depth, "",
                            ct_config_last_name(inner->path));
        ct_json_string(to, inner->help);
        (void)ct_buf_puts(to, ", ");
        put_object_schema(inner->path, depth + 2, to);
        (void)ct_buf_puts(to, "}");
        comma = ",";
    }
    (void)ct_buf_puts(to, "}");
}

void ct_config_schema(struct ct_buf *to)
{
    (void)ct_buf_puts(to, "{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
                          " \"title\": \"train.yaml of ctrun\",\n ");
    put_object_schema("", 2, to);
    (void)ct_buf_puts(to, "}\n");
}

/* ---- words about a key ---------------------------------------------------------------------- */

/* "a number such as 1e-3, at least 0 and below 1" or "one of sgd, adamw". */
static void put_wanted(const struct ct_config_key *key, struct ct_buf *to)
{
    if (key->words == NULL)
        (void)ct_buf_puts(to, ct_config_type_wanted(key->type));
    for (size_t i = 0; key->words != NULL && key->words[i] != NULL; i++)
        (void)ct_buf_printf(to, "%s%s", i == 0 ? "one of " : ", ", key->words[i]);
    if (key->range[0] != '\0')
        (void)ct_buf_puts(to, ", ");
    ct_config_range_write(key, to);
}

/* ---- manual page ---------------------------------------------------------------------------- */

/* Text that troff takes as it is. */
static void put_troff(const char *text, struct ct_buf *to)
{
    if (text[0] == '.' || text[0] == '\'')
        (void)ct_buf_puts(to, "\\&");
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\\')
            (void)ct_buf_puts(to, "\\e");
        else if (*at == '-')
            (void)ct_buf_puts(to, "\\-");
        else
            (void)ct_buf_append(to, at, 1);
    }
}

static void put_man_key(const struct ct_config_key *key, struct ct_buf *to)
{
    struct ct_buf wanted;

    ct_buf_init(&wanted, 0);
    put_wanted(key, &wanted);
    (void)ct_buf_puts(to, ".TP\n.B ");
    put_troff(key->path, to);
    (void)ct_buf_puts(to, "\n");
    put_troff(key->help, to);
    (void)ct_buf_puts(to, ".\nValue: ");
    put_troff(ct_buf_str(&wanted), to);
    (void)ct_buf_puts(to, "; default: ");
    put_troff(key->standard[0] != '\0' ? key->standard : "empty", to);
    (void)ct_buf_puts(to, ".\n");
    ct_buf_deinit(&wanted);
}

void ct_config_man(struct ct_buf *to)
{
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
        if (ct_config_keys[i].section[0] == '\0')
            put_man_key(&ct_config_keys[i], to);
    for (size_t s = 0; s < ct_config_section_count; s++) {
        (void)ct_buf_puts(to, ".SS ");
        put_troff(ct_config_sections[s].path, to);
        (void)ct_buf_puts(to, "\n");
        put_troff(ct_config_sections[s].help, to);
        (void)ct_buf_puts(to, ".\n");
        for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
            if (strcmp(ct_config_keys[i].section, ct_config_sections[s].path) == 0)
                put_man_key(&ct_config_keys[i], to);
    }
}

/* ---- list of options ------------------------------------------------------------------------ */

static bool is_launch(const struct ct_config_key *key)
{
    return strcmp(key->section, "launch") == 0;
}

/* The option of a key: keys of launch go without their section. */
static const char *option_name(const struct ct_config_key *key)
{
    return is_launch(key) ? key->name : key->path;
}

enum { INDENT = 30, WIDTH = 80 };

/* "--name" in its column, then `text`. */
static void put_option(const char *dashes, const char *name, const char *text, struct ct_buf *to)
{
    int length = 2 + (int)(strlen(dashes) + strlen(name));

    (void)ct_buf_printf(to, "  %s%s", dashes, name);
    if (length + 1 > INDENT)
        (void)ct_buf_printf(to, "\n%*s", INDENT, "");
    else
        (void)ct_buf_printf(to, "%*s", INDENT - length, "");
    ct_buf_wrap(to, text, INDENT, INDENT, WIDTH);
    (void)ct_buf_puts(to, "\n");
}

/* torchrun's options that are no keys, "-t" for --tee among them. */
static void put_torchrun(const struct ct_torchrun_option *option, struct ct_buf *to)
{
    static const char *const meanings[] = {
        [CT_TORCHRUN_KEY] = "another name of --", [CT_TORCHRUN_SET] = "the same as --",
        [CT_TORCHRUN_NOTE] = "has no effect: ",   [CT_TORCHRUN_ONLY] = "refused: ",
        [CT_TORCHRUN_REFUSE] = "refused: ",
    };
    const char letter[2] = {option->letter, '\0'};
    const char *text = option->text;
    struct ct_buf words;

    if (option->action == CT_TORCHRUN_KEY)
        text = option_name(ct_config_key_find(text));
    ct_buf_init(&words, 0);
    if (option->only != NULL)
        (void)ct_buf_printf(&words, "%s (as with torchrun), or ", option->only);
    (void)ct_buf_printf(&words, "%s%s", meanings[option->action], text);
    put_option(letter[0] != '\0' ? "-" : "--", letter[0] != '\0' ? letter : option->name,
               ct_buf_str(&words), to);
    ct_buf_deinit(&words);
}

static void put_key(const struct ct_config_key *key, struct ct_buf *text, struct ct_buf *to)
{
    bool flag = key->type == CT_CONFIG_TYPE_BOOL;

    ct_buf_clear(text);
    (void)ct_buf_puts(text, key->help);
    for (size_t w = 0; key->words != NULL && key->words[w] != NULL; w++)
        (void)ct_buf_printf(text, "%s%s", w == 0 ? "; " : " | ", key->words[w]);
    if (key->standard[0] != '\0')
        (void)ct_buf_printf(text, " (default %s)",
                            !flag                                ? key->standard
                            : strcmp(key->standard, "true") == 0 ? "on"
                                                                 : "off");
    put_option("--", option_name(key), ct_buf_str(text), to);
}

void ct_config_help(bool all, struct ct_buf *to)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
        if (all || is_launch(&ct_config_keys[i]))
            put_key(&ct_config_keys[i], &text, to);
    (void)ct_buf_puts(to, "\nOther options of torchrun:\n");
    for (size_t i = 0; ct_torchrun_at(i) != NULL; i++)
        put_torchrun(ct_torchrun_at(i), to);
    ct_buf_deinit(&text);
}

/* ---- completion ----------------------------------------------------------------------------- */

static void put_bash(struct ct_buf *to)
{
    (void)ct_buf_puts(to, "_ctrun_keys()\n{\n"
                          "    local word=$1 before=$2\n"
                          "    case $before in\n");
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        if (key->words == NULL)
            continue;
        (void)ct_buf_printf(to, "    --%s)\n        mapfile -t COMPREPLY < <(compgen -W '",
                            option_name(key));
        for (size_t w = 0; key->words[w] != NULL; w++)
            (void)ct_buf_printf(to, "%s%s", w > 0 ? " " : "", key->words[w]);
        (void)ct_buf_puts(to, "' -- \"$word\")\n        return\n        ;;\n");
    }
    (void)ct_buf_puts(to, "    esac\n"
                          "    [[ $word == -* ]] || return\n"
                          "    mapfile -t COMPREPLY < <(compgen -W '");
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
        (void)ct_buf_printf(to, "%s--%s", i > 0 ? " " : "", option_name(&ct_config_keys[i]));
    (void)ct_buf_puts(to, "' -- \"$word\")\n}\n");
}

/* An argument specification of _arguments: '--optim.type=[what it is]:value:(sgd adamw)'. */
static void put_zsh_key(const struct ct_config_key *key, struct ct_buf *to)
{
    (void)ct_buf_printf(to, "        '--%s%s[", option_name(key),
                        key->type == CT_CONFIG_TYPE_BOOL ? "" : "=");
    for (const char *at = key->help; *at != '\0'; at++) {
        if (*at == '\'')
            (void)ct_buf_puts(to, "'\\''");
        else
            (void)ct_buf_printf(to, "%s%c", strchr("[]\\", *at) != NULL ? "\\" : "", *at);
    }
    (void)ct_buf_puts(to, "]");
    if (key->type != CT_CONFIG_TYPE_BOOL)
        (void)ct_buf_puts(to, ":value:");
    if (key->type == CT_CONFIG_TYPE_INPUT)
        (void)ct_buf_puts(to, "_files");
    for (size_t w = 0; key->words != NULL && key->words[w] != NULL; w++)
        (void)ct_buf_printf(to, "%s%s", w == 0 ? "(" : " ", key->words[w]);
    (void)ct_buf_puts(to, key->words != NULL ? ")' \\\n" : "' \\\n");
}

static void put_zsh(struct ct_buf *to)
{
    (void)ct_buf_puts(to, "_ctrun_keys()\n{\n    _arguments \\\n");
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
        put_zsh_key(&ct_config_keys[i], to);
    (void)ct_buf_puts(to, "        '*:file:_files'\n}\n");
}

int ct_config_completion(const char *shell, struct ct_buf *to)
{
    if (strcmp(shell, "bash") == 0)
        put_bash(to);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(to);
    else
        return CT_EUSAGE;
    return 0;
}
