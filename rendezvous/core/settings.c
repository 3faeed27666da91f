/* See settings.h. */
#include "rendezvous/core/settings.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 120 }; /* bytes of a value */

/* A line; `value` is NULL where there is none. */
struct setting {
    const char *key, *value;
    int key_size, value_size;
};

/* Take the first line off `*at`. False at the end. */
static bool next(const char **at, struct setting *ret_setting)
{
    const char *line = *at;
    size_t size = strcspn(line, "\n"), key = strcspn(line, "=\n");

    if (*line == '\0')
        return false;
    *at = line + size + (line[size] != '\0');
    *ret_setting = (struct setting){
        .key = line,
        .key_size = (int)key,
        .value = key < size ? line + key + 1 : line + key,
        .value_size = (int)(key < size ? size - key - 1 : 0),
    };
    return true;
}

static struct setting find(const char *text, const struct setting *wanted)
{
    struct setting setting;

    while (next(&text, &setting))
        if (setting.key_size == wanted->key_size &&
            memcmp(setting.key, wanted->key, (size_t)setting.key_size) == 0)
            return setting;
    return (struct setting){.value = NULL};
}

static bool is_same(const struct setting *a, const struct setting *b)
{
    return a->value != NULL && b->value != NULL && a->value_size == b->value_size &&
           memcmp(a->value, b->value, (size_t)a->value_size) == 0;
}

static void put(char text[SHOWN + 16], const struct setting *setting)
{
    if (setting->value == NULL)
        (void)snprintf(text, SHOWN + 16, "its default");
    else
        (void)snprintf(text, SHOWN + 16, "%.*s%s", CT_MIN(setting->value_size, (int)SHOWN),
                       setting->value, setting->value_size > SHOWN ? "..." : "");
}

static void describe(const struct setting *key, const struct setting *here,
                     const struct setting *before, char *text, size_t room)
{
    char values[2][SHOWN + 16];

    put(values[0], here);
    put(values[1], before);
    (void)snprintf(text, room, "%.*s %s here, %s on the nodes before", key->key_size, key->key,
                   values[0], values[1]);
}

bool ct_rdzv_settings_differ(const char *here, const char *before, char *text, size_t room)
{
    const char *at = here;
    struct setting mine, theirs;

    while (next(&at, &mine)) {
        theirs = find(before, &mine);
        if (!is_same(&mine, &theirs)) {
            describe(&mine, &mine, &theirs, text, room);
            return true;
        }
    }
    at = before;
    while (next(&at, &theirs)) {
        mine = find(here, &theirs);
        if (mine.value == NULL) {
            describe(&theirs, &mine, &theirs, text, room);
            return true;
        }
    }
    return false;
}
