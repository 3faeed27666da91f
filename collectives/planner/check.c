/* See check.h: what is asked for is built and thrown away, so there are no second rules. */
#include "collectives/planner/check.h"

#include "base/str.h"
#include "collectives/planner/plan_options.h"
#include "collectives/planner/project.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/weights.h"

#include <stdlib.h>
#include <string.h>

/* ---- weights to begin with ------------------------------------------------------------------- */

/* Whether the job goes on from a checkpoint, or may: then the first weights do not matter. */
static bool may_extend(const struct ct_config *cfg)
{
    const char *resume = cfg->checkpoint.resume;
    char newest[PATH_MAX];

    if (strcmp(resume, "auto") != 0 && strcmp(resume, "none") != 0)
        return true;
    return cfg->checkpoint.dir[0] != '\0' && ct_ckpt_latest(cfg->checkpoint.dir, newest, NULL) == 0;
}

static int compare_weights(const char *path, const struct ct_model *model, struct ct_error *err)
{
    size_t count = (size_t)model->param_count;
    struct ct_st_tensor *wanted = calloc(count, sizeof *wanted);

    if (wanted == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the names of %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        const struct ct_value *value = &model->program.values[model->params[i].value];
        wanted[i] = (struct ct_st_tensor){
            .name = value->name, .dtype = CT_F32, .dims = (uint32_t)value->shape.dims};
        for (int k = 0; k < value->shape.dims; k++)
            wanted[i].shape[k] = (uint64_t)value->shape.dim[k];
    }
    int code = ct_weights_check(path, wanted, count, err);
    free(wanted);
    return code;
}

/* Where only data tell the sizes of the model, the file itself is looked at. */
static int check_weights(const struct ct_project *project, struct ct_error *err)
{
    const char *path = project->cfg->model.init_from;
    struct ct_model model;
    int code;

    if (project->assumed[0] != '\0')
        code = ct_weights_check(path, NULL, 0, err);
    else if ((code = ct_model_build(&model, &project->spec, 1, err)) != 0)
        return code;
    else {
        code = compare_weights(path, &model, err);
        ct_model_deinit(&model);
    }
    if (code == CT_ENOINPUT && project->machine.nodes > 1)
        return 0;
    if (code != 0)
        (void)ct_error_prefix(err, "model.init_from");
    return code;
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Whether the workers that there will be are known: nodes may have other numbers of them, and an
 * elastic job forms no round whose workers do not divide its batch. */
static bool is_known(const struct ct_config *cfg)
{
    const struct ct_config_nodes *nodes = &cfg->launch.nnodes;
    int64_t workers;

    return nodes->min == nodes->max &&
           (nodes->max == 1 || ct_parse_i64(cfg->launch.nproc_per_node, &workers) == 0);
}

static int check_plan(const struct ct_project *project, struct ct_error *err)
{
    struct ct_layout layout = ct_project_layout(project);
    struct ct_plan_options options = ct_project_options(project, &layout, 0);
    struct ct_plan plan = {.seed = 0};
    int code = ct_plan_build(&plan, &project->spec, &options, (uint64_t)project->cfg->seed, err);

    ct_plan_deinit(&plan);
    return code;
}

int ct_planner_check(const struct ct_config *cfg, int nodes, int per_node, struct ct_error *err)
{
    bool cut = cfg->parallel.tensor * cfg->parallel.pipeline > 1 || ct_planner_servers(cfg) > 0;
    const struct ct_machine machine = {.nodes = nodes, .per_node = per_node};
    struct ct_project project;

    if (cfg->command.file == NULL || (!cut && !is_known(cfg)))
        return 0;
    int code = ct_project_init(&project, cfg, &machine, err);
    if (code == 0 && cut)
        code = check_plan(&project, err);
    if (code == 0 && cfg->model.init_from[0] != '\0' && !may_extend(cfg))
        code = check_weights(&project, err);
    ct_project_deinit(&project);
    return code;
}
