/* A short trial of a configuration: `ctrun --train.steps 3 FILE.yaml`.
 *
 *     FILE.yaml     schedule: {warmup: 100}         the file's training takes thousands of steps
 *     stronger      --train.steps 3                 who says this has not thought of the warm-up
 *     comes to      schedule.warmup 3               shortened, with a note
 *
 * Only a stronger layer does that: a file that contradicts itself, or a command line, is wrong
 * (checks.c). */
#include "config/checks.h"

#include <inttypes.h>

static const struct ct_config_key *key_of(const struct ct_config_loader *loader, const void *member)
{
    return ct_config_key_of(loader->cfg, member);
}

static bool was_refused(const struct ct_config_loader *loader, const void *member)
{
    return loader->failed[ct_config_key_index(key_of(loader, member))];
}

/* Is what `member` says older than train.steps, or nothing? */
static bool gives_way(const struct ct_config_loader *loader, const int64_t *member)
{
    const struct ct_config *cfg = loader->cfg;

    return *member == 0 ||
           ct_config_origin(cfg, member)->layer < ct_config_origin(cfg, &cfg->train.steps)->layer;
}

static void shorten(struct ct_config_loader *loader, int64_t *member, int64_t steps)
{
    struct ct_config *cfg = loader->cfg;
    const struct ct_config_key *key = key_of(loader, member);
    const struct ct_config_origin *by = ct_config_origin(cfg, &cfg->train.steps);
    struct ct_config_origin *from = &cfg->origins[ct_config_key_index(key)];
    char place[320];

    if (*member == steps)
        return;
    ct_config_note(loader, by, "train.steps",
                   "%" PRId64 " shortens %s from %" PRId64 " (%s) to %" PRId64, cfg->train.steps,
                   key->path, *member, ct_config_origin_text(from, place, sizeof place), steps);
    *member = steps;
    *from = *by;
}

void ct_config_fit_trial(struct ct_config_loader *loader)
{
    struct ct_config *cfg = loader->cfg;
    int64_t steps = cfg->train.steps, none = 0;
    int64_t *warmup = &cfg->schedule.warmup;
    int64_t *decay = cfg->schedule.type == CT_CONFIG_SCHEDULE_WSD ? &cfg->schedule.decay : &none;
    int64_t both = *warmup + *decay;

    if (cfg->command.file == NULL || was_refused(loader, &cfg->train.steps) ||
        was_refused(loader, warmup) || was_refused(loader, &cfg->schedule.decay))
        return;
    if (steps <= 0 || both <= steps || !gives_way(loader, warmup) ||
        (*decay != 0 && !gives_way(loader, decay)))
        return;
    int64_t rise = *warmup * steps / both; /* both below 2^31 */
    shorten(loader, warmup, rise);
    if (*decay != 0)
        shorten(loader, decay, steps - rise);
}
