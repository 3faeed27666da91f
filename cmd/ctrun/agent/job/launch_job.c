/* See launch_job.h. */
#include "launch_job.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "cmd/ctrun/cli/key_option.h"
#include "rendezvous/history/history.h"
#include "slots.h"
#include "wandb_python.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARENA_BYTES = 16 << 20 };

/* What is asked for, whoever asks. */
static struct ct_program_request request_of(const struct ct_config *cfg, char *const *env)
{
    return (struct ct_program_request){
        .yaml = cfg->command.file,
        .name = cfg->command.program,
        .no_python = cfg->launch.no_python,
        .in_path = cfg->command.ended || cfg->launch.no_python,
        .module = cfg->launch.module,
        .script = cfg->launch.run_path,
        .worker = cfg->launch.worker,
        .env = env,
    };
}

int job_check_name(const struct ct_config *cfg, char *const *env, struct ct_arena *arena,
                   struct ct_error *err)
{
    const struct ct_program_request request = request_of(cfg, env);

    return ct_program_check_name(&request, arena, err);
}

static int decide_program(struct job *job, char *const *args, struct ct_error *err)
{
    struct ct_program_request request = request_of(&job->cfg, job->env);
    const struct ct_config_command *command = &job->cfg.command;
    static char *const nothing[] = {NULL};
    char self[4096];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);

    self[CT_MAX(size, 0)] = '\0';
    request.self = self;
    request.args = command->file != NULL ? args : command->arg_count > 0 ? command->args : nothing;
    request.script = request.script || (job->as_torchrun && !request.no_python);
    request.templates = job->as_torchrun;
    return ct_program_decide(&request, &job->arena, &job->program, err);
}

static int decide_folder(struct job *job, struct ct_error *err)
{
    const struct folder_request request = {
        .cfg = &job->cfg,
        .host = job->alone ? NULL : job->host,
        .env = job->env,
        .native = job->program.native,
    };

    return folder_make(&request, &job->arena, &job->folder, err);
}

/* The job's name for its workers. Jobs that nobody named and nobody else joins would all be "none":
 * each gets a name of its own, as from torchrun, since scripts make files and keys of it. */
static const char *decide_run_id(struct job *job)
{
    const struct ct_config *cfg = &job->cfg;
    bool named = ct_config_origin(cfg, &cfg->launch.rdzv_id)->layer != CT_CONFIG_DEFAULT;
    char text[64];

    if (named || !job->alone || !ct_sys_read("", "/proc/sys/kernel/random/uuid", text, sizeof text))
        return cfg->launch.rdzv_id;
    return ct_arena_strndup(&job->arena, text, strcspn(text, "\n"));
}

/* What all nodes must agree on. Of a script, that is who serves PyTorch's store. */
static int decide_settings(struct job *job, struct ct_error *err)
{
    const struct ct_config *cfg = &job->cfg;
    bool native = cfg->command.file != NULL;
    struct ct_buf text;

    ct_buf_init(&text, 0);
    (void)ct_buf_printf(&text, "what runs:=a %s\n", native ? "train.yaml" : "script");
    if (native)
        ct_config_settings(cfg, &text);
    else
        (void)ct_buf_printf(&text, "--torch_store=%s\n",
                            ct_config_word(cfg, &cfg->launch.torch_store));
    job->settings = ct_arena_strdup(&job->arena, ct_buf_str(&text));
    job->config_hash = native ? ct_config_hash(cfg) : ct_hash64(ct_buf_str(&text), text.size, 0);
    ct_buf_deinit(&text);
    return job->settings != NULL
               ? 0
               : ct_error_set(err, CT_ENOMEM, "out of memory for what the nodes agree on");
}

/* The key is looked at even by who will not use it: a wrong one would be found where two nodes
 * meet. Slurm's nodes make the one that nobody named. */
static int check_key(const struct job *job, struct ct_error *err)
{
    const struct ct_config *cfg = &job->cfg;
    const struct ct_key_source source = key_option_source(cfg);
    struct ct_key key = {.kind = CT_KEY_SECRET};

    if (!ct_key_source_given(&source) ||
        (!ct_certificate_files_given(&source.tls) &&
         ct_config_origin(cfg, &cfg->launch.key_file)->layer == CT_CONFIG_PRESET))
        return 0;
    int rc = ct_key_source_load(&source, &key, err);
    if (rc == 0 && key.kind == CT_KEY_CERTIFICATE) {
        int64_t now_s = (int64_t)(ct_clock_wall_ns(&ct_clock_system) / 1000000000);
        rc = ct_certificates_judge_time(key.certificates, now_s, err) == CT_EAUTH ? CT_EAUTH : 0;
    }
    ct_net_key_wipe(&key);
    return rc;
}

static int decide_hook(struct job *job, struct ct_error *err)
{
    const struct ct_config *cfg = &job->cfg;
    const struct ct_config_strs *kinds = &cfg->launch.on_event_kinds;
    int rc = ct_announcements_read(kinds->at, (size_t)kinds->count, "launch.on_event_kinds",
                                   &job->hook_kinds, err);

    return rc == 0 ? ct_hook_target_find(cfg->launch.on_event, ct_env_find(job->env, "PATH"),
                                         &job->arena, &job->hook, err)
                   : rc;
}

int job_decide(struct job *job, char *const *args, char *const *env, struct ct_error *err)
{
    struct ct_config *cfg = &job->cfg;
    char host[256] = "localhost";
    int rc;

    ct_arena_init(&job->arena, ARENA_BYTES);
    job->env = env;
    (void)gethostname(host, sizeof host - 1);
    if (job->slurm != NULL && job->slurm->node_name[0] != '\0')
        (void)ct_str_copy(host, sizeof host, job->slurm->node_name);
    job->host = ct_arena_strdup(&job->arena, host);
    if (cfg->launch.standalone) /* MIN:MAX from 1 on, as torchrun takes it: this one node */
        cfg->launch.nnodes.min = cfg->launch.nnodes.max = 1;
    job->alone = cfg->launch.standalone ||
                 (cfg->launch.nnodes.max == 1 && cfg->launch.rdzv_endpoint[0] == '\0');
    job->run_id = decide_run_id(job);
    if (job->host == NULL || job->run_id == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for names");
    rc = check_key(job, err);
    if (rc == 0)
        rc = decide_settings(job, err);
    if (rc == 0)
        rc = decide_program(job, args, err);
    if (rc == 0)
        rc = hardware_decide(job, err);
    if (rc == 0)
        rc = decide_hook(job, err);
    if (rc == 0)
        rc = wandb_find(cfg, env, &job->arena, &job->wandb_python, err);
    if (rc == 0)
        rc = decide_folder(job, err);
    return rc;
}

void job_deinit(struct job *job)
{
    ct_arena_deinit(&job->arena);
    ct_config_deinit(&job->cfg);
}
