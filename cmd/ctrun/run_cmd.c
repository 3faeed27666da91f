/* ctrun run: read the configuration, decide what this node does, do it. */
#include "commands.h"

#include "base/error.h"
#include "base/fs.h"
#include "collectives/planner/check.h"
#include "job.h"
#include "node_uv.h"
#include "recipe/recipe.h"
#include "slurm.h"

#include <stdio.h>
#include <unistd.h>

void ct_complain(const struct ct_config_errors *errs, bool notes)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_config_errors_write(errs, "ctrun: error: ", &text);
    if (notes)
        ct_config_notes_write(errs, "ctrun: note: ", &text);
    (void)ct_fs_write_all(STDERR_FILENO, ct_buf_str(&text), text.size);
    ct_buf_deinit(&text);
}

static int fail(int code, const struct ct_error *err)
{
    (void)fprintf(stderr, "ctrun: error: %s\n", err->text);
    return ct_exit_status(code);
}

/* A program that is not there may be a misspelt subcommand. */
static void guess_command(const struct job *job, const char *first, struct ct_error *err)
{
    const char *program = job->cfg.command.program;
    const char *near = program != NULL && program == first ? ct_command_like(first) : NULL;
    const struct ct_error said = *err;

    if (err->code == CT_ENOINPUT && near != NULL && access(program, F_OK) != 0)
        (void)ct_error_set(err, said.code, "%.900s; or did you mean ctrun %s?", said.text, near);
}

static int run(struct job *job, struct slurm *slurm, char **argv)
{
    struct ct_error err = {0};
    int rc = slurm_settle(slurm, &job->cfg, &err);

    job->slurm = slurm->said.place != CT_SLURM_NONE ? &slurm->said : NULL;
    if (rc == 0)
        rc = job_decide(job, argv + 1, environ, &err);
    if (rc != 0 && !job->as_torchrun)
        guess_command(job, argv[1], &err);
    if (rc == 0)
        rc = ct_planner_check(&job->cfg, (int)job->cfg.launch.nnodes.max, (int)job->slots, &err);
    return rc == 0 ? node_run(job) : fail(rc, &err);
}

int ct_run_job(int argc, char **argv, bool for_output)
{
    struct job job = {.as_torchrun = ct_called_torchrun(argv[0]), .for_output = for_output};
    struct ct_config_errors errs = {0};
    struct ct_error err = {0};
    struct slurm slurm;
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
        status = fail(rc, &err);
    } else if (rc != 0) {
        ct_complain(&errs, false);
        status = ct_exit_status(rc);
    } else if (job.cfg.command.help) {
        status = ct_cmd_help(1, argv);
    } else if (job.cfg.command.version) {
        status = ct_cmd_version(1, argv);
    } else {
        ct_complain(&errs, job.cfg.log.level <= CT_CONFIG_LEVEL_INFO);
        status = run(&job, &slurm, argv);
    }
    slurm_end(&slurm);
    job_deinit(&job);
    return status;
}

int ct_cmd_run(int argc, char **argv)
{
    return ct_run_job(argc, argv, false);
}
