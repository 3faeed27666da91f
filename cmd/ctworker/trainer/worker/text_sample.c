/* See text_sample.h. */
#include "text_sample.h"

#include "base/assert.h"
#include "decode/choose.h"
#include "decode/decode.h"
#include "recipe/recipe.h"
#include "worker.h"

#include <inttypes.h>
#include <string.h>

enum { ARENA_BYTES = 16 << 20 };

int ct_text_sample_prepare(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;

    if (cfg->log.sample == 0 || worker->text_sample.head.count > 0)
        return 0;
    CT_ASSERT(worker->train.tokenizer != NULL);
    int code = ct_tokenizer_prompt(worker->train.tokenizer, cfg->log.sample_prompt,
                                   &worker->text_sample.head, err);
    return code != 0 ? ct_error_prefix(err, "log.sample_prompt") : 0;
}

/* The model as it is trained, and what chooses among the tokens that have a text. */
static int make_decoder(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_text_sample *sample = &worker->text_sample;
    const struct ct_recipe_data data = {.width = (int64_t)worker->train.width,
                                        .classes = worker->train.classes};
    const struct ct_choice choice = {
        .temperature = 1, .top_p = 1, .seed = (uint64_t)worker->cfg->seed};
    const struct ct_cpu_options cpu = {.threads = 0};
    struct ct_model_spec spec;
    struct ct_arena arena;

    ct_arena_init(&arena, ARENA_BYTES);
    int code = ct_recipe_model(&spec, worker->cfg, &data, &arena, err);
    if (code == 0)
        code = ct_device_cpu_new(&cpu, &sample->device, err);
    if (code == 0)
        code = ct_decoder_new(&sample->decoder, &spec, sample->device, err);
    if (code == 0)
        code = ct_chooser_new(&sample->chooser, &choice, ct_tokenizer_size(worker->train.tokenizer),
                              err);
    ct_arena_deinit(&arena);
    return code;
}

static int find_tensor(const struct ct_plan *plan, const char *name)
{
    int i = 0;

    while (i < plan->param_count + plan->buffer_count && strcmp(plan->tensors[i].name, name) != 0)
        i++;
    return i;
}

/* The parameters, or with eval.ema their average. */
static int copy_weights(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_plan *plan = &worker->plan;
    struct ct_decoder *decoder = worker->text_sample.decoder;
    int code = 0;

    if (worker->cfg->eval.ema)
        ct_exec_swap_average(worker->exec);
    for (int i = 0; i < ct_decoder_params(decoder) && code == 0; i++) {
        const char *name;
        struct ct_tensor to = ct_decoder_param(decoder, i, &name);
        int from = find_tensor(plan, name);
        size_t bytes = ct_tensor_bytes(&to);

        if (from == plan->param_count + plan->buffer_count || plan->tensors[from].bytes != bytes)
            code = ct_error_set(err, CT_EUNSUPPORTED, "the plan has no tensor %s of %zu bytes",
                                name, bytes);
        else
            ct_exec_read(worker->exec, from, to.data);
    }
    if (worker->cfg->eval.ema)
        ct_exec_swap_average(worker->exec);
    return code;
}

/* Append the ids that follow those of `ids`. */
static int continue_text(struct ct_worker *worker, struct ct_token_list *ids, struct ct_error *err)
{
    struct ct_text_sample *sample = &worker->text_sample;
    size_t read = 0;
    int code = 0;

    ct_decoder_rewind(sample->decoder);
    for (int64_t made = 0; made < worker->cfg->log.sample && code == 0; made++) {
        int32_t next = 0;

        ct_job_at(worker->job, CT_AT_EVALUATE, worker->step);
        const float *logits = ct_decoder_follow(sample->decoder, ids->ids, ids->count, &read);
        code = ct_chooser_next(sample->chooser, logits, (uint64_t)made, &next, err);
        if (code == 0)
            code = ct_token_list_reserve(ids, 1, err);
        if (code != 0 || next == ct_tokenizer_end(worker->train.tokenizer))
            break;
        ids->ids[ids->count++] = next;
    }
    return code;
}

static int write_text(struct ct_worker *worker, struct ct_buf *text, struct ct_error *err)
{
    struct ct_text_sample *sample = &worker->text_sample;
    const struct ct_token_list *head = &sample->head;
    struct ct_token_list ids = {.count = 0};
    int code = sample->chooser == NULL ? make_decoder(worker, err) : 0;

    if (code == 0)
        code = copy_weights(worker, err);
    if (code == 0)
        code = ct_token_list_reserve(&ids, head->count, err);
    if (code == 0) {
        memcpy(ids.ids, head->ids, head->count * sizeof *head->ids);
        ids.count = head->count;
        code = continue_text(worker, &ids, err);
    }
    if (code == 0)
        code = ct_tokenizer_decode(worker->train.tokenizer, ids.ids + head->count,
                                   ids.count - head->count, text, err);
    ct_token_list_deinit(&ids);
    return code;
}

int ct_text_sample_write(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_error why = {0};
    struct ct_buf text;

    if (worker->cfg->log.sample == 0 || worker->me->rank != 0 || !worker->report.active)
        return 0;
    ct_buf_init(&text, 0);
    int code = write_text(worker, &text, &why);
    if (code == 0)
        code = ct_report_sample(worker, worker->cfg->log.sample_prompt, ct_buf_str(&text), err);
    else
        ct_log_event(worker->log, CT_LOG_WARN, "sample_failed",
                     "no text is written after step %" PRIu64 ": %s", worker->step, why.text);
    ct_buf_deinit(&text);
    return why.code != 0 ? 0 : code;
}

void ct_text_sample_deinit(struct ct_text_sample *sample)
{
    ct_chooser_free(sample->chooser);
    ct_decoder_free(sample->decoder);
    ct_device_free(sample->device);
    ct_token_list_deinit(&sample->head);
    *sample = (struct ct_text_sample){.decoder = NULL};
}
