/* The input of a plan: the model and the options of a configuration, the machines, and the layout
 * of a step over them. No data are read: facts that only the data have are assumed, and reported
 * so. */
#ifndef CT_PLANNER_PROJECT_H
#define CT_PLANNER_PROJECT_H

#include "base/arena.h"
#include "collectives/plan/plan.h"
#include "collectives/planner/machine.h"
#include "config/config.h"

struct ct_project {
    const struct ct_config *cfg; /* borrowed */
    struct ct_machine machine;
    int world;
    int64_t global;         /* samples a step */
    int64_t labels_per_row; /* tokens of a sample; 1 for models of features */
    struct ct_model_spec spec;
    struct ct_plan_options options; /* as the configuration says, for rank 0 */
    char assumed[160];              /* a sentence about assumed facts of the data; "": none */
    struct ct_lr_rule *rules;
    struct ct_arena arena;
};

/* The choices in which a layout may differ from the configuration's. */
struct ct_layout {
    bool rooted;        /* dp */
    bool served;        /* ps */
    int tensor, stages; /* tensor-parallel ranks; pipeline stages */
    enum ct_plan_shard shard;
    int replicas; /* copies of what is sharded */
    enum ct_plan_recompute recompute;
    int64_t micro; /* rows that a rank runs at a time */
};

/* Initialise from a configuration. Call ct_project_deinit in any case. 0, or a code with its
 * sentence: a batch that does not divide (lib/train/batch_size.h), a model that cannot be built. */
int ct_project_init(struct ct_project *project, const struct ct_config *cfg,
                    const struct ct_machine *machine, struct ct_error *err);
void ct_project_deinit(struct ct_project *project);

/* Return the configuration's own layout. */
struct ct_layout ct_project_layout(const struct ct_project *project);

/* Return the options of a plan of `layout` for `rank`. */
struct ct_plan_options ct_project_options(const struct ct_project *project,
                                          const struct ct_layout *layout, int rank);

/* Return the samples of a step that one worker sees; 0 where workers or samples do not divide. */
int64_t ct_project_samples(const struct ct_project *project, const struct ct_layout *layout);

/* Return its strategy: "ddp", "zero1", "fsdp, grad", "fsdp, full"; its recomputation: "none",
 * "gelu", ... */
const char *ct_layout_strategy(const struct ct_layout *layout);
const char *ct_layout_recompute(const struct ct_layout *layout);

/* Write the options of ctrun that choose it: "--parallel.strategy=fsdp ...". Return `text`. */
const char *ct_layout_words(const struct ct_layout *layout, char *text, size_t size);

#endif
