/* See project.h. */
#include "collectives/planner/project.h"

#include "base/assert.h"
#include "collectives/planner/plan_options.h"
#include "recipe/recipe.h"
#include "train/batch_size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the tables that a model's specification points to. */
enum { RECIPE_BYTES = 16 << 20 };

/* What a model of features or characters is taken to see. */
enum { ASSUMED_WIDTH = 64, ASSUMED_CHARACTERS = 128, GPT2_TOKENS = 50257, BYTES = 256 };

static int64_t vocabulary_of(struct ct_project *p)
{
    const struct ct_config_source *train = &p->cfg->data.train;
    bool text = train->format == CT_CONFIG_FORMAT_TEXT;

    if (text && train->tokenizer == CT_CONFIG_TOKENIZER_BYTE)
        return BYTES;
    if (text && train->tokenizer == CT_CONFIG_TOKENIZER_GPT2)
        return GPT2_TOKENS;
    int64_t count = text ? ASSUMED_CHARACTERS : GPT2_TOKENS;
    (void)snprintf(p->assumed, sizeof p->assumed,
                   "no data are read: a vocabulary of %" PRId64 " is assumed "
                   "(--model.vocabulary says another)",
                   count);
    return count;
}

/* What the data would tell of the model. */
static struct ct_recipe_data look(struct ct_project *p)
{
    struct ct_recipe_data data = {.width = ct_recipe_width(p->cfg), .classes = 2};

    if (p->cfg->model.type == CT_CONFIG_MODEL_GPT) {
        data.classes = ct_recipe_vocabulary(p->cfg);
        if (data.classes == 0)
            data.classes = vocabulary_of(p);
    } else if (data.width == 0) {
        data.width = ASSUMED_WIDTH;
        (void)snprintf(p->assumed, sizeof p->assumed,
                       "no data are read: samples of %d features are assumed "
                       "(--model.input says another number)",
                       ASSUMED_WIDTH);
    }
    return data;
}

/* Whether workers on these machines would compute on a GPU: what a wish for any device gets there.
 * A configuration that is only checked has no device. */
static bool on_gpus(const struct ct_project *p)
{
    const char *device = p->machine.device.name;

    return device != NULL && strcmp(device, "cpu") != 0 && !p->options.rooted &&
           !p->options.served && p->cfg->train.device == CT_CONFIG_DEVICE_AUTO;
}

int ct_project_init(struct ct_project *p, const struct ct_config *cfg,
                    const struct ct_machine *machine, struct ct_error *err)
{
    int threads = ct_planner_replicas(cfg);
    const struct ct_mesh wanted = {.stages = (int)cfg->parallel.pipeline,
                                   .replicas = threads > 0 ? 1 : (int)cfg->parallel.replicate,
                                   .tensor = (int)cfg->parallel.tensor};
    struct ct_batch_plan batch = {0};
    struct ct_mesh mesh;
    int64_t context = ct_recipe_context(cfg);

    *p = (struct ct_project){.cfg = cfg,
                             .machine = *machine,
                             .world = machine->nodes * machine->per_node,
                             .global = cfg->batch.global,
                             .labels_per_row = CT_MAX(context, 1)};
    if (threads > 0)
        p->world = p->machine.per_node = threads; /* of the one worker that there is */
    ct_arena_init(&p->arena, RECIPE_BYTES);
    int code = ct_planner_served(cfg, p->world, err);
    if (code < 0)
        return code;
    p->world = code;
    code = ct_mesh_init(&mesh, p->world, &wanted, err);
    if (code == 0)
        code = ct_batch_plan(&batch, (uint32_t)cfg->batch.global, (uint32_t)cfg->batch.micro,
                             (uint32_t)ct_mesh_size(&mesh, CT_AXIS_DATA), err);
    if (code == 0)
        code = ct_planner_options(cfg, &p->options, &p->rules, err);
    if (code == 0) {
        const struct ct_recipe_data data = look(p);
        code = ct_recipe_model(&p->spec, cfg, &data, &p->arena, err);
    }
    p->options.world = p->world;
    p->options.fuses |= on_gpus(p);
    p->options.micro_rows = batch.micro;
    p->options.replicas = CT_MAX(p->options.replicas, 1);
    p->options.tensor = CT_MAX(p->options.tensor, 1);
    p->options.stages = CT_MAX(p->options.stages, 1);
    bool evaluates = cfg->data.eval.path[0] != '\0' || cfg->data.eval.images[0] != '\0';
    p->options.eval_rows = evaluates ? ct_planner_eval_rows(p->labels_per_row) : 0;
    return code;
}

