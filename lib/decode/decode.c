/* See decode.h. */
#include "decode/decode.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* The program for so many tokens at a time, bound to memory. */
struct pass {
    struct ct_model model;
    int64_t tokens;
    struct ct_kernel_args *args; /* of each op */
    size_t *offset;              /* of each root in the arena */
    char *arena;                 /* the decoder's */
};

enum { PASS_PREFILL, PASS_TOKEN, PASSES };

struct ct_decoder {
    struct ct_device *device;
    struct pass passes[PASSES];
    void *arena;
    size_t arena_bytes;
    int64_t context, place;
};

/* ---- memory --------------------------------------------------------------------------------- */

/* Weights and caches are the same in both lanes, in the same order. */
static bool is_shared(const struct ct_value *value)
{
    return value->kind == CT_VALUE_PARAM || value->kind == CT_VALUE_STATE;
}

static size_t aligned(size_t bytes)
{
    return (bytes + CT_DEVICE_ALIGN - 1) / CT_DEVICE_ALIGN * CT_DEVICE_ALIGN;
}

/* Give a lane's roots their places: shared ones from 0 on, the others from `own`; returns the end.
 */
static size_t place_pass(struct pass *pass, size_t own)
{
    const struct ct_program *program = &pass->model.program;
    size_t shared = 0;

    for (int i = 0; i < program->value_count; i++) {
        const struct ct_value *value = &program->values[i];
        size_t *at = is_shared(value) ? &shared : &own;

        if (value->root != i)
            continue;
        pass->offset[i] = *at;
        *at += aligned(value->bytes);
    }
    return CT_MAX(own, shared);
}

static size_t shared_bytes(const struct ct_program *program)
{
    size_t bytes = 0;

    for (int i = 0; i < program->value_count; i++)
        if (program->values[i].root == i && is_shared(&program->values[i]))
            bytes += aligned(program->values[i].bytes);
    return bytes;
}

static struct ct_tensor tensor_of(const struct pass *pass, int number)
{
    if (number == CT_NONE)
        return (struct ct_tensor){.data = NULL};
    const struct ct_value *value = &pass->model.program.values[number];
    return (struct ct_tensor){value->dtype, value->shape,
                              pass->arena + pass->offset[value->root] + value->offset_bytes};
}

/* Where a value that exists lies. */
static void *memory_of(const struct pass *pass, int number)
{
    struct ct_tensor tensor = tensor_of(pass, number);

    CT_ASSERT(tensor.data != NULL);
    return tensor.data;
}

static int bind_pass(struct ct_decoder *decoder, struct pass *pass, struct ct_error *err)
{
    const struct ct_program *program = &pass->model.program;

    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        struct ct_kernel_args *args = &pass->args[i];

        if (!ct_device_has(decoder->device, (enum ct_op_kind)op->kind, op->dtype))
            return ct_error_set(err, CT_EUNSUPPORTED, "the device has no %s of %s",
                                ct_rule_info(op->kind)->name, ct_dtype_name(op->dtype));
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            args->in[k] = tensor_of(pass, op->in[k]);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            args->out[k] = tensor_of(pass, op->out[k]);
        args->attr = op->attr;
        int code = ct_op_check((enum ct_op_kind)op->kind, op->dtype, args, err);
        if (code != 0)
            return code;
    }
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

static bool freeze_all(const void *names, const char *name)
{
    (void)names;
    (void)name;
    return true;
}

static int build_pass(struct pass *pass, const struct ct_model_spec *spec, int64_t tokens,
                      struct ct_error *err)
{
    struct ct_model_spec own = *spec;

    own.decoding = true;
    own.gpt.sequence = tokens;
    own.frozen = freeze_all; /* no gradients */
    int code = ct_model_build(&pass->model, &own, 1, err);
    if (code != 0)
        return code;
    pass->tokens = tokens;
    pass->args = calloc((size_t)pass->model.program.op_count, sizeof *pass->args);
    pass->offset = calloc((size_t)pass->model.program.value_count, sizeof *pass->offset);
    if (pass->args == NULL || pass->offset == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a decoder");
    return 0;
}

static int make(struct ct_decoder *decoder, const struct ct_model_spec *spec, struct ct_error *err)
{
    int64_t stretch = CT_MIN(CT_DECODE_STRETCH, CT_MAX(spec->gpt.context, 1));
    int code = build_pass(&decoder->passes[PASS_PREFILL], spec, stretch, err);

    if (code == 0)
        code = build_pass(&decoder->passes[PASS_TOKEN], spec, 1, err);
    if (code != 0)
        return code;
    size_t end = shared_bytes(&decoder->passes[0].model.program);
    CT_ASSERT(shared_bytes(&decoder->passes[1].model.program) == end);
    for (int i = 0; i < PASSES; i++)
        end = place_pass(&decoder->passes[i], end);
    code = ct_device_alloc(decoder->device, end, &decoder->arena, err);
    if (code != 0)
        return code;
    decoder->arena_bytes = end;
    for (int i = 0; i < PASSES && code == 0; i++) {
        decoder->passes[i].arena = decoder->arena;
        code = bind_pass(decoder, &decoder->passes[i], err);
    }
    return code;
}

int ct_decoder_new(struct ct_decoder **ret, const struct ct_model_spec *spec,
                   struct ct_device *device, struct ct_error *err)
{
    struct ct_decoder *decoder = calloc(1, sizeof *decoder);

