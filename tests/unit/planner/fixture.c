/* See fixture.h. */
#include "tests/unit/planner/fixture.h"

#include <criterion/criterion.h>

#include <string.h>

int planned_try(struct planned *planned, const char *yaml, int nodes, int per_node,
                const char *device, struct ct_error *err)
{
    const struct ct_config_input in = {
        .yaml_path = "plan.yaml", .yaml_text = yaml, .yaml_size = strlen(yaml)};
    struct ct_machine machine = {.nodes = nodes, .per_node = per_node};
    struct ct_config_errors errs = {0};

    memset(planned, 0, sizeof *planned);
    cr_assert_eq(ct_config_load(&planned->cfg, &in, &errs), 0, "%s", errs.at[0].text);
    cr_assert_eq(ct_machine_device(device, &machine.device, err), 0, "%s", err->text);
    return ct_project_init(&planned->project, &planned->cfg, &machine, err);
}

void planned_init(struct planned *planned, const char *yaml, int nodes, int per_node,
                  const char *device)
{
    struct ct_error err = {0};

    cr_assert_eq(planned_try(planned, yaml, nodes, per_node, device, &err), 0, "%s", err.text);
}

void planned_deinit(struct planned *planned)
{
    ct_project_deinit(&planned->project);
    ct_config_deinit(&planned->cfg);
}
