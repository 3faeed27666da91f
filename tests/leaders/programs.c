/* What the nodes of a trial train: configs/digits_mlp.yaml by ctworker, or steps.py by PyTorch; or
 * the clients of the store in traffic/, which train nothing. See leaders.h. */
#include "leaders.h"

#include "base/assert.h"

#include <stdio.h>

enum { WORDS = 16, WORD_BYTES = 128, FEW_NODES = 5, SOME_NODES = 9 };

const char *program_option(enum program program)
{
    static const char *const options[PROGRAM_COUNT] = {"ddp", "fsdp", "script", "store"};

    return options[program];
}

const char *program_comm(enum program program)
{
    static const char *const names[PROGRAM_COUNT] = {"ctworker", "ctworker", "python3",
                                                     "store_traffic"};

    return names[program];
}

/* Samples a step: all worlds that remain can divide them. */
static int batch_of(int nodes)
{
    if (nodes <= FEW_NODES)
        return 60;
    if (nodes <= SOME_NODES)
        return 504;
    return nodes == TRIAL_NODES ? 20160 : nodes * (nodes - 1); /* of 64, 63, 60 */
}

static const char *const *native_options(const struct trial *trial)
{
    static char words[4][WORD_BYTES];
    static const char *list[WORDS];
    int nodes = trial->setting->nodes;
    size_t count = 0;

    (void)snprintf(words[0], WORD_BYTES, "--log.dir=%s/log", trial->folder);
    (void)snprintf(words[1], WORD_BYTES, "--checkpoint.dir=%s/ckpt", trial->folder);
    (void)snprintf(words[2], WORD_BYTES, "--batch.global=%d", batch_of(nodes));
    /* Tiny where the ranks share few cores, else a few milliseconds a step. */
    (void)snprintf(words[3], WORD_BYTES, "--model.hidden=%s", nodes > FEW_NODES ? "16" : "256,256");
    for (size_t i = 0; i < CT_COUNT(words); i++)
        list[count++] = words[i];
    list[count++] = "--train.steps=1000000000";
    list[count++] = "--eval.every=1000000000";
    list[count++] = "--checkpoint.every=100";
    list[count++] = "--log.every=1";
    if (trial->program == PROGRAM_FSDP)
        list[count++] = "--parallel.strategy=fsdp";
    list[count] = NULL;
    return list;
}

const char *program_words(const struct trial *trial, const char *const **ret_options)
{
    static char path[PATH_MAX];
    static const char *const none[] = {NULL};

    *ret_options = none;
    if (trial->program == PROGRAM_STORE) {
        (void)snprintf(path, sizeof path, "%s/../tests/programs/store_traffic",
                       trial->setting->programs);
        return path;
    }
    bool native = trial->program != PROGRAM_SCRIPT;
    (void)snprintf(path, sizeof path, "%s/%s", trial->setting->root,
                   native ? "configs/digits_mlp.yaml" : "tests/e2e/torch/steps.py");
    if (native)
        *ret_options = native_options(trial);
    return path;
}

const char *const *program_environment(const struct trial *trial)
{
    static char folder[2][TRIAL_PATH];
    static const char *list[] = {folder[0],
                                 folder[1],
                                 "CTRUN_TUNING=none",
                                 "PYTHON_EXEC=/usr/bin/python3",
                                 "OMP_NUM_THREADS=1",
                                 "GLOO_SOCKET_IFNAME=eth0",
                                 "PYTHONDONTWRITEBYTECODE=1",
                                 NULL};

    (void)snprintf(folder[0], TRIAL_PATH, "XDG_RUNTIME_DIR=%s", trial->folder);
    (void)snprintf(folder[1], TRIAL_PATH, "STEPS_FOLDER=%s", trial->folder);
    return list;
}

void program_metrics(const struct trial *trial, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s%s/metrics.jsonl", trial->folder,
                   trial->program >= PROGRAM_SCRIPT ? "" : "/log");
}
