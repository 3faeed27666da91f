/* ctrun run: read the configuration, decide what this node does, do it. */
#include "cli/commands.h"

#include "agent/job/launch_job.h"
#include "agent/node_uv.h"
#include "base/error.h"
#include "base/log/log.h"
#include "collectives/planner/check.h"
#include "recipe/recipe.h"
#include "scheduler/kubernetes_layer.h"
#include "scheduler/slurm_layer.h"

#include <string.h>
#include <unistd.h>

static const int stderr_fd = STDERR_FILENO;

/* What is said before there is a console. */
static void open_log(struct ct_log *ret_log, const struct ct_config *cfg)
{
    ct_log_init_fd(ret_log, "ctrun", &stderr_fd);
    ret_log->json = cfg->log.format == CT_CONFIG_LOG_FORMAT_JSON || ct_complaints_in_json();
}

static void complain(const struct ct_log *log, const struct ct_config_errors *errs, bool notes)
{
    for (size_t i = 0; i < errs->count; i++)
        ct_log_event(log, CT_LOG_ERROR, "config", "%s", errs->at[i].text);
    if (errs->dropped > 0)
        ct_log_event(log, CT_LOG_ERROR, "config", "and %zu more", errs->dropped);
    for (size_t i = 0; notes && i < errs->note_count; i++)
        ct_log_event(log, CT_LOG_INFO, "config", "note: %s", errs->notes[i].text);
}

void ct_complain(const struct ct_config_errors *errs, bool notes)
{
    struct ct_log log;

    ct_log_init_fd(&log, "ctrun", &stderr_fd);
    log.json = ct_complaints_in_json();
    complain(&log, errs, notes);
}

static int fail(const struct ct_config *cfg, int code, const struct ct_error *err)
{
    struct ct_log log;

    open_log(&log, cfg);
    ct_log_event(&log, CT_LOG_ERROR, "failed", "%s", err->text);
    return ct_exit_status(code);
}

/* A program that is not there, or in PATH alone, may be a misspelt subcommand. */
static void guess_command(const struct job *job, const char *first, struct ct_error *err)
{
    const char *program = job->cfg.command.program;
    const char *near = program != NULL && program == first ? ct_command_like(first) : NULL;
    const struct ct_error allocation = *err;

    if (near != NULL && access(program, F_OK) != 0)
        (void)ct_error_set(err, allocation.code, "%.900s; or did you mean ctrun %s?",
                           allocation.text, near);
}

static int run(struct job *job, struct slurm *slurm, char **argv)
{
    struct ct_error err = {0};
    struct ct_log log;

    open_log(&log, &job->cfg);
    int rc = slurm_complete(slurm, &job->cfg, &log, &err);

    if (rc == 0)
        rc = kubernetes_complete(&job->cfg, environ, &log, &err);
    job->slurm = slurm->allocation.place != CT_SLURM_NONE ? &slurm->allocation : NULL;
    if (rc == 0)
        rc = job_decide(job, argv + 1, environ, &err);
    if ((rc == CT_ENOINPUT || rc == CT_EUSAGE) && !job->as_torchrun)
        guess_command(job, argv[1], &err);
    if (rc == 0)
        rc = ct_planner_check(&job->cfg, (int)job->cfg.launch.nnodes.max, (int)job->slots, &err);
    if (rc != 0)
        return fail(&job->cfg, rc, &err);
    int status = node_run(job, &err);
    return err.code == 0 ? status : fail(&job->cfg, err.code, &err);
}

int ct_run_job(int argc, char **argv, bool for_output)
{
    struct job job = {.as_torchrun = ct_called_torchrun(argv[0]), .for_output = for_output};
    struct ct_config_errors errs = {0};
    struct ct_error err = {0};
    struct slurm slurm;
    struct ct_log log;
    int status;
    int rc = slurm_read(&slurm, environ, &err);
    const struct ct_config_input input = {
        .argc = argc - 1,
        .argv = argv + 1,
        .env = environ,
        .command_needed = true,
        .presets = slurm.presets,
        .preset_count = slurm.preset_count,
    };

    if (rc == 0)
        rc = ct_config_load(&job.cfg, &input, &errs);
    if (rc == 0)
        rc = ct_recipe_check(&job.cfg, &err);
    if (err.code != 0) {
        status = fail(&job.cfg, rc, &err);
    } else if (rc != 0) {
        open_log(&log, &job.cfg);
        complain(&log, &errs, false);
        status = ct_exit_status(rc);
    } else if (job.cfg.command.help) {
        status = strcmp(argv[0], "run") == 0 ? ct_command_help("run") : ct_cmd_help(1, argv);
    } else if (job.cfg.command.version) {
        status = ct_cmd_version(1, argv);
    } else {
        open_log(&log, &job.cfg);
        complain(&log, &errs, job.cfg.log.level <= CT_CONFIG_LEVEL_INFO);
        status = run(&job, &slurm, argv);
    }
    slurm_end(&slurm);
    job_deinit(&job);
    return status;
}

int ct_cmd_run(int argc, char **argv)
{
    if (!ct_called_torchrun(argv[0]) && ct_sweep_asked(argc, argv))
        return ct_cmd_sweep(argc, argv);
    return ct_run_job(argc, argv, false);
}
