/* ctrun plan FILE [--nnodes N] [--nproc_per_node M] [--device NAME] [--memory SIZE] [--rank R]
 *                 [--ops] [--json] [OPTIONS]: what a training would take, without starting it.
 *
 * Options that are not its own are the configuration's, so whatever a run takes can be tried. */
#include "commands.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "collectives/planner/report.h"
#include "recipe/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: ctrun plan FILE.yaml [--nnodes N] [--nproc_per_node M] [OPTIONS of run]\n"
    "  --device NAME    what each worker has: %s (default cpu)\n"
    "  --memory SIZE    its memory, as 40GB, instead of the device's\n"
    "  --ops            print each op of a step, with its queue, waits and places\n"
    "  --rank R         of this rank (default 0)\n"
    "  --json           one JSON object\n";

/* Its own words; the rest is for ct_config_load. */
struct wish {
    const char *device;
    uint64_t memory_bytes; /* 0: the device's */
    int64_t rank;
    bool ops, json, help;
    int argc;
    char **argv;
};

static int complain(const struct ct_error *err)
{
    (void)fprintf(stderr, "ctrun plan: error: %s\n", err->text);
    return ct_exit_status(err->code);
}

/* The value of `option` at argv[*at], as --option VALUE or --option=VALUE; NULL when it is another
 * word. */
static const char *value_of(int argc, char **argv, int *at, const char *option)
{
    size_t length = strlen(option);
    const char *word = argv[*at];

    if (word == NULL || strncmp(word, option, length) != 0)
        return NULL;
    if (word[length] == '=')
        return word + length + 1;
    if (word[length] != '\0')
        return NULL;
    return *at + 1 < argc ? argv[++*at] : "";
}

static int read_words(struct wish *wish, int argc, char **argv, struct ct_error *err)
{
    for (int i = 1; i < argc; i++) {
        const char *text;
        if (strcmp(argv[i], "--ops") == 0)
            wish->ops = true;
        else if (strcmp(argv[i], "--json") == 0)
            wish->json = true;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            wish->help = true;
        else if ((text = value_of(argc, argv, &i, "--device")) != NULL)
            wish->device = text;
        else if ((text = value_of(argc, argv, &i, "--memory")) != NULL) {
            if (ct_parse_bytes(text, &wish->memory_bytes) != 0 || wish->memory_bytes == 0)
                return ct_error_set(err, CT_EUSAGE,
                                    "--memory wants a size such as 40GB, not \"%.40s\"", text);
        } else if ((text = value_of(argc, argv, &i, "--rank")) != NULL) {
            if (ct_parse_i64(text, &wish->rank) != 0)
                return ct_error_set(err, CT_EUSAGE, "--rank wants a number, not \"%.40s\"", text);
        } else {
            wish->argv[wish->argc++] = argv[i];
        }
    }
    return 0;
}

/* The machines that the configuration and the words name. */
static int decide_machine(const struct wish *wish, const struct ct_config *cfg,
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
    int code = ct_machine_device(wish->device, &ret->device, err);
    if (wish->memory_bytes > 0)
        ret->device.memory_bytes = (double)wish->memory_bytes;
    int world = ret->nodes * ret->per_node;
    if (code == 0 && (wish->rank < 0 || wish->rank >= world))
        return ct_error_set(err, CT_EUSAGE, "--rank %lld is not one of %d workers",
                            (long long)wish->rank, world);
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

static int plan(const struct wish *wish, const struct ct_config *cfg, struct ct_buf *buf,
                struct ct_error *err)
{
    struct ct_project project = {0};
    struct ct_estimate estimate;
    struct ct_advice advice;
    struct ct_machine machine;
    int code = decide_machine(wish, cfg, &machine, err);

    if (code != 0)
        return code;
    code = ct_project_init(&project, cfg, &machine, err);
    struct ct_layout layout = ct_project_layout(&project);
    if (code == 0)
        code = ct_estimate(&project, &layout, CT_ESTIMATE_WHOLE_OPS, &estimate, err);
    if (code == 0)
        code = ct_advise(&project, &advice, err);
    const struct ct_report_of report = {&project, &estimate, &advice};
    if (code == 0 && wish->json)
        ct_planner_json(&report, buf);
    else if (code == 0)
        ct_planner_print(&report, buf);
    if (code == 0 && wish->ops)
        code = print_ops(&project, (int)wish->rank, buf, err);
    ct_project_deinit(&project);
    return code;
}

/* Where nodes would meet matters to no plan. */
static int load(const struct wish *wish, struct ct_config *cfg, struct ct_config_errors *errs)
{
    static const struct ct_config_preset nowhere = {"launch.rdzv_endpoint", "nowhere",
                                                    "ctrun plan"};
    const struct ct_config_input in = {.argc = wish->argc,
                                       .argv = wish->argv,
                                       .env = environ,
                                       .command_needed = true,
                                       .file_only = true,
                                       .presets = &nowhere,
                                       .preset_count = 1};

    return ct_config_load(cfg, &in, errs);
}

static int run(const struct wish *wish)
{
    struct ct_config cfg = {0};
    struct ct_config_errors errs = {0};
    struct ct_error err = {0};
    struct ct_buf buf;
    int code = load(wish, &cfg, &errs), status;

    ct_buf_init(&buf, 0);
    if (code != 0) {
        ct_complain(&errs, false);
        status = ct_exit_status(code);
    } else {
        code = ct_recipe_check(&cfg, &err);
        if (code == 0)
            code = plan(wish, &cfg, &buf, &err);
        status = code == 0 ? 0 : complain(&err);
    }
    if (status == 0)
        (void)fputs(ct_buf_str(&buf), stdout); /* main() sees to it that it is written */
    ct_buf_deinit(&buf);
    ct_config_deinit(&cfg);
    return status;
}

int ct_cmd_plan(int argc, char **argv)
{
    struct wish wish = {.device = "cpu", .argv = calloc((size_t)argc + 1, sizeof(char *))};
    struct ct_error err = {0};
    char devices[128];
    int status;

    if (wish.argv == NULL) {
        (void)ct_error_set(&err, CT_ENOMEM, "out of memory");
        return complain(&err);
    }
    if (read_words(&wish, argc, argv, &err) != 0)
        status = complain(&err);
    else if (wish.help || wish.argc == 0) {
        (void)fprintf(wish.help ? stdout : stderr, usage,
                      ct_machine_devices(devices, sizeof devices));
        status = wish.help ? 0 : ct_exit_status(CT_EUSAGE);
    } else {
        status = run(&wish);
    }
    free(wish.argv);
    return status;
}
