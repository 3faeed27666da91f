/* ctrun export: the weights of a trained GPT-2 as Hugging Face's `transformers` reads them.
 *
 *     ctrun export runs/novel gpt2-novel      gpt2-novel/model.safetensors, gpt2-novel/config.json
 *     python3 -c 'GPT2LMHeadModel.from_pretrained("gpt2-novel")' */
#include "cmd/ctrun/cli/commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "cmd/ctrun/cli/cli_options.h"
#include "data/dataset.h"
#include "train/checkpoint/weights.h"
#include "train/checkpoint/weights_files.h"
#include "train/hub.h"
#include "trained.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct export
{
    struct ct_trained_choice which;
    const char *stored;
    bool force;
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

/* The characters in the order of their ids, for `ctrun sample FOLDER`. The training text tells
 * them: where it is not there any more, the weights are exported without. */
static int write_characters(const struct export *e, const char *folder, struct ct_error *err)
{
    const struct ct_config_source *source = &e->trained.cfg.data.train;
    struct ct_data_spec spec = {.path = source->path, .tokenizer = "char"};
    struct ct_tokenizer *tokenizer = NULL;
    struct ct_error why = {0};
    struct ct_buf text;
    char path[PATH_MAX];
    int code = 0;

    if (e->trained.hub || source->tokenizer != CT_CONFIG_TOKENIZER_CHAR ||
        source->format != CT_CONFIG_FORMAT_TEXT)
        return 0;
    if (ct_dataset_tokenizer(&tokenizer, &spec, &why) != 0) {
        (void)ct_error_prefix(&why, "exported without its characters");
        ct_command_warn("ctrun export", why.text);
        return 0;
    }
    ct_buf_init(&text, 0);
    for (int32_t id = 0; id < ct_tokenizer_size(tokenizer) && code == 0; id++)
        code = ct_tokenizer_decode(tokenizer, &id, 1, &text, err);
    ct_tokenizer_free(tokenizer);
    if (code == 0 &&
        snprintf(path, sizeof path, "%s/%s", folder, CT_TRAINED_CHARACTERS) < (int)sizeof path)
        code = ct_fs_replace(path, ct_buf_str(&text), text.size, err);
    ct_buf_deinit(&text);
    return code;
}

/* Does the folder hold an export, or anything else? */
static bool is_filled(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool filled = false;

    while (dir != NULL && !filled && (entry = readdir(dir)) != NULL)
        filled = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (dir != NULL)
        (void)closedir(dir);
    return filled;
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
    if (code == 0)
        code = write_characters(e, folder, err);
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
    if (!e->force && is_filled(places[1]))
        return ct_error_set(err, CT_ECANTCREAT, "%s is not empty; --force overwrites what is there",
                            places[1]);
    int code = ct_trained_open(&e->trained, places[0], &e->which, err);

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
    struct export e = {.which = {.config = ""}, .stored = "f32"};
    const struct ct_option options[] = {
        {"dtype", CT_OPTION_TEXT, &e.stored},
        {"max_shard_size", CT_OPTION_BYTES, &e.most_bytes},
        {"config", CT_OPTION_TEXT, &e.which.config},
        {"ema", CT_OPTION_FLAG, &e.which.average},
        {"best", CT_OPTION_FLAG, &e.which.best},
        {"force", CT_OPTION_FLAG, &e.force},
    };
    struct ct_error err = {0};
    const char *places[2] = {NULL, NULL};
    struct ct_cli_options cli = {.command = "export",
                                 .options = options,
                                 .option_count = CT_COUNT(options),
                                 .places = places,
                                 .room = 2};
    int code = ct_cli_options_read(&cli, argc - 1, argv + 1, &err);

    if (code == 0 && cli.count < 2)
        code = ct_error_set(&err, CT_EUSAGE,
                            "name a run, checkpoint or configuration, and the folder to write");
    if (code == 0)
        code = export_weights(&e, places, &err);
    return code == 0 ? 0 : ct_command_fail("ctrun export", code, err.text);
}
