/* Rules about what needs evaluations of held-out samples (checks.h). */
#include "config/checks.h"

#include "base/assert.h"

static bool has_evaluations(const struct ct_config *cfg)
{
    return ct_config_source_wanted(cfg, &cfg->data.eval);
}

static bool plateau_without_evaluation(const struct ct_config *cfg, const void *member,
                                       struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_puts(why, "plateau looks at held-out samples: give data.eval");
    return cfg->schedule.type == CT_CONFIG_SCHEDULE_PLATEAU && !has_evaluations(cfg);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Rank 0 writes it from what it holds. */
static bool sample_of_what(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    bool text =
        cfg->model.type == CT_CONFIG_MODEL_GPT && cfg->data.train.format == CT_CONFIG_FORMAT_TEXT;
    bool whole = cfg->parallel.strategy != CT_CONFIG_STRATEGY_FSDP &&
                 cfg->parallel.strategy != CT_CONFIG_STRATEGY_PS && cfg->parallel.tensor == 1 &&
                 cfg->parallel.pipeline == 1;

    (void)ct_buf_puts(why, !text   ? "is for a gpt whose data.train.format is text; leave it out"
                           : whole ? "comes after evaluations: give data.eval"
                                   : "needs a worker that holds the whole model: parallel.strategy "
                                     "ddp or zero1, without tensor and pipeline; or leave it out");
    return *(const int64_t *)member > 0 && (!text || !whole || !has_evaluations(cfg));
}

static bool best_without_evaluation(const struct ct_config *cfg, const void *member,
                                    struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_printf(why, "%s is that of held-out samples: give data.eval",
                        ct_config_word(cfg, &cfg->checkpoint.best));
    return cfg->checkpoint.best != CT_CONFIG_BEST_NONE && !has_evaluations(cfg);
}

static bool best_without_folder(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_puts(why, "there are no checkpoints to keep one of: set checkpoint.dir, to auto "
                           "for instance");
    return cfg->checkpoint.best != CT_CONFIG_BEST_NONE && cfg->checkpoint.dir[0] == '\0';
}

#define AT(member) offsetof(struct ct_config, member)

static const struct ct_config_rule rules[] = {
    {AT(schedule.type), AT(data.eval.path), true, plateau_without_evaluation},
    {AT(log.sample), AT(model.type), true, sample_of_what},
    {AT(checkpoint.best), AT(data.eval.path), true, best_without_evaluation},
    {AT(checkpoint.best), AT(checkpoint.dir), true, best_without_folder},
};

const struct ct_config_rules ct_config_evaluation_rules = {rules, CT_COUNT(rules)};
