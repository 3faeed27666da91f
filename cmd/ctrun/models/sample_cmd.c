/* ctrun sample: text from a trained GPT.
 *
 *     prompt --tokenizer--> ids --decoder--> logits --chooser--> id --tokenizer--> stdout, at once
 *                            ^                                    |
 *                            '------------------------------------'
 *
 * When the model's context is full, the later half of the text is read anew and the text goes on.
 * Several prompts, and several texts of each, follow one another, with a line between them.
 * SIGINT and SIGTERM end it after the token at hand. */
#include "cmd/ctrun/cli/commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "cmd/ctrun/cli/cli_options.h"
#include "data/dataset.h"
#include "decode/choose.h"
#include "decode/decode.h"
#include "train/checkpoint/weights.h"
#include "trained.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sample {
    /* What was asked for. */
    struct ct_option_texts prompts;
    struct ct_trained_choice which;
    const char *merges;
    int64_t tokens, count, seed;
    struct ct_choice choice;

    struct ct_trained trained;
    struct ct_tokenizer *tokenizer;
    struct ct_device *device;
    struct ct_decoder *decoder;
    struct ct_chooser *chooser;
    struct ct_token_list *heads; /* of each prompt */
    struct ct_token_list ids;    /* prompt and text */
    struct ct_buf pending;       /* bytes of a character that is not whole yet */
};

static volatile sig_atomic_t stopped_by;

static void on_stop(int signo)
{
    stopped_by = signo;
}

/* ---- tokens -----------------------------------------------------------------------------------*/

/* The tokenizer of the training text, or GPT-2's where the training read ids. */
static int make_tokenizer(struct sample *s, struct ct_error *err)
{
    const struct ct_config *cfg = &s->trained.cfg;
    const struct ct_config_source *source = &cfg->data.train;
    struct ct_data_spec spec = {.tokenizer = "gpt2",
                                .merges = s->merges[0] != '\0' ? s->merges : s->trained.merges};

    if (spec.merges[0] == '\0' && s->trained.characters[0] != '\0')
        spec = (struct ct_data_spec){.path = s->trained.characters, .tokenizer = "char"};
    else if (spec.merges[0] == '\0' && !s->trained.hub &&
             strcmp(ct_config_word(cfg, &source->format), "text") == 0)
        spec = (struct ct_data_spec){.path = source->path,
                                     .tokenizer = ct_config_word(cfg, &source->tokenizer),
                                     .merges = source->merges};
    else if (spec.merges[0] == '\0')
        return ct_error_set(err, CT_EUSAGE,
                            "the model was trained on ids of tokens: name GPT-2's vocab.bpe with "
                            "--merges to have them as text");
    return ct_dataset_tokenizer(&s->tokenizer, &spec, err);
}

static int encode_prompt(struct sample *s, const char *prompt, struct ct_token_list *to,
                         struct ct_error *err)
{
    int code = ct_tokenizer_prompt(s->tokenizer, prompt, to, err);

    return code != 0 ? ct_error_prefix(err, "--prompt") : 0;
}

