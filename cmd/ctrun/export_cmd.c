/* ctrun export: the weights of a trained GPT-2 as Hugging Face's `transformers` reads them.
 *
 *     ctrun export runs/novel gpt2-novel      gpt2-novel/model.safetensors, gpt2-novel/config.json
 *     python3 -c 'GPT2LMHeadModel.from_pretrained("gpt2-novel")' */
#include "commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "train/hub.h"
#include "train/weights.h"
#include "train/weights_files.h"
#include "trained.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct export
{
    const char *config, *stored, *most;
    bool average, help;
    uint64_t most_bytes; /* of a file; 0: all in one */
    struct ct_trained trained;
    struct ct_weights_files files; /* of the trained weights; they own the names */
    struct ct_st_tensor *tensors;
    size_t count;
    char *memory;
};

/* What a GPT here can be and GPT-2 is not. */
static int check_kind(const struct ct_trained *trained, struct ct_error *err)
{
    const struct ct_gpt_spec *gpt = &trained->spec.gpt;
    const struct {
        const char *key, *wanted;
        bool fits;
    } rows[] = {
        {"model.positions", "learned", gpt->positions == CT_POSITIONS_LEARNED},
        {"model.norm", "layernorm", gpt->norm == CT_NORM_LAYER},
        {"model.mlp", "gelu", gpt->mlp == CT_MLP_GELU},
        {"model.bias", "true", !gpt->unbiased},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        if (!rows[i].fits)
            return ct_error_set(err, CT_EUNSUPPORTED,
                                "%s: Hugging Face's GPT-2 has %s: %s, this model has not",
                                trained->cfg.command.file, rows[i].key, rows[i].wanted);
    return 0;
}

static int read_weights(struct export *e, struct ct_error *err)
{
    size_t bytes = 0;
    int code = ct_weights_files_open(&e->files, e->trained.weights, err);

    if (code != 0)
        return code;
    e->tensors = calloc(ct_weights_files_tensors(&e->files) + 1, sizeof *e->tensors);
    for (size_t f = 0; e->tensors != NULL && f < e->files.count; f++)
        for (size_t i = 0; i < e->files.at[f].table.count; i++) {
            struct ct_st_tensor *tensor = &e->tensors[e->count++];
            *tensor = e->files.at[f].table.entries[i].tensor;
            tensor->dtype = CT_F32;
            bytes += (size_t)ct_st_bytes(tensor);
        }
    e->memory = malloc(bytes + 1);
    if (e->tensors == NULL || e->memory == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %zu bytes of weights", bytes);
    char *at = e->memory;
    for (size_t i = 0; i < e->count; i++) {
        e->tensors[i].data = at;
        at += ct_st_bytes(&e->tensors[i]);
    }
    return ct_weights_load(e->trained.weights, e->tensors, e->count, err);
}

static uint64_t vocabulary_of(const struct export *e)
{
    for (size_t i = 0; i < e->count; i++)
        if (e->tensors[i].name != NULL && strcmp(e->tensors[i].name, "wte.weight") == 0)
            return e->tensors[i].shape[0];
    return 0;
}

static struct ct_hub_gpt2 hub_of(const struct export *e)
{
    const struct ct_gpt_spec *gpt = &e->trained.spec.gpt;

    return (struct ct_hub_gpt2){.vocabulary = (int64_t)vocabulary_of(e),
                                .context = gpt->context,
                                .width = gpt->width,
                                .layers = gpt->layers,
                                .heads = gpt->heads,
                                .inner = gpt->inner,
                                .eps = gpt->eps == 0 ? 1e-5 : gpt->eps,
                                .dropout = gpt->dropout,
                                .untied = gpt->untied};
}

static int write_folder(const struct export *e, const char *folder, struct ct_error *err)
{
    int dtype = ct_dtype_find(e->stored);
    const struct ct_hub_gpt2 hub = hub_of(e);
    char path[PATH_MAX];

    if (dtype < 0)
        return ct_error_set(err, CT_EUSAGE, "--dtype \"%s\": it is f32, bf16 or f16", e->stored);
    if (strlen(folder) + sizeof "/config.json" > sizeof path)
        return ct_error_set(err, CT_ECANTCREAT, "%.64s...: the path is too long", folder);
    int code = ct_fs_make_dirs(folder, err);
    if (code != 0)
        return code;
    code = ct_weights_save(folder, e->tensors, e->count, (enum ct_dtype)dtype, e->most_bytes, err);
    if (code != 0)
        return code;
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    return ct_hub_write(path, &hub, err);
}

static int export_weights(struct export *e, const char *const places[2], struct ct_error *err)
{
    int code = ct_trained_open(&e->trained, places[0], e->config, e->average, err);

    if (code == 0)
        code = check_kind(&e->trained, err);
    if (code == 0)
        code = read_weights(e, err);
    if (code == 0)
        code = write_folder(e, places[1], err);
    if (code == 0)
        (void)printf("%s: %zu tensors of %s as %s\n", places[1], e->count, e->trained.weights,
                     e->stored);
    free(e->tensors);
    free(e->memory);
    ct_weights_files_close(&e->files);
    ct_trained_close(&e->trained);
    return code;
}

int ct_cmd_export(int argc, char **argv)
{
    struct export e = {.config = "", .stored = "f32", .most = ""};
    const struct ct_word words[] = {
        {"dtype", CT_WORD_TEXT, &e.stored, "how numbers are stored: f32, bf16, f16 (f32)"},
        {"max_shard_size", CT_WORD_TEXT, &e.most,
         "files of at most this size, as 5GB, and an index of them; else one file"},
        {"config", CT_WORD_TEXT, &e.config, "the configuration that the weights were trained by"},
        {"ema", CT_WORD_FLAG, &e.average, "the average of the weights (optim.ema)"},
        {"help", CT_WORD_FLAG, &e.help, "this"},
    };
    static const char usage[] =
        "usage: ctrun export RUN | CHECKPOINT | train.yaml FOLDER [OPTIONS]\n"
        "Write a trained GPT-2 as Hugging Face's transformers reads it.\n\n";
    struct ct_error err = {0};
    const char *places[2] = {NULL, NULL};
    int count = 0;
    int code = ct_words_read(words, CT_COUNT(words), argc - 1, argv + 1, places, 2, &count, &err);

    if (code == 0 && e.help) {
        (void)fputs(usage, stdout);
        ct_words_help(words, CT_COUNT(words), stdout);
        return 0;
    }
    if (code == 0 && count < 2)
        code = ct_error_set(&err, CT_EUSAGE,
                            "name a run, checkpoint or configuration, and the folder to write");
    if (code == 0 && e.most[0] != '\0' &&
        (ct_parse_bytes(e.most, &e.most_bytes) != 0 || e.most_bytes == 0))
        code = ct_error_set(&err, CT_EUSAGE, "--max_shard_size \"%.40s\": it is a size such as 5GB",
                            e.most);
    if (code == 0)
        code = export_weights(&e, places, &err);
    if (code != 0)
        (void)fprintf(stderr, "ctrun export: error: %s\n", err.text);
    return ct_exit_status(code);
}
