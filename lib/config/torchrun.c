/* torchrun's options that are no keys of their own, and its rdzv_conf; the facts are torchrun.def.
 */
#include "config/loader.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

static const struct ct_torchrun_option options[] = {
#define CT_TORCHRUN(name, letter, action, text) {name, letter, CT_TORCHRUN_##action, text, NULL},
#define CT_TORCHRUN_ONLY(name, value, remedy) {name, 0, CT_TORCHRUN_ONLY, remedy, value},
#include "config/torchrun.def"
};

static const struct ct_torchrun_option conf_keys[] = {
#define CT_RDZV_CONF(name, action, text) {name, 0, CT_TORCHRUN_##action, text, NULL},
#include "config/torchrun.def"
};

const struct ct_torchrun_option *ct_torchrun_find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(options); i++)
        if (ct_config_same_name(options[i].name, name))
            return &options[i];
    return NULL;
}

const struct ct_torchrun_option *ct_torchrun_find_letter(char letter)
{
    for (size_t i = 0; i < CT_COUNT(options); i++)
        if (letter != '\0' && options[i].letter == letter)
            return &options[i];
    return NULL;
}

const struct ct_torchrun_option *ct_torchrun_at(size_t index)
{
    return index < CT_COUNT(options) ? &options[index] : NULL;
}

/* "key=value". */
static void set(struct ct_config_loader *loader, const struct ct_torchrun_option *option,
                const struct ct_config_origin *origin)
{
    const char *equals = strchr(option->text, '=');
    char path[64];

    (void)snprintf(path, sizeof path, "%.*s", (int)(equals - option->text), option->text);
    ct_config_set_text(loader, ct_config_key_find(path), equals + 1, origin);
}

void ct_torchrun_apply(struct ct_config_loader *loader, const struct ct_torchrun_option *option,
                       const char *value, const struct ct_config_origin *origin)
{
    char subject[64], shown[CT_CONFIG_SHOWN_ROOM];

    (void)snprintf(subject, sizeof subject, "launch.rdzv_conf's %s", option->name);
    switch (option->action) {
    case CT_TORCHRUN_KEY:
        ct_config_set_text(loader, ct_config_key_find(option->text), value, origin);
        break;
    case CT_TORCHRUN_SET:
        set(loader, option, origin);
        break;
    case CT_TORCHRUN_NOTE:
        ct_config_note(loader, origin, subject, "has no effect: %s", option->text);
        break;
    case CT_TORCHRUN_ONLY:
        if (strcmp(value, option->only) != 0)
            ct_config_complain(loader, origin, option->name, "%s is not offered by ctrun: %s",
                               ct_config_shown(value, shown), option->text);
        break;
    case CT_TORCHRUN_REFUSE:
        ct_config_complain(loader, origin, subject, "is not offered by ctrun: %s", option->text);
        break;
    }
}

const char *ct_torchrun_word_refused(const struct ct_config_key *key, const char *word)
{
    static const struct {
        const char *key, *word, *remedy;
    } refused[] = {
#define CT_WORD_REFUSED(key, word, remedy) {key, word, remedy},
#include "config/torchrun.def"
    };

    for (size_t i = 0; i < CT_COUNT(refused); i++)
        if (strcmp(refused[i].key, key->path) == 0 && strcmp(refused[i].word, word) == 0)
            return refused[i].remedy;
    return NULL;
}

