/* ct_config_load: defaults, then every front end through ct_config_set, then the checks. */
#include "config/loader.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Strings of a config: a YAML file of 1 MiB, copies of settings, paths. */
enum { ARENA_BYTES = 8 << 20 };

/* ---- complaining ---------------------------------------------------------------------------- */

const char *ct_config_origin_text(const struct ct_config_origin *origin, char *room, size_t size)
{
    if (origin->layer == CT_CONFIG_FILE && origin->line > 0)
        (void)snprintf(room, size, "%s:%d:%d", origin->name, origin->line, origin->column);
    else
        (void)snprintf(room, size, "%s",
                       origin->layer == CT_CONFIG_DEFAULT ? "default" : origin->name);
    return room;
}

/* Is the place of a value a variable or an option? Then a sentence begins with its name. */
static bool has_name(const struct ct_config_origin *origin)
{
    return origin->layer == CT_CONFIG_PRESET || origin->layer > CT_CONFIG_FILE;
}

static void write_sentence(struct ct_error *err, int code, const struct ct_config_origin *origin,
                           const char *subject, const char *sentence)
{
    char place[320];

    (void)ct_config_origin_text(origin, place, sizeof place);
    if (has_name(origin))
        (void)ct_error_set(err, code, "%s %s", place, sentence);
    else
        (void)ct_error_set(err, code, "%s%s%s%s%s", origin->layer == CT_CONFIG_FILE ? place : "",
                           origin->layer == CT_CONFIG_FILE ? ": " : "", subject,
                           subject[0] != '\0' ? " " : "", sentence);
}

void ct_config_complain(struct ct_config_loader *loader, const struct ct_config_origin *origin,
                        const char *subject, const char *format, ...)
{
    struct ct_config_errors *errs = loader->errs;
    const struct ct_config_key *key = ct_config_key_find(subject);
    char sentence[640];
    va_list args;

    if (key != NULL)
        loader->failed[ct_config_key_index(key)] = true;
    if (errs->count == CT_CONFIG_ERRORS_MAX) {
        errs->dropped++;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    write_sentence(&errs->at[errs->count++], has_name(origin) ? CT_EUSAGE : CT_ECONFIG, origin,
                   subject, sentence);
}

void ct_config_note(struct ct_config_loader *loader, const struct ct_config_origin *origin,
                    const char *subject, const char *format, ...)
{
    struct ct_config_errors *errs = loader->errs;
    char sentence[640];
    va_list args;

    if (errs->note_count == CT_CONFIG_ERRORS_MAX)
        return;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    write_sentence(&errs->notes[errs->note_count++], 0, origin, subject, sentence);
}

/* ---- setting -------------------------------------------------------------------------------- */

bool ct_config_is_relative(const char *path)
{
    return path[0] != '/' && path[0] != '\0' && !ct_starts_with(path, "munge:");
}

/* A relative input path in a YAML file starts at the folder of that file. */
static char *resolve_input(struct ct_arena *arena, const char *path,
                           const struct ct_config_origin *origin)
{
    const char *slash = origin->layer == CT_CONFIG_FILE ? strrchr(origin->name, '/') : NULL;

    if (slash == NULL || !ct_config_is_relative(path))
        return ct_arena_strdup(arena, path);
    return ct_arena_printf(arena, "%.*s/%s", (int)(slash - origin->name), origin->name, path);
}

void ct_config_set(struct ct_config_loader *loader, const struct ct_config_key *key,
                   const struct ct_config_value *value, const struct ct_config_origin *origin)
{
    struct ct_config *cfg = loader->cfg;
    struct ct_config_origin *stored = &cfg->origins[ct_config_key_index(key)];
    union ct_config_any any;
    struct ct_error err = {0};

    if (ct_config_value_parse(key, value, &any, &err) != 0) {
        const char *remedy =
            value->count > 0 ? ct_torchrun_word_refused(key, value->items[0]) : NULL;

        if (remedy != NULL)
            ct_config_complain(loader, origin, key->path, "%s is not offered by ctrun: %s",
                               value->items[0], remedy);
        else
            ct_config_complain(loader, origin, key->path, "%s", err.text);
        return;
    }
    if (stored->layer > origin->layer)
        return;
    if (key->type == CT_CONFIG_TYPE_INPUT)
        any.text = resolve_input(&cfg->arena, any.text, origin);
    if ((key->type == CT_CONFIG_TYPE_INPUT && any.text == NULL) ||
        ct_config_value_keep(key, &cfg->arena, &any) != 0) {
        ct_config_complain(loader, origin, key->path, "is too much: %s", ct_strerror(CT_ENOMEM));
        return;
    }
    ct_config_value_store(key, &any, cfg);
    *stored = *origin;
}

void ct_config_set_text(struct ct_config_loader *loader, const struct ct_config_key *key,
                        const char *text, const struct ct_config_origin *origin)
{
    struct ct_config_value value;
    int code = ct_config_value_split(key, text, &loader->cfg->arena, &value);

    if (code == 0)
        ct_config_set(loader, key, &value, origin);
    else
        ct_config_complain(loader, origin, key->path, "is too much: %s", ct_strerror(code));
}

/* ---- loading -------------------------------------------------------------------------------- */

static void set_defaults(struct ct_config_loader *loader)
{
    static const struct ct_config_origin origin = {.layer = CT_CONFIG_DEFAULT, .name = "default"};
    struct ct_config_value value;

    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        union ct_config_any any = {0};
        CT_ASSERT(ct_config_value_split(key, key->standard, &loader->cfg->arena, &value) == 0);
        CT_ASSERT(ct_config_value_parse(key, &value, &any, NULL) == 0);
        CT_ASSERT(ct_config_value_keep(key, &loader->cfg->arena, &any) == 0);
        ct_config_value_store(key, &any, loader->cfg);
        loader->cfg->origins[i] = origin;
    }
}

