/* ctrun plan FILE [--nnodes N] [--nproc_per_node M] [--device NAME] [--memory SIZE] [--rank R]
 *                 [--ops] [--json] [OPTIONS]: what a training would take, without starting it.
 *
 * Options that are not its own are the configuration's, so whatever a run takes can be tried. */
#include "cmd/ctrun/cli/commands.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "cmd/ctrun/cli/cli_options.h"
#include "collectives/planner/plan_report.h"
#include "plan_calibrate.h"
#include "recipe/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Its own words; the rest is for ct_config_load. */
struct plan_options {
    const char *device;     /* NULL: this machine where it was measured, else "cpu" */
    struct ct_costs *costs; /* room for what was measured */
    uint64_t memory_bytes;  /* 0: the device's */
    int64_t rank;
    bool ops, json;
    bool calibrate;          /* measure this machine, plan nothing */
    const char *calibration; /* the file; NULL: the environment's */
    int argc;
    char **argv;
};

static int complain(const struct ct_error *err)
{
    return ct_command_fail("ctrun plan", err->code, err->text);
}

/* The file and the configuration's options go into options->argv. */
static int parse_arguments(struct plan_options *options, int argc, char **argv,
                           struct ct_error *err)
{
    const struct ct_option rows[] = {
        {"device", CT_OPTION_TEXT, &options->device},
        {"ops", CT_OPTION_FLAG, &options->ops},
        {"memory", CT_OPTION_BYTES, &options->memory_bytes},
        {"rank", CT_OPTION_NUMBER, &options->rank},
        {"json", CT_OPTION_FLAG, &options->json},
        {"calibrate", CT_OPTION_FLAG, &options->calibrate},
        {"calibration", CT_OPTION_TEXT, &options->calibration},
    };
    const char *file = NULL;
    struct ct_cli_options cli = {.command = "plan",
                                 .options = rows,
                                 .option_count = CT_COUNT(rows),
                                 .places = &file,
                                 .room = 1,
                                 .rest = options->argv};
    int code = ct_cli_options_read(&cli, argc - 1, argv + 1, err);

    options->argc = cli.rest_count;
    if (code == 0 && options->calibrate && file != NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "--calibrate measures this machine and plans nothing: leave \"%.80s\" "
                            "out",
                            file);
    if (code == 0 && file == NULL && !options->calibrate)
        code =
            ct_error_set(err, CT_EUSAGE, "name the YAML file of a training: ctrun plan FILE.yaml");
    if (code == 0 && file != NULL)
        options->argv[options->argc++] = (char *)(uintptr_t)file;
    return code;
}

/* "here" is this machine, as it was measured, and what a plan is for where nobody says another;
 * "cpu" where it was not measured. */
static int decide_device(const struct plan_options *options, struct ct_machine *ret,
                         struct ct_error *err)
{
    bool here = options->device == NULL || strcmp(options->device, "here") == 0, found = false;
    int code = here ? ct_costs_load(options->costs, options->calibration, &found, err) : 0;

    if (code == 0 && here && !found && options->device != NULL)
        return ct_error_set(err, CT_ENOTFOUND,
                            "--device here: this machine was not measured; measure it: ctrun plan "
                            "--calibrate");
    if (code == 0)
        code = ct_machine_device(here ? "cpu" : options->device, &ret->device, err);
    if (code != 0 || !found)
        return code;
    ret->costs = options->costs;
    ret->device.name = "cpu";
    ret->device.sources = options->costs->machine;
    ret->device.memory_bytes = options->costs->value[CT_COST_memory];
    return 0;
}

/* The machines that the configuration and the words name. */
static int decide_machine(const struct plan_options *options, const struct ct_config *cfg,
                          struct ct_machine *ret, struct ct_error *err)
{
    const char *text = cfg->launch.nproc_per_node;
    int64_t workers = 0;

    if (ct_parse_i64(text, &workers) != 0 || workers < 1 || workers > 4096)
        return ct_error_set(err, CT_EUSAGE,
                            "--nproc_per_node is \"%.40s\", and a plan wants a number: it looks at "
                            "no machine",
                            text);
    ret->nodes = (int)cfg->launch.nnodes.max;
    ret->per_node = (int)workers;
    int code = decide_device(options, ret, err);
    if (options->memory_bytes > 0)
        ret->device.memory_bytes = (double)options->memory_bytes;
    int world = ret->nodes * ret->per_node;
    if (code == 0 && (options->rank < 0 || options->rank >= world))
        return ct_error_set(err, CT_EUSAGE, "--rank %lld is not one of %d workers",
                            (long long)options->rank, world);
    return code;
}

