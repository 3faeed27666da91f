/* See config_keys.h. */
#include "config/config_keys.h"

#include "base/assert.h"
#include "base/str.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define CT_WORD(set, id, word) word,
#define CT_WORDS(set, words) static const char *const words_of_##set[] = {words NULL};
#include "config/config.def"

#define CT_ROOT(name, type, standard, range, help) \
    {"",                                           \
     #name,                                        \
     #name,                                        \
     CT_CONFIG_TYPE_##type,                        \
     NULL,                                         \
     standard,                                     \
     range,                                        \
     help,                                         \
     offsetof(struct ct_config, CT_MEMBER_##type(name))},
#define CT_KEY(section, name, type, standard, range, help) \
    {#section,                                             \
     #name,                                                \
     #section "." #name,                                   \
     CT_CONFIG_TYPE_##type,                                \
     NULL,                                                 \
     standard,                                             \
     range,                                                \
     help,                                                 \
     offsetof(struct ct_config, section.CT_MEMBER_##type(name))},
#define CT_CHOICE(section, name, set, standard, help) \
    {#section,                                        \
     #name,                                           \
     #section "." #name,                              \
     CT_CONFIG_TYPE_CHOICE,                           \
     words_of_##set,                                  \
     standard,                                        \
     "",                                              \
     help,                                            \
     offsetof(struct ct_config, section.name)},
#define CT_SOURCE(name, help) CT_SOURCE_KEYS(data.name)
const struct ct_config_key ct_config_keys[CT_CONFIG_KEYS] = {
#include "config/config.def"
};

enum { LOCAL, SHARED };
#define CT_SECTION(name, scope, help) {#name, help, scope == SHARED},
#define CT_SOURCE(name, help) {"data." #name, help, true},
const struct ct_config_section ct_config_sections[] = {
#include "config/config.def"
};
const size_t ct_config_section_count = CT_COUNT(ct_config_sections);
static_assert(CT_COUNT(ct_config_sections) <= CT_CONFIG_SECTIONS_MAX, "room for every section");

bool ct_config_same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++)
        if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
            return false;
    return *a == *b;
}

const struct ct_config_key *ct_config_key_find(const char *path)
{
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
        if (ct_config_same_name(ct_config_keys[i].path, path))
            return &ct_config_keys[i];
    return NULL;
}

const struct ct_config_section *ct_config_section_find(const char *path)
{
    for (size_t i = 0; i < ct_config_section_count; i++)
        if (ct_config_same_name(ct_config_sections[i].path, path))
            return &ct_config_sections[i];
    return NULL;
}

size_t ct_config_key_index(const struct ct_config_key *key)
{
    CT_ASSERT(key >= ct_config_keys && key < ct_config_keys + CT_CONFIG_KEYS);
    return (size_t)(key - ct_config_keys);
}

const struct ct_config_key *ct_config_key_of(const struct ct_config *cfg, const void *member)
{
    size_t offset = (size_t)((const char *)member - (const char *)cfg);
    const struct ct_config_key *found = NULL;

    for (size_t i = 0; i < CT_CONFIG_KEYS && found == NULL; i++)
        if (ct_config_keys[i].offset == offset)
            found = &ct_config_keys[i];
    CT_ASSERT(found != NULL);
    return found;
}

const char *ct_config_last_name(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL ? dot + 1 : path;
}

bool ct_config_lies_in(const char *path, const char *section)
{
    size_t length = strlen(section);

    if (length == 0)
        return strchr(path, '.') == NULL;
    return strncmp(path, section, length) == 0 && path[length] == '.' &&
           strchr(path + length + 1, '.') == NULL;
}

const char *ct_config_variable(const struct ct_config_key *key, char room[CT_CONFIG_VARIABLE_ROOM])
{
    (void)snprintf(room, CT_CONFIG_VARIABLE_ROOM, "CTRUN_%s", key->path);
    for (char *at = room; *at != '\0'; at++)
        *at = *at == '.' ? '_' : (char)toupper((unsigned char)*at);
    return room;
}

/* Keys, then sections, as one list of paths. */
static const char *path_at(size_t index)
{
    return index < CT_CONFIG_KEYS ? ct_config_keys[index].path
                                  : ct_config_sections[index - CT_CONFIG_KEYS].path;
}

static const char *name_in_section(const void *section, size_t index)
{
    const char *path = path_at(index);

    return ct_config_lies_in(path, section) ? ct_config_last_name(path) : "";
}

const char *ct_config_synonym(const char *path)
{
    static const struct {
        const char *word, *path;
    } synonyms[] = {
#define CT_SYNONYM(word, path) {word, path},
#include "config/synonym.def"
#undef CT_SYNONYM
    };

    for (size_t i = 0; i < CT_COUNT(synonyms); i++)
        if (ct_config_same_name(synonyms[i].word, ct_config_last_name(path)))
            return synonyms[i].path;
    return NULL;
}

const char *ct_config_guess(const char *path)
{
    const char *meant = ct_config_synonym(path);

    if (meant != NULL)
        return meant;
    char section[128];
    const char *name = ct_config_last_name(path);
    const char *near = NULL;
    size_t count = CT_CONFIG_KEYS + ct_config_section_count;

    (void)ct_str_copy(section, sizeof section, path);
    section[name > path ? CT_MIN((size_t)(name - path) - 1, sizeof section - 1) : 0] = '\0';
    if (section[0] == '\0' || ct_config_section_find(section) != NULL)
        near = ct_nearest(name, count, name_in_section, section);
    if (near == NULL || near[0] == '\0')
        near = name;
    else
        name = section;
    for (size_t i = 0; i < count; i++)
        if (ct_config_same_name(ct_config_last_name(path_at(i)), near) &&
            (name == near || ct_config_lies_in(path_at(i), section)))
            return path_at(i);
    return NULL;
}
