/* See words.h. */
#include "words.h"

#include "base/str.h"

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

static const struct ct_word *find(const struct ct_word *words, size_t count, const char *text)
{
    size_t length = strcspn(text, "=");

    for (size_t i = 0; i < count; i++)
        if (same_name(words[i].name, text, length))
            return &words[i];
    return NULL;
}

struct table {
    const struct ct_word *words;
};

static const char *name_at(const void *context, size_t index)
{
    return ((const struct table *)context)->words[index].name;
}

static int unknown(const struct ct_word *words, size_t count, const char *text,
                   struct ct_error *err)
{
    const struct table table = {words};
    char name[64] = "";

    (void)ct_str_copy(name, sizeof name, text);
    name[strcspn(name, "=")] = '\0';
    const char *near = ct_nearest(name, count, name_at, &table);
    return ct_error_set(err, CT_EUSAGE, "unknown option --%s%s%s%s", name,
                        near != NULL ? "; did you mean --" : "", near != NULL ? near : "",
                        near != NULL ? "?" : "");
}

static int add_text(struct ct_word_texts *texts, const char *value)
{
    if (texts->count == CT_WORD_TEXTS_MAX)
        return CT_ELIMIT;
    texts->at[texts->count++] = value;
    return 0;
}

static int read_value(const struct ct_word *word, const char *value, struct ct_error *err)
{
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
    case CT_WORD_FLAG:
        code = ct_parse_bool(value, word->to);
        break;
    }
    if (code == CT_ELIMIT)
        return ct_error_set(err, CT_EUSAGE, "--%s comes more than %d times", word->name,
                            CT_WORD_TEXTS_MAX);
    return code == 0 ? 0
                     : ct_error_set(err, CT_EUSAGE, "--%s \"%s\": it is %s", word->name, value,
                                    word->help);
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
        return ct_error_set(err, CT_EUSAGE, "--%s needs a value: %s", word->name, word->help);
    int code = read_value(word, value, err);
    return code != 0 ? code : taken;
}

int ct_words_read(const struct ct_word *words, size_t count, int argc, char *const *argv,
                  const char **places, int room, int *ret_count, struct ct_error *err)
{
    bool options = true;
    int found = 0;

    for (int i = 0, taken; i < argc; i += taken) {
        taken = 1;
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && ct_starts_with(argv[i], "--")) {
            const struct ct_word *word = find(words, count, argv[i] + 2);
            taken = word != NULL ? read_option(word, argc, argv, i, err)
                                 : unknown(words, count, argv[i] + 2, err);
            if (taken < 0)
                return taken;
        } else if (found == room) {
            return ct_error_set(err, CT_EUSAGE, "\"%s\" is one word too many", argv[i]);
        } else {
            places[found++] = argv[i];
        }
    }
    *ret_count = found;
    return 0;
}

void ct_words_help(const struct ct_word *words, size_t count, FILE *to)
{
    for (size_t i = 0; i < count; i++)
        (void)fprintf(to, "  --%-12s %s\n", words[i].name, words[i].help);
}
