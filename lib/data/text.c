/* Sources of windows: a text through a tokenizer, and shards of ids. */
#include "base/assert.h"
#include "data/source.h"
#include "data/tokenizer.h"

#include <string.h>

/* ---- text ------------------------------------------------------------------------------------*/

static int make_gpt2(struct ct_tokenizer **ret, const char *merges, size_t limit_bytes,
                     struct ct_error *err)
{
    struct ct_stream stream;

    if (merges == NULL || merges[0] == '\0')
        return ct_error_set(err, CT_ECONFIG, "the tokenizer gpt2 needs merges: the file vocab.bpe");
    int code = ct_stream_open(&stream, merges, limit_bytes, err);
    if (code != 0)
        return code;
    code = ct_tokenizer_gpt2_new(ret, &stream, err);
    ct_stream_close(&stream);
    return code;
}

static int make_tokenizer(struct ct_tokenizer **ret, const struct ct_data_spec *spec,
                          const struct ct_buf *text, size_t limit_bytes, struct ct_error *err)
{
    const char *name = spec->tokenizer != NULL ? spec->tokenizer : "";

    if (strcmp(name, "byte") == 0)
        return ct_tokenizer_byte_new(ret, err);
    if (strcmp(name, "char") == 0)
        return ct_tokenizer_char_new(ret, ct_buf_str(text), text->size, err);
    if (strcmp(name, "gpt2") == 0)
        return make_gpt2(ret, spec->merges, limit_bytes, err);
    return ct_error_set(err, CT_ECONFIG,
                        "tokenizer \"%.32s\" is unknown; there are byte, char, gpt2", name);
}

static int encode(struct ct_dataset *ret, const struct ct_data_spec *spec,
                  const struct ct_buf *text, size_t limit_bytes, struct ct_error *err)
{
    struct ct_token_list ids = {0};
    int code =
        spec->shared != NULL ? 0 : make_tokenizer(&ret->tokenizer, spec, text, limit_bytes, err);
    const struct ct_tokenizer *tokenizer = spec->shared != NULL ? spec->shared : ret->tokenizer;

    if (code == 0)
        code = ct_tokenizer_encode(tokenizer, ct_buf_str(text), text->size, &ids, err);
    if (code == CT_EDATA)
        ct_error_prefix(err, "%s", spec->path);
    if (code == 0) {
        ret->classes = ct_tokenizer_size(tokenizer);
        code = ct_tokens_from_list(&ret->tokens, spec->path, &ids, spec->context, err);
    }
    ct_token_list_deinit(&ids);
    return code;
}

static int read_text(const struct ct_data_spec *spec, size_t limit_bytes, struct ct_buf *text,
                     struct ct_error *err)
{
    struct ct_stream stream;

    if (spec->path == NULL || spec->path[0] == '\0')
        return ct_error_set(err, CT_ECONFIG, "text data needs a path");
    int code = ct_stream_open(&stream, spec->path, limit_bytes, err);
    if (code != 0)
        return code;
    code = ct_stream_read_all(&stream, text, err);
    ct_stream_close(&stream);
    return code;
}

static int load_text(struct ct_dataset *ret, const struct ct_data_spec *spec, size_t limit_bytes,
                     struct ct_error *err)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    int code = read_text(spec, limit_bytes, &text, err);
    if (code == 0)
        code = encode(ret, spec, &text, limit_bytes, err);
    ct_buf_deinit(&text);
    return code;
}

int ct_dataset_tokenizer(struct ct_tokenizer **ret, const struct ct_data_spec *spec,
                         struct ct_error *err)
{
    bool reads = spec->tokenizer != NULL && strcmp(spec->tokenizer, "char") == 0;
    size_t limit = spec->limit_bytes != 0 ? spec->limit_bytes : CT_DATA_LIMIT_BYTES;
    struct ct_buf text;

    ct_buf_init(&text, 0);
    int code = reads ? read_text(spec, limit, &text, err) : 0;
    if (code == 0)
        code = make_tokenizer(ret, spec, &text, limit, err);
    ct_buf_deinit(&text);
    return code;
}

const struct ct_token_source ct_source_text = {.name = "text", .load = load_text};

/* ---- shards ----------------------------------------------------------------------------------*/

static int load_tokens(struct ct_dataset *ret, const struct ct_data_spec *spec, size_t limit_bytes,
                       struct ct_error *err)
{
    (void)limit_bytes; /* of memory: files are mapped */
    if (spec->path == NULL || spec->path[0] == '\0')
        return ct_error_set(err, CT_ECONFIG, "token data needs a path");
    if (spec->classes <= 0)
        return ct_error_set(
            err, CT_ECONFIG,
            "token data needs a model with a vocabulary: files do not tell its size");
    ret->classes = spec->classes;
    return ct_tokens_open(&ret->tokens, spec->path, spec->ids, spec->context, err);
}

const struct ct_token_source ct_source_tokens = {.name = "tokens", .load = load_tokens};
