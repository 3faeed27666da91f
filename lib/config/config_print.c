/* The effective configuration as YAML, and its hash. */
#include "config/value.h"

#include "base/assert.h"
#include "base/number/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any default takes. */
#define STANDARD_BYTES ((size_t)1 << 16)

enum { COMMENT_COLUMN = 44 };

static void put_blanks(struct ct_buf *to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)ct_buf_puts(to, " ");
}

/* How deep a section's keys are indented: one level a part of its path. */
static size_t indent_of(const char *section)
{
    size_t depth = section[0] != '\0';

    for (const char *at = section; *at != '\0'; at++)
        depth += *at == '.';
    return 2 * depth;
}

void ct_config_run_base(const struct ct_config *cfg, char path[PATH_MAX])
{
    const char *file = cfg->command.file, *slash = strrchr(file, '/');
    const char *name = slash != NULL ? slash + 1 : file;
    const char *dot = strrchr(name, '.');
    size_t length = dot != NULL && dot > name ? (size_t)(dot - name) : strlen(name);

    (void)snprintf(path, PATH_MAX, "runs/%.*s", (int)length, name);
}

bool ct_config_keeps_checkpoints_in_run(const struct ct_config *cfg)
{
    return strcmp(cfg->checkpoint.dir, "auto") == 0;
}

/* Which folder is meant by a key that names none. */
static void note_folder(const struct ct_config *cfg, const struct ct_config_key *key, char *place,
                        size_t size)
{
    char base[PATH_MAX];
    size_t used = strlen(place);

    if (cfg->command.file == NULL || strcmp(key->path, "log.dir") != 0 || cfg->log.dir[0] != '\0')
        return;
    ct_config_run_base(cfg, base);
    (void)snprintf(place + used, size - used, ": %.200s/DATE_TIME", base);
}

/* "lr: 0.01" and, in a column of their own, where that came from. */
static void print_key(const struct ct_config *cfg, const struct ct_config_key *key,
                      const char *base_dir, struct ct_buf *to)
{
    union ct_config_any any;
    char place[320], path[4096];
    size_t start = to->size;

    ct_config_value_fetch(key, cfg, &any);
    if (key->type == CT_CONFIG_TYPE_INPUT && base_dir != NULL && ct_config_is_relative(any.text) &&
        snprintf(path, sizeof path, "%s/%s", base_dir, any.text) < (int)sizeof path)
        any.text = path;
    put_blanks(to, indent_of(key->section));
    (void)ct_buf_printf(to, "%s: ", key->name);
    ct_config_value_write(key, &any, to);
    put_blanks(to, to->size - start < COMMENT_COLUMN ? COMMENT_COLUMN - (to->size - start) : 1);
    const struct ct_config_origin *origin = &cfg->origins[ct_config_key_index(key)];
    (void)ct_config_origin_text(origin, place, sizeof place);
    note_folder(cfg, key, place, sizeof place);
    for (char *at = place; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20)
            *at = '?'; /* a line feed in the name of a file would end the comment */
    (void)ct_buf_printf(to, " # %s\n", place);
}

/* Does whoever starts a run again choose the value anew? */
static bool is_chosen_anew(const struct ct_config *cfg, const struct ct_config_key *key)
{
    return strcmp(key->section, "launch") == 0 &&
           cfg->origins[ct_config_key_index(key)].layer <= CT_CONFIG_PRESET;
}

/* Are there keys in a section, and all chosen anew? Without them its name would be no mapping. */
static bool is_left_out(const struct ct_config *cfg, const char *section)
{
    bool any = false;

    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        bool within = strcmp(ct_config_keys[i].section, section) == 0;
        if (within && !is_chosen_anew(cfg, &ct_config_keys[i]))
            return false;
        any = any || within;
    }
    return any;
}

static void print_all(const struct ct_config *cfg, const char *base_dir, bool run,
                      struct ct_buf *to)
{
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
        if (ct_config_keys[i].section[0] == '\0')
            print_key(cfg, &ct_config_keys[i], base_dir, to);
    for (size_t s = 0; s < ct_config_section_count; s++) {
        const char *section = ct_config_sections[s].path;
        if (run && is_left_out(cfg, section))
            continue;
        put_blanks(to, indent_of(section) - 2);
        (void)ct_buf_printf(to, "%s:\n", ct_config_last_name(section));
        for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
            if (strcmp(ct_config_keys[i].section, section) == 0 &&
                !(run && is_chosen_anew(cfg, &ct_config_keys[i])))
                print_key(cfg, &ct_config_keys[i], base_dir, to);
    }
}