static void set_presets(struct ct_config_loader *loader)
{
    for (size_t i = 0; i < loader->in->preset_count; i++) {
        const struct ct_config_preset *preset = &loader->in->presets[i];
        const struct ct_config_key *key = ct_config_key_find(preset->key);
        struct ct_config_origin origin = {.layer = CT_CONFIG_PRESET, .name = preset->name};

        CT_ASSERT(key != NULL);
        ct_config_set_text(loader, key, preset->value, &origin);
    }
}

static void check_command(struct ct_config_loader *loader)
{
    static const struct ct_config_origin origin = {.layer = CT_CONFIG_DEFAULT};
    const struct ct_config_command *command = &loader->cfg->command;

    if (!loader->in->command_needed || command->file != NULL || command->program != NULL)
        return;
    ct_config_complain(loader, &origin, "",
                       "nothing to %s: give a YAML file%s, for instance configs/digits_mlp.yaml",
                       loader->in->file_only ? "show" : "run",
                       loader->in->file_only ? "" : " or a program");
}

int ct_config_load(struct ct_config *cfg, const struct ct_config_input *in,
                   struct ct_config_errors *errs)
{
    struct ct_config_loader loader = {.cfg = cfg, .in = in, .errs = errs};

    memset(cfg, 0, sizeof *cfg);
    ct_arena_init(&cfg->arena, ARENA_BYTES);
    set_defaults(&loader);
    if (in->argv != NULL)
        ct_config_read_command_line(&loader);
    if (cfg->command.help || cfg->command.version) {
        *errs = (struct ct_config_errors){0}; /* who asks for help is not scolded */
        return 0;
    }
    if (in->yaml_path != NULL || in->yaml_text != NULL)
        cfg->command.file = in->yaml_path != NULL ? in->yaml_path : "(text)";
    if (cfg->command.file != NULL)
        ct_config_read_yaml(&loader, cfg->command.file);
    set_presets(&loader);
    if (in->env != NULL)
        ct_config_read_environment(&loader);
    ct_config_apply_rdzv_conf(&loader);
    check_command(&loader);
    ct_config_check(&loader);
    return errs->count == 0 ? 0 : errs->at[0].code;
}

void ct_config_deinit(struct ct_config *cfg)
{
    if (cfg == NULL)
        return;
    ct_arena_deinit(&cfg->arena);
}

/* ---- asking --------------------------------------------------------------------------------- */

const struct ct_config_origin *ct_config_origin(const struct ct_config *cfg, const void *member)
{
    return &cfg->origins[ct_config_key_index(ct_config_key_of(cfg, member))];
}

const char *ct_config_word(const struct ct_config *cfg, const void *member)
{
    const struct ct_config_key *key = ct_config_key_of(cfg, member);
    union ct_config_any any;

    CT_ASSERT(key->type == CT_CONFIG_TYPE_CHOICE);
    ct_config_value_fetch(key, cfg, &any);
    return key->words[any.choice];
}
