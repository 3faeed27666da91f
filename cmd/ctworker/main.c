/* ctworker: trains what a YAML file describes, as one rank of a ctrun job or alone.
 *
 *   ctrun --nproc_per_node 2 configs/digits_mlp.yaml      two of them
 *   ctworker configs/digits_mlp.yaml                      one, without a launcher
 *   mpirun -np 2 ctworker configs/digits_mlp.yaml         two, by the site's MPI
 *
 * Exit status: 0; 128 + n after a stop by signal n; else that of the error (base/error.def). */
#include "base/str.h"
#include "base/version.h"
#include "collectives/backend/mpi/mpi_launch.h"
#include "trainer/setup.h"
#include "trainer/train.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char usage[] = "usage: ctworker [--section.key=value ...] FILE.yaml\n"
                            "Trains what the file describes, as one process; see ctrun(1) for "
                            "several.\nStarted by mpirun it is one of its ranks.\n";

/* Is there an agent to talk to? */
static bool has_agent(void)
{
    return getenv("CTRUN_CONTROL_FD") != NULL;
}

static const char *variable(const void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

/* Has mpirun started this process, and no agent? */
static bool has_mpi(struct ct_mpi_launch *ret_launch)
{
    return !has_agent() && ct_mpi_launch_find(ret_launch, variable, NULL);
}

/* The first worker of a node speaks for all when they fail for the same reason. */
static bool reports_for_node(void)
{
    const char *local_rank = getenv("LOCAL_RANK");
    struct ct_mpi_launch launch;

    if (has_mpi(&launch))
        return launch.local_rank <= 0;
    return !has_agent() || local_rank == NULL || strcmp(local_rank, "0") == 0;
}

/* A run's config.yaml says where its nodes meet, if somebody said so: "agent" starts nothing. */
static void clear_agent(struct ct_config *cfg)
{
    if (ct_config_origin(cfg, &cfg->launch.rdzv_endpoint)->layer == CT_CONFIG_PRESET)
        cfg->launch.rdzv_endpoint = "";
}

static void open_log(struct ct_log *ret_log, const struct ct_config *cfg)
{
    static const int stderr_fd = STDERR_FILENO;

    ct_log_init_fd(ret_log, "ctworker", &stderr_fd);
    ret_log->level = (enum ct_log_level)cfg->log.level;
    ret_log->json = cfg->log.format == CT_CONFIG_LOG_FORMAT_JSON;
}

static void print_errors(const struct ct_config *cfg, const struct ct_config_errors *errs)
{
    struct ct_log log;

    open_log(&log, cfg);
    for (size_t i = 0; i < errs->count; i++)
        ct_log_event(&log, CT_LOG_ERROR, "config", "%s", errs->at[i].text);
    if (errs->dropped > 0)
        ct_log_event(&log, CT_LOG_ERROR, "config", "and %zu more", errs->dropped);
}

static int load_config(struct ct_config *cfg, int argc, char **argv, struct ct_error *err)
{
    /* Where nodes meet is the agent's business; its options come here with all others. */
    static const struct ct_config_preset agent = {"launch.rdzv_endpoint", "agent", "ctrun"};
    const struct ct_config_input in = {
        .argc = argc - 1,
        .argv = argv + 1,
        .env = environ,
        .command_needed = true,
        .presets = &agent,
        .preset_count = has_agent() ? 1 : 0,
    };
    struct ct_config_errors errs = {0};
    int code = ct_config_load(cfg, &in, &errs);

    if (code == 0)
        clear_agent(cfg);
    if (code == 0 && !cfg->command.help && !cfg->command.version && cfg->command.file == NULL)
        return ct_error_set(err, CT_EUSAGE, "ctworker trains a YAML file, and %s is none",
                            cfg->command.program);
    if (code != 0 && reports_for_node())
        print_errors(cfg, &errs);
    if (code != 0)
        err->text[0] = '\0';
    return code;
}

static bool should_print(const struct ct_worker *worker)
{
    switch (worker->scope) {
    case CT_SCOPE_NODE:
        return worker->me->local_rank == 0;
    case CT_SCOPE_JOB:
        return worker->me->rank == 0;
    case CT_SCOPE_RANK:
        break;
    }
    return true;
}

/* Tell agent and user what went wrong. The agent hears it first: peers that notice must not be
 * taken for the cause. */
static void report_failure(const struct ct_worker *worker, int code, struct ct_error *err)
{
    if (err->text[0] == '\0')
        (void)ct_error_set(err, code, "%s", ct_strerror(code));
    err->code = code;
    (void)ct_job_failure(worker->job, err);
    if (should_print(worker))
        ct_log_event(worker->log, CT_LOG_ERROR, ct_error_name(code), "%s", err->text);
}

/* What a rank that MPI started has to know; and backend mpi is for no other. */
static int check_mpi(const struct ct_worker *worker, struct ct_error *err)
{
    const char *library = ct_job_mpi(worker->job);
    struct ct_mpi_launch launch;

    if (library != NULL && worker->me->rank == 0)
        ct_log_event(worker->log, CT_LOG_INFO, "mpi",
                     "%d ranks of %s: such a job cannot shrink or grow; when a rank is lost mpirun "
                     "ends all, and a new start with checkpoint.resume=auto goes on from the "
                     "newest checkpoint (under ctrun the others would go on at once)",
                     worker->me->world, library);
    if (worker->cfg->parallel.backend != CT_CONFIG_BACKEND_MPI || has_mpi(&launch))
        return 0;
    return ct_error_set(err, CT_EUSAGE,
                        "parallel.backend is mpi, but mpirun has not started this process: start "
                        "it by `mpirun -np 4 ctworker %s`, or choose another backend",
                        worker->cfg->command.file);
}

/* The whole life of a rank; the exit status. */
static int work(struct ct_worker *worker)
{
    struct ct_error err = {0};
    bool stopped = false;
    int code = check_mpi(worker, &err);

    if (code == 0)
        code = ct_train(worker, &stopped, &err);
    if (code == 0)
        ct_report_summary(worker, stopped);
    else
        report_failure(worker, code, &err);
    ct_setup_undo(worker);
    if (code != 0)
        return ct_exit_status(code);
    return stopped ? 128 + worker->stop->signal : 0;
}

/* A job that Slurm has queued again goes on where it was stopped. */
static bool was_queued_again(void)
{
    const char *count = getenv("SLURM_RESTART_COUNT");

    return count != NULL && strcmp(count, "0") != 0;
}

/* The library reads variables, as it does in programs without a file like ours. An agent has set
 * those that are about its machine. */
static int tell_library(const struct ct_config *cfg, struct ct_error *err)
{
    const char *tuning = cfg->collectives.tuning, *mpi = cfg->collectives.mpi;

    if ((cfg->collectives.windows && setenv("CTRUN_NCCL_WINDOWS", "1", 1) != 0) ||
        (cfg->collectives.shrink && setenv("CTRUN_NCCL_SHRINK", "1", 1) != 0))
        return ct_error_set(err, CT_ENOMEM, "no memory for the environment");
    if (has_agent())
        return 0;
    if ((strcmp(tuning, "auto") != 0 && setenv("CTRUN_TUNING", tuning, 1) != 0) ||
        (mpi[0] != '\0' && setenv("CTRUN_MPI", mpi, 1) != 0))
        return ct_error_set(err, CT_ENOMEM, "no memory for the environment");
    return 0;
}

static int run(const struct ct_config *cfg, struct ct_error *err)
{
    struct ct_log log;
    struct ct_stop stop = {.signal = 0};
    struct ct_worker *worker = calloc(1, sizeof *worker);
    const char *folder = getenv("CTRUN_RUN_FOLDER"); /* of the job's earlier rounds */

    if (worker == NULL)
        return ct_exit_status(ct_error_set(err, CT_ENOMEM, "out of memory"));
    open_log(&log, cfg);
    worker->cfg = cfg;
    worker->log = &log;
    worker->clock = &ct_clock_system;
    worker->stop = &stop;
    worker->survives = has_agent();
    worker->queued_again = was_queued_again();
    worker->report.alone = !has_agent();
    if (has_agent() && folder != NULL)
        (void)ct_str_copy(worker->run_dir.path, PATH_MAX, folder);
    int code = tell_library(cfg, err);
    if (code == 0)
        code = ct_job_open(&worker->job, err);
    int status = ct_exit_status(code);
    if (code == 0) {
        worker->me = ct_job_assignment(worker->job);
        log.node = &worker->me->node_rank;
        log.rank = &worker->me->rank;
        worker->scope = CT_SCOPE_NODE;
        status = work(worker);
        ct_job_close(worker->job);
    }
    free(worker);
    return status;
}

int main(int argc, char **argv)
{
    struct ct_config cfg = {0};
    struct ct_error err = {0};
    struct ct_log log;

    /* Slurm signals every process of a step; what that means is for the agent to say. */
    (void)signal(SIGUSR1, SIG_IGN);
    (void)signal(SIGUSR2, SIG_IGN);
    int status = ct_exit_status(load_config(&cfg, argc, argv, &err));
    if (status == 0 && (cfg.command.help || cfg.command.version))
        status = fputs(cfg.command.version ? "ctworker " CT_VERSION "\n" : usage, stdout) < 0 ||
                         fflush(stdout) != 0
                     ? ct_exit_status(CT_EIO)
                     : 0;
    else if (status == 0)
        status = run(&cfg, &err);
    if (err.text[0] != '\0' && reports_for_node()) {
        open_log(&log, &cfg);
        ct_log_event(&log, CT_LOG_ERROR, "failed", "%s", err.text);
    }
    ct_config_deinit(&cfg);
    return status;
}