void ct_config_print(const struct ct_config *cfg, const char *base_dir, struct ct_buf *to)
{
    print_all(cfg, base_dir, false, to);
}

void ct_config_print_run(const struct ct_config *cfg, const char *base_dir, struct ct_buf *to)
{
    print_all(cfg, base_dir, true, to);
}

static bool is_shared(const struct ct_config_key *key)
{
    const struct ct_config_section *section = ct_config_section_find(key->section);

    return key->type != CT_CONFIG_TYPE_INPUT && (section == NULL || section->shared);
}

uint64_t ct_config_hash(const struct ct_config *cfg)
{
    struct ct_buf text;
    union ct_config_any any;

    ct_buf_init(&text, 0);
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        if (!is_shared(key))
            continue;
        ct_config_value_fetch(key, cfg, &any);
        (void)ct_buf_printf(&text, "%s=", key->path);
        ct_config_value_write(key, &any, &text);
        (void)ct_buf_puts(&text, "\n");
    }
    uint64_t hash = ct_hash64(ct_buf_str(&text), text.size, 0);
    ct_buf_deinit(&text);
    return hash;
}

/* Whether `written` is what the key's default looks like when it is written. */
static bool is_standard(const struct ct_config_key *key, const char *written)
{
    struct ct_arena arena;
    struct ct_config_value value;
    union ct_config_any any = {0};
    struct ct_buf standard;

    ct_arena_init(&arena, STANDARD_BYTES);
    ct_buf_init(&standard, 0);
    int code = ct_config_value_split(key, key->standard, &arena, &value);
    if (code == 0)
        code = ct_config_value_parse(key, &value, &any, NULL);
    CT_ASSERT(code == 0); /* a default has a value of its type */
    ct_config_value_write(key, &any, &standard);
    bool same = strcmp(ct_buf_str(&standard), written) == 0;
    ct_buf_deinit(&standard);
    ct_arena_deinit(&arena);
    return same;
}

void ct_config_settings(const struct ct_config *cfg, struct ct_buf *to)
{
    struct ct_buf value;
    union ct_config_any any;

    ct_buf_init(&value, 0);
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        if (!is_shared(key))
            continue;
        ct_buf_clear(&value);
        ct_config_value_fetch(key, cfg, &any);
        ct_config_value_write(key, &any, &value);
        if (!is_standard(key, ct_buf_str(&value)))
            (void)ct_buf_printf(to, "--%s=%s\n", key->path, ct_buf_str(&value));
    }
    ct_buf_deinit(&value);
}

/* The values of one key in all of `cfgs`, behind each other; returns whether they differ. */
static bool write_values(const struct ct_config_key *key, const struct ct_config *const *cfgs,
                         size_t count, struct ct_buf *text)
{
    union ct_config_any any;
    size_t first = 0;
    bool differ = false;

    ct_buf_clear(text);
    for (size_t i = 0; i < count; i++) {
        size_t start = text->size;

        ct_config_value_fetch(key, cfgs[i], &any);
        ct_config_value_write(key, &any, text);
        (void)ct_buf_append(text, "", 1);
        first = i == 0 ? text->size : first;
        differ = differ || text->size - start != first ||
                 memcmp(text->data, text->data + start, first) != 0;
    }
    return differ && !text->failed;
}

void ct_config_differences(const struct ct_config *const *cfgs, size_t count,
                           void (*each)(void *context, const char *key, const char *const *values),
                           void *context)
{
    const char **values = calloc(count + 1, sizeof *values);
    struct ct_buf text;

    ct_buf_init(&text, 0);
    for (size_t i = 0; i < CT_CONFIG_KEYS && values != NULL; i++) {
        if (!write_values(&ct_config_keys[i], cfgs, count, &text))
            continue;
        const char *at = text.data;
        for (size_t k = 0; k < count; k++, at += strlen(at) + 1)
            values[k] = at;
        each(context, ct_config_keys[i].path, values);
    }
    ct_buf_deinit(&text);
    free(values);
}