/* All of them before the first text. */
static int encode_prompts(struct sample *s, struct ct_error *err)
{
    int code = 0;

    s->heads = calloc((size_t)s->prompts.count, sizeof *s->heads);
    if (s->heads == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d prompts", s->prompts.count);
    for (int i = 0; i < s->prompts.count && code == 0; i++)
        code = encode_prompt(s, s->prompts.at[i], &s->heads[i], err);
    return code;
}

/* ---- the model --------------------------------------------------------------------------------*/

static int load_weights(struct sample *s, struct ct_error *err)
{
    int count = ct_decoder_params(s->decoder);
    struct ct_st_tensor *tensors = calloc((size_t)count, sizeof *tensors);

    if (tensors == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d tensors", count);
    for (int i = 0; i < count; i++) {
        const char *name;
        struct ct_tensor to = ct_decoder_param(s->decoder, i, &name);

        tensors[i] = (struct ct_st_tensor){
            .name = name, .dtype = to.dtype, .dims = (uint32_t)to.shape.dims, .data = to.data};
        for (int k = 0; k < to.shape.dims; k++)
            tensors[i].shape[k] = (uint64_t)to.shape.dim[k];
    }
    int code = ct_weights_load(s->trained.weights, tensors, (size_t)count, err);
    free(tensors);
    return code;
}

static int prepare(struct sample *s, const char *path, struct ct_error *err)
{
    const char *set = getenv("OMP_NUM_THREADS");
    struct ct_cpu_options cpu = {
        .threads = set != NULL ? 0 : (int)CT_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1)};
    struct ct_gpt_spec *gpt = &s->trained.spec.gpt;
    int code = ct_trained_open(&s->trained, path, &s->which, err);

    if (code == 0)
        code = make_tokenizer(s, err);
    if (code == 0)
        code = encode_prompts(s, err);
    if (code != 0)
        return code;
    int32_t tokens = ct_tokenizer_size(s->tokenizer);
    if (gpt->vocabulary == 0)
        gpt->vocabulary = tokens;
    if (gpt->vocabulary < tokens)
        return ct_error_set(err, CT_ECONFIG,
                            "the model knows %lld tokens, the tokenizer has %d: it is another one",
                            (long long)gpt->vocabulary, tokens);
    code = ct_device_cpu_new(&cpu, &s->device, err);
    if (code == 0)
        code = ct_decoder_new(&s->decoder, &s->trained.spec, s->device, err);
    if (code == 0)
        code = load_weights(s, err);
    if (code == 0) /* a vocabulary may be padded: what has no text is never chosen */
        code = ct_chooser_new(&s->chooser, &s->choice, tokens, err);
    return code;
}

static void release(struct sample *s)
{
    ct_chooser_free(s->chooser);
    ct_decoder_free(s->decoder);
    ct_device_free(s->device);
    ct_tokenizer_free(s->tokenizer);
    for (int i = 0; s->heads != NULL && i < s->prompts.count; i++)
        ct_token_list_deinit(&s->heads[i]);
    free(s->heads);
    ct_token_list_deinit(&s->ids);
    ct_buf_deinit(&s->pending);
    ct_trained_close(&s->trained);
}

/* ---- writing ----------------------------------------------------------------------------------*/

/* Bytes at the end of `text` that begin a character and do not end it. */
static size_t unfinished(const char *text, size_t size)
{
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char byte = (unsigned char)text[size - back];
        size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;

        if (byte < 0x80)
            return 0;
        if (byte >= 0xC0)
            return length > back ? back : 0;
    }
    return 0;
}

static int put_bytes(const char *bytes, size_t size, struct ct_error *err)
{
    int code = ct_fs_write_all(STDOUT_FILENO, bytes, size);

    return code == 0 ? 0
                     : ct_error_set(err, code == -EPIPE ? -EPIPE : CT_EIO, "standard output: %s",
                                    ct_strerror(code));
}

/* Write the text of tokens; of characters, whole ones unless it is the last of all. */
static int put(struct sample *s, const int32_t *ids, size_t count, bool last, struct ct_error *err)
{
    int code = ct_tokenizer_decode(s->tokenizer, ids, count, &s->pending, err);

    if (code != 0)
        return code;
    size_t ready = s->pending.size - (last ? 0 : unfinished(s->pending.data, s->pending.size));
    code = put_bytes(s->pending.data, ready, err);
    if (code == 0)
        ct_buf_consume(&s->pending, ready);
    return code;
}

/* ---- the text ---------------------------------------------------------------------------------*/

/* Text number `number` of all: the head, whose text is `prompt`, and what follows it. Each draws
 * its own chances. */
