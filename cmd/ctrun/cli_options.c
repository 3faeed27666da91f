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

static const struct ct_word *find(const struct ct_cli_options *words, const char *text)
{
    size_t length = strcspn(text, "=");

    for (size_t i = 0; i < words->option_count; i++)
        if (same_name(words->options[i].name, text, length))
            return &words->options[i];
    return NULL;
}

static int add_text(struct ct_word_texts *texts, const char *value)
{
    if (texts->count == CT_WORD_TEXTS_MAX)
        return CT_ELIMIT;
    texts->at[texts->count++] = value;
    return 0;
}

/* What a value of a type is, for one that is not. */
static const char *const wanted[] = {
    [CT_WORD_TEXT] = "a text",
    [CT_WORD_TEXTS] = "a text",
    [CT_WORD_NUMBER] = "a whole number",
    [CT_WORD_REAL] = "a number",
    [CT_WORD_BYTES] = "a size such as 40GB or 64MiB",
    [CT_WORD_TIME] = "a time such as 30m or 2h",
    [CT_WORD_FLAG] = "true or false",
};

static int read_value(const struct ct_word *word, const char *value, struct ct_error *err)
{
    uint64_t number = 0;
    int code = 0;

    switch (word->type) {
    case CT_WORD_TEXT:
        *(const char **)word->to = value;
        break;
    case CT_WORD_TEXTS:
        code = add_text(word->to, value);
        break;
    case CT_WORD_NUMBER:
        code = ct_parse_i64(value, word->to);
        break;
    case CT_WORD_REAL:
        code = ct_parse_f64(value, word->to);
        break;
    case CT_WORD_BYTES:
        code = ct_parse_bytes(value, &number);
        code = code == 0 && number == 0 ? CT_EUSAGE : code;
        break;
    case CT_WORD_TIME:
        code = ct_parse_duration_ms(value, &number);
        code = code == 0 && number == 0 ? CT_EUSAGE : code;
        break;
    case CT_WORD_FLAG:
        code = ct_parse_bool(value, word->to);
        break;
    }
    if (code == 0 && (word->type == CT_WORD_BYTES || word->type == CT_WORD_TIME))
        *(uint64_t *)word->to = number;
    if (code == CT_ELIMIT)
        return ct_error_set(err, CT_EUSAGE, "--%s comes more than %d times", word->name,
                            CT_WORD_TEXTS_MAX);
    return code == 0 ? 0
                     : ct_error_set(err, CT_EUSAGE, "--%s wants %s, not \"%.64s\"", word->name,
                                    wanted[word->type], value);
}

/* The option in argv[at], with its value there or in the next word; returns how many it took. */
static int read_option(const struct ct_word *word, int argc, char *const *argv, int at,
                       struct ct_error *err)
{
    const char *equals = strchr(argv[at], '=');
    const char *value = equals != NULL ? equals + 1 : word->type == CT_WORD_FLAG ? "true" : NULL;
    int taken = 1;

    if (value == NULL && at + 1 < argc) {
        value = argv[at + 1];
        taken = 2;
    }
    if (value == NULL)
        return ct_error_set(err, CT_EUSAGE, "--%s wants a value: %s", word->name,
                            wanted[word->type]);
    int code = read_value(word, value, err);
    return code != 0 ? code : taken;
}

/* An option of the configuration and its value go on to who reads these. */
static int pass_on(struct ct_cli_options *words, int argc, char *const *argv, int at,
                   struct ct_error *err)
{
    int takes = words->rest == NULL
                    ? 0
                    : ct_config_option_takes(argv[at], at + 1 < argc ? argv[at + 1] : NULL);

    if (takes == 0)
        return ct_command_unknown(words->command, argv[at], err);
    for (int i = 0; i < takes; i++)
        words->rest[words->rest_count++] = argv[at + i];
    return takes;
}

int ct_cli_options_read(struct ct_cli_options *words, int argc, char *const *argv,
                        struct ct_error *err)
{
    bool options = true;

    for (int i = 0, taken; i < argc; i += taken) {
        taken = 1;
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && argv[i][0] == '-' && argv[i][1] != '\0') {
            const struct ct_word *word =
                ct_starts_with(argv[i], "--") ? find(words, argv[i] + 2) : NULL;
            taken = word != NULL ? read_option(word, argc, argv, i, err)
                                 : pass_on(words, argc, argv, i, err);
            if (taken < 0)
                return taken;
        } else if (words->count == words->room) {
            return ct_error_set(err, CT_EUSAGE, "\"%s\" is one word too many; see ctrun help %s",
                                argv[i], words->command);
        } else {
            words->places[words->count++] = argv[i];
        }
    }
    return 0;
}
