/* See template.h. */
#include "output/template.h"

#include <ctype.h>
#include <string.h>

static bool starts_name(char c)
{
    return c == '_' || (isascii((unsigned char)c) && isalpha((unsigned char)c));
}

static bool is_name(char c)
{
    return starts_name(c) || (c >= '0' && c <= '9');
}

/* The length of what begins with the "$" at `at` when it holds a name ("$name", "${name}"), the
 * name in *ret_name; 0 when it holds none. */
static size_t named(const char *at, const char **ret_name, size_t *ret_length)
{
    bool braced = at[1] == '{';
    const char *name = at + 1 + braced;
    size_t length = 0;

    if (!starts_name(*name))
        return 0;
    while (is_name(name[length]))
        length++;
    if (braced && name[length] != '}')
        return 0;
    *ret_name = name;
    *ret_length = length;
    return 1 + length + (braced ? 2 : 0);
}

/* The value of that name, or NULL. */
static const char *value_of(const char *name, size_t length, const struct ct_template_value *values,
                            size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(values[i].name) == length && strncmp(values[i].name, name, length) == 0)
            return values[i].value;
    return NULL;
}

void ct_template_expand(const char *text, const struct ct_template_value *values, size_t count,
                        struct ct_buf *to)
{
    while (*text != '\0') {
        const char *name = NULL, *value = NULL;
        size_t span = strcspn(text, "$"), length = 0;

        (void)ct_buf_append(to, text, span);
        text += span;
        if (*text == '\0')
            return;
        size_t whole = named(text, &name, &length);
        if (whole > 0)
            value = value_of(name, length, values, count);
        if (whole == 0)
            whole = text[1] == '$' ? 2 : 1;
        if (value != NULL)
            (void)ct_buf_puts(to, value);
        else
            (void)ct_buf_append(to, text, name == NULL ? 1 : whole);
        text += whole;
    }
}

bool ct_template_uses(const char *text, const struct ct_template_value *values, size_t count)
{
    const char *name;
    size_t length;

    for (const char *at = strchr(text, '$'); at != NULL; at = strchr(at, '$')) {
        size_t whole = named(at, &name, &length);

        if (whole > 0 && value_of(name, length, values, count) != NULL)
            return true;
        at += whole > 0 ? whole : at[1] == '$' ? 2 : 1;
    }
    return false;
}
