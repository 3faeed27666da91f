/* See cli_options.h. */
#include "cli_options.h"

#include "base/str.h"
#include "commands.h"
#include "config/config.h"

#include <stdbool.h>
#include <string.h>

static bool same_name(const char *name, const char *text, size_t length)
{
    size_t i = 0;

    while (i < length && name[i] != '\0' &&
           (name[i] == text[i] || (name[i] == '_' && text[i] == '-')))
        i++;
    return i == length && name[i] == '\0';
}

/* The option that `word` ("--tokens=7", "-o") is. */
static const struct ct_option *find(const struct ct_cli_options *cli, const char *word)
{
    bool named = ct_starts_with(word, "--");
    bool lettered = cli->letters != NULL && strchr(cli->letters, word[1]) != NULL;
    size_t length = named ? strcspn(word + 2, "=") : 0;

    for (size_t i = 0; i < cli->option_count; i++) {
        const struct ct_option *option = &cli->options[i];
        if (named ? same_name(option->name, word + 2, length)
                  : lettered && word[2] == '\0' && option->name[0] == word[1])
            return option;
    }
    return NULL;
}

static int add_text(struct ct_option_texts *texts, const char *value)
{
    if (texts->count == CT_OPTION_TEXTS_MAX)
        return CT_ELIMIT;
    texts->at[texts->count++] = value;
    return 0;
}

/* What a value of a type is, for one that is not. */
static const char *const wanted[] = {
    [CT_OPTION_TEXT] = "a text",
    [CT_OPTION_TEXTS] = "a text",
    [CT_OPTION_NUMBER] = "a whole number",
    [CT_OPTION_REAL] = "a number",
    [CT_OPTION_BYTES] = "a size such as 40GB or 64MiB",
    [CT_OPTION_TIME] = "a time such as 30m or 2h",
    [CT_OPTION_FLAG] = "true or false",
};

static int read_value(const struct ct_option *option, const char *value, struct ct_error *err)
{
    uint64_t number = 0;
    int code = 0;

    switch (option->type) {
    case CT_OPTION_TEXT:
        *(const char **)option->to = value;
        break;
    case CT_OPTION_TEXTS:
        code = add_text(option->to, value);
        break;
    case CT_OPTION_NUMBER:
        code = ct_parse_i64(value, option->to);
        break;
    case CT_OPTION_REAL:
        code = ct_parse_f64(value, option->to);
        break;
    case CT_OPTION_BYTES:
        code = ct_parse_bytes(value, &number);
        code = code == 0 && number == 0 ? CT_EUSAGE : code;
        break;
    case CT_OPTION_TIME:
        code = ct_parse_duration_ms(value, &number);
        code = code == 0 && number == 0 ? CT_EUSAGE : code;
        break;
    case CT_OPTION_FLAG:
        code = ct_parse_bool(value, option->to);
        break;
    }
    if (code == 0 && (option->type == CT_OPTION_BYTES || option->type == CT_OPTION_TIME))
        *(uint64_t *)option->to = number;
    if (code == CT_ELIMIT)
        return ct_error_set(err, CT_EUSAGE, "--%s comes more than %d times", option->name,
                            CT_OPTION_TEXTS_MAX);
    return code == 0 ? 0
                     : ct_error_set(err, CT_EUSAGE, "--%s wants %s, not \"%.64s\"", option->name,
                                    wanted[option->type], value);
}

/* The option in argv[at], with its value there or in the next word; returns how many it took. */
static int read_option(const struct ct_option *option, int argc, char *const *argv, int at,
                       struct ct_error *err)
{
    const char *equals = strchr(argv[at], '=');
    const char *value = equals != NULL                   ? equals + 1
                        : option->type == CT_OPTION_FLAG ? "true"
                                                         : NULL;
    int taken = 1;

    if (value == NULL && at + 1 < argc) {
        value = argv[at + 1];
        taken = 2;
    }
    if (value == NULL)
        return ct_error_set(err, CT_EUSAGE, "--%s wants a value: %s", option->name,
                            wanted[option->type]);
    int code = read_value(option, value, err);
    return code != 0 ? code : taken;
}

/* An option of the configuration and its value go on to who reads these. */
static int pass_on(struct ct_cli_options *cli, int argc, char *const *argv, int at,
                   struct ct_error *err)
{
    int width = cli->rest == NULL
                    ? 0
                    : ct_config_option_width(argv[at], at + 1 < argc ? argv[at + 1] : NULL);

    if (width == 0)
        return ct_command_unknown(cli->command, argv[at], err);
    for (int i = 0; i < width; i++)
        cli->rest[cli->rest_count++] = argv[at + i];
    return width;
}

int ct_cli_options_read(struct ct_cli_options *cli, int argc, char *const *argv,
                        struct ct_error *err)
{
    bool options = true;

    for (int i = 0, taken; i < argc; i += taken) {
        taken = 1;
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && argv[i][0] == '-' && argv[i][1] != '\0') {
            const struct ct_option *option = find(cli, argv[i]);
            taken = option != NULL ? read_option(option, argc, argv, i, err)
                                   : pass_on(cli, argc, argv, i, err);
            if (taken < 0)
                return taken;
        } else if (cli->count == cli->room) {
            return ct_error_set(err, CT_EUSAGE, "\"%s\" is one word too many; see ctrun help %s",
                                argv[i], cli->command);
        } else {
            cli->places[cli->count++] = argv[i];
        }
    }
    return 0;
}
