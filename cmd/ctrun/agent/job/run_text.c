/* See run_text.h. */
#include "run_text.h"

#include "base/assert.h"
#include "base/str.h"
#include "train/checkpoint/checkpoint.h"
#include "train/runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int run_config(struct ct_config *cfg, const char *path, struct ct_error *err)
{
    /* A run's nodes may have met where nobody wrote down; nobody meets here. */
    static const struct ct_config_preset nowhere = {"launch.rdzv_endpoint", "nowhere", "ctrun"};
    char *argv[] = {(char *)(uintptr_t)path};
    const struct ct_config_input in = {.argc = 1,
                                       .argv = argv,
                                       .env = environ,
                                       .command_needed = true,
                                       .file_only = true,
                                       .presets = &nowhere,
                                       .preset_count = 1};
    struct ct_config_errors *errs = calloc(1, sizeof *errs);

    *cfg = (struct ct_config){.command = {.file = NULL}};
    if (errs == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a configuration");
    int code = ct_config_load(cfg, &in, errs);
    if (code != 0)
        *err = errs->at[0];
    free(errs);
    return code;
}

bool run_is_place(const char *key)
{
    return strcmp(key, "log.dir") == 0 || strcmp(key, "checkpoint.resume") == 0;
}

/* The folder may have moved since. */
void run_checkpoints(const struct ct_config *cfg, const char *folder, char path[PATH_MAX])
{
    const char *dir = cfg->checkpoint.dir;
    CT_ASSERT(dir != NULL && cfg->log.dir != NULL);
    size_t length = strlen(cfg->log.dir);
    bool within = length > 0 && strncmp(dir, cfg->log.dir, length) == 0 && dir[length] == '/';

    if (ct_config_keeps_checkpoints_in_run(cfg))
        (void)snprintf(path, PATH_MAX, "%s/checkpoints", folder);
    else if (within)
        (void)snprintf(path, PATH_MAX, "%s/%s", folder, dir + length + 1);
    else
        (void)ct_str_copy(path, PATH_MAX, dir);
}

/* A script saves by itself, if at all. */
static int check_training(const char *folder, const char *config, struct ct_error *err)
{
    struct ct_run_record *record = calloc(1, sizeof *record);
    int code = record != NULL ? 0 : CT_ENOMEM;

    if (code == 0 && access(config, F_OK) != 0 && ct_run_record_read(folder, record, NULL) == 0)
        code = ct_error_set(err, CT_ENOTFOUND,
                            "%s is the run of a script, which ctrun cannot resume; start it again: "
                            "%.200s",
                            ct_run_title(folder), record->command);
    free(record);
    return code;
}

int run_checkpoint(const char *folder, bool best, char path[PATH_MAX], uint64_t *ret_step,
                   struct ct_error *err)
{
    char file[PATH_MAX], dir[PATH_MAX] = "";
    struct ct_config *cfg = calloc(1, sizeof *cfg);
    struct ct_ckpt_state *state = calloc(1, sizeof *state);
    int code = CT_ENOMEM;

    if (cfg != NULL && state != NULL &&
        snprintf(file, sizeof file, "%s/config.yaml", folder) < (int)sizeof file) {
        code = check_training(folder, file, err);
        if (code == 0)
            code = run_config(cfg, file, err);
        if (code == 0)
            run_checkpoints(cfg, folder, dir);
        ct_config_deinit(cfg);
    }
    if (code == 0 && dir[0] == '\0')
        code =
            ct_error_set(err, CT_ENOTFOUND,
                         "%s keeps no checkpoints (checkpoint.dir is empty): there is nothing to "
                         "go on from",
                         ct_run_title(folder));
    else if (code == 0 && best)
        code = ct_ckpt_best(dir, path, err);
    else if (code == 0 && ct_ckpt_latest(dir, path, NULL) != 0)
        code = ct_error_set(err, CT_ENOTFOUND, "%s has no checkpoint yet: there is none in %s",
                            ct_run_title(folder), dir);
    if (code == 0)
        code = ct_ckpt_open(path, state, err);
    if (code == 0)
        *ret_step = state->step;
    free(state);
    free(cfg);
    return code;
}
