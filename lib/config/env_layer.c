/* The environment: CTRUN_OPTIM_LR sets optim.lr, torchrun's PET_NNODES sets launch.nnodes, and so
 * do the few variables that torchrun reads without that stem.
 *
 * CTRUN_ names are ours alone, so one that is no key is a typing error and reported. PET_ names
 * belong to torchrun: those that ctrun does not know are none of its business, and an empty one
 * counts as not set. */
#include "config/loader.h"

#include "base/assert.h"
#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const variables[] = {
#define CT_VARIABLE(name, help) name,
#include "config/environment.def"
};

static const struct ct_config_key *find_key(const char *variable)
{
    char room[CT_CONFIG_VARIABLE_ROOM];

    for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
        if (strcmp(ct_config_variable(&ct_config_keys[i], room), variable) == 0)
            return &ct_config_keys[i];
    return NULL;
}

static void complain_unknown(struct ct_config_loader *loader, const struct ct_config_origin *origin)
{
    char names[CT_CONFIG_KEYS][CT_CONFIG_VARIABLE_ROOM];
    const char *best = NULL;
    int best_distance = 2 + (int)strlen(origin->name) / 16;

    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        int distance =
            ct_edit_distance(origin->name + strlen("CTRUN_"),
                             ct_config_variable(&ct_config_keys[i], names[i]) + strlen("CTRUN_"));
        if (distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    if (best != NULL)
        ct_config_complain(loader, origin, "", "is no setting of ctrun; did you mean %s?", best);
    else
        ct_config_complain(loader, origin, "",
                           "is no setting of ctrun; unset it (CTRUN_OPTIM_LR sets optim.lr, and "
                           "so on for every key)");
}

static void read_ctrun(struct ct_config_loader *loader, const struct ct_config_origin *origin,
                       const char *value)
{
    const struct ct_config_key *key = find_key(origin->name);

    for (size_t i = 0; i < CT_COUNT(variables); i++)
        if (strcmp(variables[i], origin->name) == 0)
            return;
    if (key != NULL)
        ct_config_set_text(loader, key, value, origin);
    else
        complain_unknown(loader, origin);
}

/* torchrun's on/off variables are integers, of which 0 is off. */
static const char *pet_value(const struct ct_config_key *key, const char *value)
{
    int64_t number;

    if (key->type != CT_CONFIG_TYPE_BOOL || ct_parse_i64(value, &number) != 0)
        return value;
    return number != 0 ? "true" : "false";
}

static void read_pet(struct ct_config_loader *loader, const struct ct_config_origin *origin,
                     const char *value)
{
    char path[128];

    (void)snprintf(path, sizeof path, "launch.%s", origin->name + strlen("PET_"));
    for (char *at = path; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
    const struct ct_config_key *key = ct_config_key_find(path);
    const struct ct_torchrun_option *option = ct_torchrun_find(path + strlen("launch."));
    if (value[0] == '\0')
        return;
    if (key != NULL)
        ct_config_set_text(loader, key, pet_value(key, value), origin);
    else if (option != NULL && option->action != CT_TORCHRUN_REFUSE &&
             option->action != CT_TORCHRUN_SET)
        ct_torchrun_apply(loader, option, value, origin);
}

/* "name=value" of somebody else, torchrun perhaps. */
static void read_other(struct ct_config_loader *loader, const char *entry, const char *equals)
{
    char name[64];

    if ((size_t)(equals - entry) >= sizeof name || equals[1] == '\0')
        return;
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - entry), entry);
    ct_torchrun_apply_variable(loader, name, equals + 1);
}

void ct_config_read_environment(struct ct_config_loader *loader)
{
    for (char *const *at = loader->in->env; *at != NULL; at++) {
        const char *equals = strchr(*at, '=');
        bool ctrun = ct_starts_with(*at, "CTRUN_");
        bool pet = ct_starts_with(*at, "PET_");

        if (equals == NULL)
            continue;
        if (!ctrun && !pet) {
            read_other(loader, *at, equals);
            continue;
        }
        struct ct_config_origin origin = {
            .layer = ctrun ? CT_CONFIG_ENVIRONMENT : CT_CONFIG_PET,
            .name = ct_arena_strndup(&loader->cfg->arena, *at, (size_t)(equals - *at))};
        if (origin.name == NULL) {
            origin.name = "the environment";
            ct_config_complain(loader, &origin, "", "holds more than ctrun has room for");
            return;
        }
        if (ctrun)
            read_ctrun(loader, &origin, equals + 1);
        else
            read_pet(loader, &origin, equals + 1);
    }
}