void ct_project_deinit(struct ct_project *p)
{
    free(p->rules);
    ct_arena_deinit(&p->arena);
    *p = (struct ct_project){0};
}

struct ct_layout ct_project_layout(const struct ct_project *p)
{
    return (struct ct_layout){.rooted = p->options.rooted,
                              .served = p->options.served,
                              .tensor = p->options.tensor,
                              .stages = p->options.stages,
                              .shard = p->options.shard,
                              .replicas = p->options.replicas,
                              .recompute = p->options.recompute,
                              .micro = p->options.micro_rows};
}

int64_t ct_project_samples(const struct ct_project *p, const struct ct_layout *layout)
{
    int copy = layout->tensor * layout->stages; /* workers that see the same samples */

    if (p->world % copy != 0 || p->global % (p->world / copy) != 0 ||
        p->world / copy % layout->replicas != 0)
        return 0;
    return p->global / (p->world / copy);
}

struct ct_plan_options ct_project_options(const struct ct_project *p,
                                          const struct ct_layout *layout, int rank)
{
    struct ct_plan_options options = p->options;

    options.rank = rank;
    options.rooted = layout->rooted;
    options.served = layout->served;
    options.tensor = layout->tensor;
    options.stages = layout->stages;
    options.shard = layout->shard;
    options.replicas = layout->replicas;
    options.recompute = layout->recompute;
    options.micro_rows = layout->micro;
    options.accumulation = (int)(ct_project_samples(p, layout) / layout->micro);
    return options;
}

const char *ct_layout_strategy(const struct ct_layout *layout)
{
    static const char *const names[] = {[CT_PLAN_SHARD_NONE] = "ddp",
                                        [CT_PLAN_SHARD_OPTIM] = "zero1",
                                        [CT_PLAN_SHARD_GRAD] = "fsdp grad",
                                        [CT_PLAN_SHARD_FULL] = "fsdp full"};

    return layout->rooted ? "dp" : layout->served ? "ps" : names[layout->shard];
}

const char *ct_layout_recompute(const struct ct_layout *layout)
{
    static const char *const names[] = {[CT_PLAN_RECOMPUTE_NONE] = "none",
                                        [CT_PLAN_RECOMPUTE_GELU] = "gelu",
                                        [CT_PLAN_RECOMPUTE_ATTENTION] = "attention",
                                        [CT_PLAN_RECOMPUTE_BLOCK] = "block"};

    return names[layout->recompute];
}

const char *ct_layout_words(const struct ct_layout *layout, char *text, size_t size)
{
    static const char *const strategies[] = {
        [CT_PLAN_SHARD_NONE] = "--parallel.strategy=ddp",
        [CT_PLAN_SHARD_OPTIM] = "--parallel.strategy=zero1",
        [CT_PLAN_SHARD_GRAD] = "--parallel.strategy=fsdp --parallel.shard=grad",
        [CT_PLAN_SHARD_FULL] = "--parallel.strategy=fsdp --parallel.shard=full"};
    int used = snprintf(text, size, "%s", strategies[layout->shard]);
    const struct {
        const char *key;
        int value;
    } more[] = {{"parallel.replicate", layout->replicas},
                {"parallel.tensor", layout->tensor},
                {"parallel.pipeline", layout->stages}};

    for (size_t i = 0; i < CT_COUNT(more); i++)
        if (more[i].value > 1 && (size_t)used < size)
            used +=
                snprintf(text + used, size - (size_t)used, " --%s=%d", more[i].key, more[i].value);
    if ((size_t)used < size)
        (void)snprintf(text + used, size - (size_t)used,
                       " --batch.micro=%" PRId64 " --memory.recompute=%s", layout->micro,
                       ct_layout_recompute(layout));
    return text;
}