/* The ops of the plan itself. */
static int print_ops(const struct ct_project *project, int rank, struct ct_buf *buf,
                     struct ct_error *err)
{
    struct ct_layout layout = ct_project_layout(project);
    struct ct_plan_options options = ct_project_options(project, &layout, rank);
    struct ct_plan plan;
    int code = ct_plan_build(&plan, &project->spec, &options, (uint64_t)project->cfg->seed, err);

    if (code == 0)
        code = ct_plan_print(&plan, true, buf, err);
    ct_plan_deinit(&plan);
    return code;
}

/* *ret_fits: some layout does. */
static int plan(const struct plan_options *options, const struct ct_config *cfg, struct ct_buf *buf,
                bool *ret_fits, struct ct_error *err)
{
    struct ct_project project = {0};
    struct ct_estimate estimate;
    struct ct_advice advice = {.simplest = -1};
    struct ct_machine machine;
    int code = decide_machine(options, cfg, &machine, err);

    if (code != 0)
        return code;
    code = ct_project_init(&project, cfg, &machine, err);
    struct ct_layout layout = ct_project_layout(&project);
    if (code == 0)
        code = ct_estimate(&project, &layout, CT_ESTIMATE_WHOLE_OPS, &estimate, err);
    if (code == 0)
        code = ct_advise(&project, &advice, err);
    *ret_fits = code == 0 && advice.simplest >= 0;
    const struct ct_report_of report = {&project, &estimate, &advice};
    if (code == 0 && options->json)
        ct_planner_json(&report, buf);
    else if (code == 0)
        ct_planner_print(&report, buf);
    if (code == 0 && options->ops)
        code = print_ops(&project, (int)options->rank, buf, err);
    ct_project_deinit(&project);
    return code;
}

/* Where nodes would meet matters to no plan. */
static int load(const struct plan_options *options, struct ct_config *cfg,
                struct ct_config_errors *errs)
{
    static const struct ct_config_preset nowhere = {"launch.rdzv_endpoint", "nowhere",
                                                    "ctrun plan"};
    const struct ct_config_input in = {.argc = options->argc,
                                       .argv = options->argv,
                                       .env = environ,
                                       .command_needed = true,
                                       .file_only = true,
                                       .presets = &nowhere,
                                       .preset_count = 1};

    return ct_config_load(cfg, &in, errs);
}

static int run(const struct plan_options *options)
{
    struct ct_config cfg = {0};
    struct ct_config_errors errs = {0};
    struct ct_error err = {0};
    struct ct_buf buf;
    int code = load(options, &cfg, &errs), status;
    bool fits = true;

    ct_buf_init(&buf, 0);
    if (code != 0) {
        ct_complain(&errs, false);
        status = ct_exit_status(code);
    } else {
        code = ct_recipe_check(&cfg, &err);
        if (code == 0)
            code = plan(options, &cfg, &buf, &fits, &err);
        status = code == 0 ? 0 : complain(&err);
    }
    if (status == 0) {
        (void)fputs(ct_buf_str(&buf), stdout); /* main() sees to it that it is written */
        status = fits ? 0 : ct_exit_status(CT_EUSAGE);
    }
    ct_buf_deinit(&buf);
    ct_config_deinit(&cfg);
    return status;
}

int ct_cmd_plan(int argc, char **argv)
{
    struct plan_options options = {.costs = calloc(1, sizeof *options.costs),
                                   .argv = calloc((size_t)argc + 1, sizeof(char *))};
    struct ct_error err = {0};
    int status;

    if (argc == 3 && strcmp(argv[1], "worker") == 0) {
        free(options.argv);
        free(options.costs);
        return ct_plan_calibrate_worker(argv[2]);
    }
    if (options.argv == NULL || options.costs == NULL) {
        free(options.argv);
        free(options.costs);
        (void)ct_error_set(&err, CT_ENOMEM, "out of memory");
        return complain(&err);
    }
    if (parse_arguments(&options, argc, argv, &err) != 0)
        status = complain(&err);
    else if (options.calibrate)
        status = ct_plan_calibrate(options.calibration, options.argc, options.argv);
    else
        status = run(&options);
    free(options.argv);
    free(options.costs);
    return status;
}
