/* See check.h: the plan of one worker is made and thrown away, so there are no second rules. */
#include "collectives/planner/check.h"

#include "collectives/planner/options.h"
#include "collectives/planner/project.h"

int ct_planner_check(const struct ct_config *cfg, int nodes, int per_node, struct ct_error *err)
{
    const struct ct_machine machine = {.nodes = nodes, .per_node = per_node};
    struct ct_project project;
    struct ct_plan plan = {.seed = 0};

    if (cfg->command.file == NULL ||
        (cfg->parallel.tensor * cfg->parallel.pipeline == 1 && ct_planner_servers(cfg) == 0))
        return 0;
    int code = ct_project_init(&project, cfg, &machine, err);
    if (code == 0) {
        struct ct_layout layout = ct_project_layout(&project);
        struct ct_plan_options options = ct_project_options(&project, &layout, 0);
        code = ct_plan_build(&plan, &project.spec, &options, (uint64_t)cfg->seed, err);
        ct_plan_deinit(&plan);
    }
    ct_project_deinit(&project);
    return code;
}
