/* Rules about more than one key: tables that ct_config_check walks. Inside of lib/config only. */
#ifndef CT_CONFIG_CHECKS_H
#define CT_CONFIG_CHECKS_H

#include "config/loader.h"

#include <stddef.h>

struct ct_config_rule {
    size_t member; /* offset of the key that is to blame */
    size_t other;  /* of the other key that the rule looks at, or the same */
    bool training; /* it is about training: looked at when there is a whole YAML file */
    /* Writes, broken or not, the end of a sentence that begins with the name of its key. */
    bool (*broken)(const struct ct_config *cfg, const void *member, struct ct_buf *why);
};

struct ct_config_rules {
    const struct ct_config_rule *rules;
    size_t count;
};

/* How workers share the work: checks_parallel.c. Parameter servers: checks_served.c. 16-bit floats
 * and memory: checks_precision.c. Held-out samples: checks_evaluation.c. */
extern const struct ct_config_rules ct_config_parallel_rules, ct_config_served_rules,
    ct_config_precision_rules, ct_config_evaluation_rules;

/* Return whether there is a data source: training needs its own, evaluation has one when any file
 * of it is named. */
bool ct_config_source_wanted(const struct ct_config *cfg, const struct ct_config_source *source);

/* Shorten warm-up and decay in proportion, with a note, when a stronger layer has lowered
 * train.steps below them (trial.c). Call it before the rules. */
void ct_config_fit_trial(struct ct_config_loader *loader);

#endif