static int generate(struct sample *s, const char *prompt, const struct ct_token_list *head,
                    uint64_t number, struct ct_error *err)
{
    size_t read = 0;

    s->ids.count = 0;
    int code = ct_token_list_reserve(&s->ids, head->count, err);
    if (code != 0)
        return code;
    memcpy(s->ids.ids, head->ids, head->count * sizeof *head->ids);
    s->ids.count = head->count;
    ct_decoder_rewind(s->decoder);
    code = put(s, s->ids.ids, prompt[0] != '\0' ? head->count : 0, false, err);
    for (int64_t made = 0; made < s->tokens && code == 0 && stopped_by == 0; made++) {
        const float *logits = ct_decoder_follow(s->decoder, s->ids.ids, s->ids.count, &read);
        int32_t next = 0;

        code = ct_chooser_next(s->chooser, logits, (number << 40) + (uint64_t)made, &next, err);
        if (code == 0)
            code = ct_token_list_reserve(&s->ids, 1, err);
        if (code != 0 || next == ct_tokenizer_end(s->tokenizer))
            break;
        s->ids.ids[s->ids.count++] = next;
        code = put(s, &next, 1, false, err);
    }
    return code == 0 ? put(s, NULL, 0, true, err) : code;
}

static int generate_all(struct sample *s, struct ct_error *err)
{
    uint64_t number = 0;
    int code = 0;

    for (int i = 0; i < s->prompts.count; i++)
        for (int64_t k = 0; k < s->count && code == 0 && stopped_by == 0; k++, number++) {
            code = number > 0 ? put_bytes("----\n", 5, err) : 0;
            if (code == 0)
                code = generate(s, s->prompts.at[i], &s->heads[i], number, err);
            if (code == 0)
                code = put_bytes("\n", 1, err);
        }
    return code;
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_stop};

    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

int ct_cmd_sample(int argc, char **argv)
{
    struct sample s = {.which = {.config = ""},
                       .merges = "",
                       .tokens = 200,
                       .count = 1,
                       .seed = 1,
                       .choice = {.temperature = 1, .top_p = 1}};
    const struct ct_option options[] = {
        {"prompt", CT_OPTION_TEXTS, &s.prompts},
        {"count", CT_OPTION_NUMBER, &s.count},
        {"tokens", CT_OPTION_NUMBER, &s.tokens},
        {"temperature", CT_OPTION_REAL, &s.choice.temperature},
        {"top_k", CT_OPTION_NUMBER, &s.choice.top_k},
        {"top_p", CT_OPTION_REAL, &s.choice.top_p},
        {"seed", CT_OPTION_NUMBER, &s.seed},
        {"config", CT_OPTION_TEXT, &s.which.config},
        {"merges", CT_OPTION_TEXT, &s.merges},
        {"ema", CT_OPTION_FLAG, &s.which.average},
        {"best", CT_OPTION_FLAG, &s.which.best},
    };
    struct ct_error err = {0};
    const char *path = NULL;
    struct ct_cli_options cli = {.command = "sample",
                                 .options = options,
                                 .option_count = CT_COUNT(options),
                                 .places = &path,
                                 .room = 1};
    int code = ct_cli_options_read(&cli, argc - 1, argv + 1, &err);

    if (code == 0 && cli.count == 0)
        code = ct_error_set(&err, CT_EUSAGE,
                            "name a run's folder, a checkpoint or a configuration (sample --help)");
    if (code == 0 && s.tokens < 0)
        code = ct_error_set(&err, CT_EUSAGE, "--tokens %lld: it is 0 or more", (long long)s.tokens);
    if (code == 0 && (s.count < 1 || s.count > 1 << 16))
        code = ct_error_set(&err, CT_EUSAGE, "--count %lld: it is 1 or more", (long long)s.count);
    if (s.prompts.count == 0)
        s.prompts = (struct ct_option_texts){.at = {""}, .count = 1};
    s.choice.seed = (uint64_t)s.seed;
    ct_buf_init(&s.pending, 0);
    watch_signals();
    if (code == 0)
        code = prepare(&s, path, &err);
    if (code == 0)
        ct_command_note("sampling from %s", s.trained.weights);
    if (code == 0)
        code = generate_all(&s, &err);
    release(&s);
    if (code == -EPIPE)
        return 128 + SIGPIPE;
    if (code != 0)
        return ct_command_fail("ctrun sample", code, err.text);
    return stopped_by != 0 ? 128 + stopped_by : 0;
}
