/* The files of a training: the model that a configuration describes, and its weights.
 *
 *     ctrun sample novel                           the newest run of that name (train/runs.h)
 *     ctrun sample novel/2026-11-23_20-15-04       a run, or its folder: config.yaml in it, the
 *                                                  newest checkpoint of its checkpoint.dir
 *     ctrun sample runs/novel/checkpoints          a folder of checkpoints: its newest
 *     ctrun sample .../checkpoints/step_00001000   a checkpoint
 *     ctrun sample configs/novel.yaml              a configuration: as the run's folder
 *     ctrun sample gpt2                            a GPT-2 of Hugging Face's: config.json in it
 *
 * A checkpoint's configuration is the config.yaml beside it or in a folder above, unless it is
 * named. Where there is no checkpoint the weights are those of model.init_from. */
#ifndef CT_CTRUN_TRAINED_H
#define CT_CTRUN_TRAINED_H

#include "config/config.h"
#include "graph/model.h"

#include <limits.h>
#include <stdbool.h>

/* Beside the exported weights of a model of characters: its vocabulary, each character once. */
#define CT_TRAINED_CHARACTERS "characters.txt"

struct ct_trained_choice {
    const char *config; /* names the configuration, or is "" */
    bool average;       /* the average of the weights (ema.safetensors) */
    bool best;          /* of several checkpoints the best (checkpoint.best), not the newest */
};

struct ct_trained {
    bool hub;                  /* a model of Hugging Face's: cfg is empty */
    struct ct_config cfg;      /* of the training */
    char merges[PATH_MAX];     /* of GPT-2's tokenizer, where they lie beside the weights; or "" */
    char characters[PATH_MAX]; /* those of an exported model of characters, in order; or "" */
    char weights[PATH_MAX];    /* a safetensors file */
    struct ct_model_spec spec; /* a gpt; its vocabulary may be 0: as many as there are tokens */
    struct ct_arena arena;     /* what `spec` points to */
};

/* Resolve `path` to a configuration and its weights. A checkpoint's files are checked against their
 * sums. CT_ENOINPUT, CT_ENOTFOUND, CT_ECONFIG, CT_EDATA, CT_EUNSUPPORTED (no gpt). `ret` needs
 * ct_trained_close also after a failure. */
int ct_trained_open(struct ct_trained *ret, const char *path,
                    const struct ct_trained_choice *choice, struct ct_error *err);
void ct_trained_close(struct ct_trained *trained);

#endif