    CT_ASSERT(device->table->on_host);
    if (decoder == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a decoder");
    decoder->device = device;
    decoder->context = spec->gpt.context;
    int code = make(decoder, spec, err);
    if (code != 0)
        ct_decoder_free(decoder);
    else
        *ret = decoder;
    return code;
}

void ct_decoder_free(struct ct_decoder *decoder)
{
    if (decoder == NULL)
        return;
    ct_device_release(decoder->device, decoder->arena, decoder->arena_bytes);
    for (int i = 0; i < PASSES; i++) {
        ct_model_deinit(&decoder->passes[i].model);
        free(decoder->passes[i].args);
        free(decoder->passes[i].offset);
    }
    free(decoder);
}

/* ---- weights ---------------------------------------------------------------------------------*/

int ct_decoder_params(const struct ct_decoder *decoder)
{
    return decoder->passes[0].model.param_count;
}

struct ct_tensor ct_decoder_param(const struct ct_decoder *decoder, int i, const char **ret_name)
{
    const struct pass *pass = &decoder->passes[0];

    CT_ASSERT(i >= 0 && i < pass->model.param_count);
    int value = pass->model.params[i].value;
    *ret_name = pass->model.program.values[value].name;
    return tensor_of(pass, value);
}

/* ---- use -------------------------------------------------------------------------------------*/

int64_t ct_decoder_context(const struct ct_decoder *decoder)
{
    return decoder->context;
}

int64_t ct_decoder_place(const struct ct_decoder *decoder)
{
    return decoder->place;
}

int64_t ct_decoder_vocabulary(const struct ct_decoder *decoder)
{
    const struct ct_model *model = &decoder->passes[0].model;

    return ct_shape_columns(model->program.values[model->logits].shape);
}

const void *ct_decoder_follow(struct ct_decoder *decoder, const int32_t *ids, size_t count,
                              size_t *read)
{
    size_t context = (size_t)ct_decoder_context(decoder);
    size_t place = (size_t)ct_decoder_place(decoder);
    size_t from = *read;

    if (place + (count - from) > context) {
        ct_decoder_rewind(decoder);
        from = count - CT_MIN(count, place == 0 ? context : (context + 1) / 2);
    }
    *read = count;
    return ct_decoder_read(decoder, ids + from, count - from);
}

void ct_decoder_rewind(struct ct_decoder *decoder)
{
    decoder->place = 0;
}

/* The lane's tokens, from the decoder's place on; their logits [tokens, vocabulary]. */
static const char *run(struct ct_decoder *decoder, const struct pass *pass, const int32_t *ids)
{
    const struct ct_program *program = &pass->model.program;
    int32_t *x = memory_of(pass, pass->model.x);
    int32_t *places = memory_of(pass, pass->model.places);

    for (int64_t i = 0; i < pass->tokens; i++) {
        CT_ASSERT(ids[i] >= 0 && ids[i] < ct_decoder_vocabulary(decoder));
        x[i] = ids[i];
        places[i] = (int32_t)(decoder->place + i);
    }
    for (int i = 0; i < program->op_count; i++)
        ct_device_run(decoder->device, (enum ct_op_kind)program->ops[i].kind, program->ops[i].dtype,
                      &pass->args[i]);
    decoder->place += pass->tokens;
    return memory_of(pass, pass->model.logits);
}

const void *ct_decoder_read(struct ct_decoder *decoder, const int32_t *ids, size_t count)
{
    const struct pass *pass;
    const char *logits;
    size_t at = 0;

    CT_ASSERT(count > 0 && (int64_t)count <= decoder->context - decoder->place);
    do {
        bool room = count - at >= (size_t)decoder->passes[PASS_PREFILL].tokens;

        pass = &decoder->passes[room ? PASS_PREFILL : PASS_TOKEN];
        logits = run(decoder, pass, ids + at);
        at += (size_t)pass->tokens;
    } while (at < count);
    struct ct_tensor all = tensor_of(pass, pass->model.logits);
    return logits + ct_tensor_bytes(&all) / (size_t)pass->tokens * (size_t)(pass->tokens - 1);
}