void ct_torchrun_apply_variable(struct ct_config_loader *loader, const char *name,
                                const char *value)
{
    static const struct ct_torchrun_option variables[] = {
#define CT_TORCHRUN_VARIABLE(name, action, text) {name, 0, CT_TORCHRUN_##action, text, NULL},
#include "config/torchrun.def"
    };
    static const struct {
        const char *name, *value, *key, *ours;
    } switches[] = {
#define CT_TORCHRUN_SWITCH(name, value, key, ours) {name, value, key, ours},
#include "config/torchrun.def"
    };
    struct ct_config_origin origin = {.layer = CT_CONFIG_PRESET};

    for (size_t i = 0; i < CT_COUNT(variables); i++) {
        origin.name = variables[i].name;
        if (strcmp(variables[i].name, name) == 0)
            ct_torchrun_apply(loader, &variables[i], value, &origin);
    }
    for (size_t i = 0; i < CT_COUNT(switches); i++) {
        origin.name = switches[i].name;
        if (strcmp(switches[i].name, name) == 0 && strcmp(switches[i].value, value) == 0)
            ct_config_set_text(loader, ct_config_key_find(switches[i].key), switches[i].ours,
                               &origin);
    }
}

static const char *conf_name_at(const void *context, size_t index)
{
    (void)context;
    return conf_keys[index].name;
}

/* A name that there is not: the one that was meant, or all that do something. */
static void refuse_name(struct ct_config_loader *loader, const struct ct_config_origin *origin,
                        const char *name)
{
    const char *near = ct_nearest(name, CT_COUNT(conf_keys), conf_name_at, NULL);
    char shown[CT_CONFIG_SHOWN_ROOM];
    struct ct_buf remedy;

    ct_buf_init(&remedy, 0);
    if (near != NULL)
        (void)ct_buf_printf(&remedy, "did you mean %s?", near);
    else
        (void)ct_buf_puts(&remedy, "it has");
    for (size_t i = 0; near == NULL && i < CT_COUNT(conf_keys); i++)
        if (conf_keys[i].action == CT_TORCHRUN_KEY)
            (void)ct_buf_printf(&remedy, "%s %s", i > 0 ? "," : "", conf_keys[i].name);
    ct_config_complain(loader, origin, "launch.rdzv_conf", "has no setting \"%s\"; %s",
                       ct_config_shown(name, shown), ct_buf_str(&remedy));
    ct_buf_deinit(&remedy);
}

/* One "name=value" of rdzv_conf, at the layer of rdzv_conf itself. */
static void apply_pair(struct ct_config_loader *loader, char *pair,
                       const struct ct_config_origin *origin)
{
    char shown[CT_CONFIG_SHOWN_ROOM];
    char *equals = strchr(pair, '=');

    if (equals == NULL) {
        ct_config_complain(loader, origin, "launch.rdzv_conf",
                           "wants name=value,name=value, not \"%s\"", ct_config_shown(pair, shown));
        return;
    }
    *equals = '\0';
    for (size_t i = 0; i < CT_COUNT(conf_keys); i++) {
        if (!ct_config_same_name(conf_keys[i].name, pair))
            continue;
        struct ct_config_origin inner = *origin;
        if (origin->layer > CT_CONFIG_FILE)
            inner.name = ct_arena_printf(&loader->cfg->arena, "%s (%s)", origin->name, pair);
        if (inner.name == NULL)
            inner.name = origin->name;
        const struct ct_config_key *key = ct_config_key_find(conf_keys[i].text);
        if (key != NULL && loader->cfg->origins[ct_config_key_index(key)].layer >= origin->layer)
            return;
        ct_torchrun_apply(loader, &conf_keys[i], equals + 1, &inner);
        return;
    }
    refuse_name(loader, origin, pair);
}

void ct_config_apply_rdzv_conf(struct ct_config_loader *loader)
{
    const struct ct_config *cfg = loader->cfg;
    const struct ct_config_origin origin = *ct_config_origin(cfg, &cfg->launch.rdzv_conf);
    char *text = ct_arena_strdup(&loader->cfg->arena, cfg->launch.rdzv_conf);
    char *rest = text;

    if (text == NULL) {
        ct_config_complain(loader, &origin, "launch.rdzv_conf", "is too much: %s",
                           ct_strerror(CT_ENOMEM));
        return;
    }
    for (char *pair = strtok_r(rest, ",", &rest); pair != NULL; pair = strtok_r(NULL, ",", &rest))
        apply_pair(loader, pair, &origin);
}
