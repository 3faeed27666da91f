/* ctrun slurm [SLURM OPTIONS] [OPTIONS] train.yaml | PROGRAM: a batch script for a job, written to
 * standard output or submitted. The configuration is read here, so that its errors are found before
 * the job waits in a queue. */
#include "cmd/ctrun/cli/commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "cmd/ctrun/agent/job/launch_job.h"
#include "cmd/ctrun/cli/key_option.h"
#include "config/config.h"
#include "slurm/batch_script.h"
#include "slurm_layer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SBATCH_MAX = 64 };

struct request {
    bool submit, requeue, help;
    const char *sbatch[SBATCH_MAX];
    size_t sbatch_count;
    struct ct_arena arena;
};

static int fail(int code, const struct ct_error *err)
{
    return ct_command_fail("ctrun", code, err->text);
}

/* ---- options ---- */

static int add_directive(struct request *request, const char *directive, struct ct_error *err)
{
    if (directive == NULL || !ct_starts_with(directive, "--") || directive[2] == '\0')
        return ct_error_set(err, CT_EUSAGE,
                            "--sbatch wants an option of sbatch in one word: --sbatch "
                            "--mail-type=END");
    if (request->sbatch_count == SBATCH_MAX)
        return ct_error_set(err, CT_EUSAGE, "more than %d options of sbatch", SBATCH_MAX);
    request->sbatch[request->sbatch_count++] = directive;
    return 0;
}

/* Is `word` one of sbatch's that need no --sbatch: "--time" (then the value follows) or
 * "--time=VALUE"? */
static bool is_sbatch_option(const char *word, bool *ret_alone)
{
    size_t length = strcspn(word, "=");
    char name[64];

    *ret_alone = word[length] == '\0';
    (void)snprintf(name, sizeof name, "%.*s", (int)length, word);
    return ct_starts_with(name, "--") && ct_command_option_find("slurm", name + 2) != NULL;
}

/* Slurm's options come first; returns how many words they are, or a negative code. */
static int read_options(struct request *request, char **arguments, struct ct_error *err)
{
    int at = 0, rc = 0;

    for (; arguments[at] != NULL && rc == 0; at++) {
        const char *word = arguments[at];
        bool alone;

        if (strcmp(word, "--submit") == 0) {
            request->submit = true;
        } else if (strcmp(word, "--requeue") == 0) {
            request->requeue = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            request->help = true;
        } else if (ct_starts_with(word, "--sbatch=")) {
            rc = add_directive(request, word + strlen("--sbatch="), err);
        } else if (strcmp(word, "--sbatch") == 0) {
            rc = add_directive(request, arguments[at + 1], err);
            at += rc == 0;
        } else if (is_sbatch_option(word, &alone)) {
            if (alone && arguments[at + 1] == NULL)
                return ct_error_set(err, CT_EUSAGE, "%s wants a value", word);
            rc = add_directive(
                request,
                alone ? ct_arena_printf(&request->arena, "%s=%s", word, arguments[at + 1]) : word,
                err);
            at += alone;
        } else if (ct_starts_with(word, "--") && word[2] != '\0' &&
                   ct_config_option_width(word, NULL) == 0) {
            return ct_command_unknown("slurm", word, err);
        } else {
            break;
        }
    }
    return rc != 0 ? rc : at;
}

/* ---- the script ---- */

static const char *job_name(const struct ct_config *cfg, struct ct_arena *arena)
{
    const char *path = cfg->command.file != NULL ? cfg->command.file : cfg->command.program;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t length = strcspn(name, ".");

    return length > 0 ? ct_arena_strndup(arena, name, length) : "ctrun";
}

static void print_script(struct request *request, const struct ct_config *cfg, char **arguments,
                         struct ct_buf *to)
{
    char self[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    uint64_t workers = 0;

    self[CT_MAX(size, 0)] = '\0';
    (void)ct_parse_u64(cfg->launch.nproc_per_node, &workers); /* or "gpu": not said */
    const struct ct_batch batch = {
        .ctrun = size > 0 ? self : "ctrun",
        .name = job_name(cfg, &request->arena),
        .nodes = cfg->launch.nnodes.max,
        .elastic =
            cfg->launch.nnodes.min<cfg->launch.nnodes.max, .own_key = cfg->launch.nnodes.max> 1 &&
            !key_option_given(cfg) && slurm_munge(environ, &request->arena) == NULL,
        .requeue = request->requeue,
        .cpus = (uint32_t)workers,
        .sbatch = request->sbatch,
        .sbatch_count = request->sbatch_count,
        .arguments = (const char *const *)arguments,
    };
    ct_batch_print(&batch, to);
}

/* sbatch says the job's number itself. */
static int submit(const struct ct_buf *script, struct ct_error *err)
{
    FILE *sbatch = popen("sbatch", "w");
    bool written =
        sbatch != NULL && fwrite(ct_buf_str(script), 1, script->size, sbatch) == script->size;
    int status = sbatch != NULL ? pclose(sbatch) : -1;

    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "there is no sbatch here; without --submit the script is written to "
                            "standard output");
    if (!written || status != 0)
        return ct_error_set(err, CT_EUNAVAILABLE, "sbatch did not take the job");
    return 0;
}

static int make(struct request *request, const struct ct_config *cfg, char **arguments)
{
    struct ct_error err = {0};
    struct ct_buf script;
    int rc = job_check_name(cfg, environ, &request->arena, &err);

    if (rc != 0)
        return fail(rc, &err);
    ct_buf_init(&script, 0);
    print_script(request, cfg, arguments, &script);
    if (request->submit)
        rc = submit(&script, &err);
    else
        rc = ct_fs_write_all(STDOUT_FILENO, ct_buf_str(&script), script.size);
    ct_buf_deinit(&script);
    if (rc < 0 && err.code == 0)
        (void)ct_error_set(&err, CT_EIO, "the script cannot be written: %s", ct_strerror(rc));
    return err.code == 0 ? 0 : fail(err.code, &err);
}

int ct_cmd_slurm(int argc, char **argv)
{
    /* Where the nodes meet is known when the job runs. */
    static const struct ct_config_preset later = {"launch.rdzv_endpoint", "slurm", "Slurm"};
    struct request request = {.sbatch_count = 0};
    struct ct_config_errors errs = {0};
    struct ct_error err = {0};
    struct ct_config cfg = {0};
    int status;

    ct_arena_init(&request.arena, 1 << 20);
    int used = read_options(&request, argv + 1, &err);
    if (used < 0) {
        status = fail(used, &err);
    } else if (request.help) {
        status = ct_command_help("slurm");
    } else {
        const struct ct_config_input input = {
            .argc = argc - 1 - used,
            .argv = argv + 1 + used,
            .env = environ,
            .command_needed = true,
            .presets = &later,
            .preset_count = 1,
        };
        int rc = ct_config_load(&cfg, &input, &errs);
        if (rc != 0)
            ct_complain(&errs, false);
        status = rc == 0 ? make(&request, &cfg, argv + 1 + used) : ct_exit_status(rc);
    }
    ct_config_deinit(&cfg);
    ct_arena_deinit(&request.arena);
    return status;
}
