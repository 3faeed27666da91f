/* See trained.h. */
#include "trained.h"

#include "base/assert.h"
#include "base/str.h"
#include "cmd/ctrun/agent/job/run_text.h"
#include "recipe/recipe.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/weights.h"
#include "train/hub.h"
#include "train/runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARENA_BYTES = 16 << 20 };

static bool is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool join(char to[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(to, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static bool holds(const char *folder, const char *name, char ret_path[PATH_MAX])
{
    return join(ret_path, folder, name) && access(ret_path, R_OK) == 0;
}

/* ---- the configuration ------------------------------------------------------------------------*/

/* `path` is a folder: the config.yaml in it or in one above takes its place. */
static int find_config(char path[PATH_MAX], struct ct_error *err)
{
    static const char *const levels[] = {"config.yaml", "../config.yaml", "../../config.yaml"};
    char found[PATH_MAX];

    for (size_t i = 0; i < CT_COUNT(levels); i++)
        if (holds(path, levels[i], found)) {
            (void)ct_str_copy(path, PATH_MAX, found);
            return 0;
        }
    return ct_error_set(err, CT_ENOTFOUND,
                        "%s: no config.yaml there or above it: name the run's configuration with "
                        "--config",
                        path);
}

/* ---- the weights ------------------------------------------------------------------------------*/

/* The checkpoint in a folder of them. */
static int pick(const char *dir, const struct ct_trained_choice *choice, char ret_path[PATH_MAX])
{
    return choice->best ? ct_ckpt_best(dir, ret_path, NULL) : ct_ckpt_latest(dir, ret_path, NULL);
}

static int weights_of(struct ct_trained *trained, const char *checkpoint,
                      const struct ct_trained_choice *choice, struct ct_error *err)
{
    struct ct_ckpt_state state;
    int code = ct_ckpt_open(checkpoint, &state, err);

    if (code != 0)
        return code;
    if (holds(checkpoint, choice->average ? "ema.safetensors" : "model.safetensors",
              trained->weights))
        return 0;
    return ct_error_set(err, CT_ENOTFOUND, "%s has no average of the weights (optim.ema)",
                        checkpoint);
}

/* The folder of the run: `path`, or of a configuration its newest run. */
static bool find_run(const struct ct_trained *trained, const char *path, char run[PATH_MAX])
{
    const struct ct_config *cfg = &trained->cfg;
    char base[PATH_MAX];

    ct_config_run_base(cfg, base);
    if (is_folder(path))
        return ct_str_copy(run, PATH_MAX, path);
    if (cfg->log.dir[0] != '\0')
        return ct_str_copy(run, PATH_MAX, cfg->log.dir);
    if (ct_runs_newest(base, run))
        return true;
    run[0] = '\0';
    return !ct_config_keeps_checkpoints_in_run(cfg);
}

/* The weights of a run, or of a configuration that has not run. */
static int newest_weights(struct ct_trained *trained, const char *path,
                          const struct ct_trained_choice *choice, struct ct_error *err)
{
    const char *first = trained->cfg.model.init_from;
    char dir[PATH_MAX] = "", newest[PATH_MAX], run[PATH_MAX];

    if (find_run(trained, path, run))
        run_checkpoints(&trained->cfg, run, dir);
    if (dir[0] != '\0' && pick(dir, choice, newest) == 0)
        return weights_of(trained, newest, choice, err);
    if (dir[0] != '\0' && choice->best)
        return ct_ckpt_best(dir, newest, err);
    if (first[0] != '\0' && !choice->average)
        return ct_weights_path(first, trained->weights, err);
    if (dir[0] == '\0')
        return ct_error_set(err, CT_ENOTFOUND,
                            "%s: the run keeps no checkpoints: set checkpoint.dir, or name a "
                            "checkpoint",
                            path);
    return ct_error_set(err, CT_ENOTFOUND, "%s: there is no checkpoint in %s", path, dir);
}

/* ---- all of it --------------------------------------------------------------------------------*/

static int read_spec(struct ct_trained *trained, struct ct_error *err)
{
    const struct ct_config *cfg = &trained->cfg;

    if (cfg->model.type != CT_CONFIG_MODEL_GPT)
        return ct_error_set(err, CT_EUNSUPPORTED, "%s: model.type is %s, but this is for a gpt",
                            cfg->command.file, ct_config_word(cfg, &cfg->model.type));
    return ct_recipe_model(&trained->spec, cfg, NULL, &trained->arena, err);
}

/* A folder as Hugging Face's transformers keeps a GPT-2; `file` is its config.json. */
static int read_hub(struct ct_trained *trained, const char *path, const char *file,
                    struct ct_error *err)
{
    struct ct_hub_gpt2 hub;
    int code = ct_hub_read(file, &hub, err);

    if (code != 0)
        return code;
    trained->hub = true;
    trained->spec = (struct ct_model_spec){.type = CT_MODEL_GPT,
                                           .dtype = CT_F32,
                                           .gpt = {.vocabulary = hub.vocabulary,
                                                   .context = hub.context,
                                                   .layers = hub.layers,
                                                   .heads = hub.heads,
                                                   .width = hub.width,
                                                   .inner = hub.inner,
                                                   .untied = hub.untied,
                                                   .eps = hub.eps,
                                                   .dropout = hub.dropout}};
    if (!holds(path, CT_TRAINED_CHARACTERS, trained->characters))
        trained->characters[0] = '\0';
    if (!holds(path, "merges.txt", trained->merges) && !holds(path, "vocab.bpe", trained->merges))
        trained->merges[0] = '\0';
    return ct_weights_path(path, trained->weights, err);
}

static bool is_weights(const char *path)
{
    return ct_ends_with(path, ".safetensors") || ct_ends_with(path, ".safetensors.index.json");
}

/* What kind of thing `path` is. */
enum kind { RUN, CHECKPOINT, CHECKPOINTS, WEIGHTS };

/* *ret_newest is the newest of a folder of checkpoints. */
static enum kind kind_of(const char *path, const struct ct_trained_choice *choice,
                         char ret_newest[PATH_MAX])
{
    bool folder = is_folder(path);

    if (folder && holds(path, "state.json", ret_newest))
        return CHECKPOINT;
    if (is_weights(path) || (folder && (holds(path, "model.safetensors", ret_newest) ||
                                        holds(path, "model.safetensors.index.json", ret_newest))))
        return WEIGHTS;
    return folder && pick(path, choice, ret_newest) == 0 ? CHECKPOINTS : RUN;
}

static int find_weights(struct ct_trained *trained, const char *path,
                        const struct ct_trained_choice *choice, struct ct_error *err)
{
    char newest[PATH_MAX];

    switch (kind_of(path, choice, newest)) {
    case CHECKPOINT:
        return weights_of(trained, path, choice, err);
    case CHECKPOINTS:
        return weights_of(trained, newest, choice, err);
    case WEIGHTS:
        return ct_weights_path(path, trained->weights, err);
    default:
        return newest_weights(trained, path, choice, err);
    }
}

int ct_trained_open(struct ct_trained *ret, const char *path,
                    const struct ct_trained_choice *choice, struct ct_error *err)
{
    char file[PATH_MAX] = "", run[PATH_MAX], *slash;
    int code = 0;

    *ret = (struct ct_trained){.weights = ""};
    ct_arena_init(&ret->arena, ARENA_BYTES);
    if ((access(path, R_OK) != 0 || is_folder(path)) && kind_of(path, choice, file) == RUN &&
        !holds(path, "config.json", file) && !holds(path, "config.yaml", file) &&
        ct_runs_find(path, run, NULL) == 0)
        path = run;
    if (access(path, R_OK) != 0)
        return ct_error_set(err, CT_ENOINPUT, "%s: there is no such run, checkpoint or file", path);
    if (choice->config[0] == '\0' && holds(path, "config.json", file))
        return read_hub(ret, path, file, err);
    if (!ct_str_copy(file, sizeof file, choice->config[0] != '\0' ? choice->config : path))
        return ct_error_set(err, CT_ENOINPUT, "%.64s...: the path is too long", file);
    if (choice->config[0] == '\0' && is_weights(path)) {
        slash = strrchr(file, '/');
        (void)snprintf(slash != NULL ? slash : file, 2, "%s", slash != NULL ? "" : ".");
    }
    if (is_folder(file))
        code = find_config(file, err);
    if (code == 0)
        code = run_config(&ret->cfg, file, err);
    if (code == 0)
        code = read_spec(ret, err);
    return code == 0 ? find_weights(ret, path, choice, err) : code;
}

void ct_trained_close(struct ct_trained *trained)
{
    ct_config_deinit(&trained->cfg);
    ct_arena_deinit(&trained->arena);
}
