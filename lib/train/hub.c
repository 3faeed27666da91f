/* See hub.h. */
#include "train/hub.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/json.h"
#include "train/json_number.h"

#include <jansson.h>
#include <stddef.h>
#include <string.h>

enum { FILE_BYTES = 1 << 20 };

/* Sizes: written whole, and read; those with a default may be missing or null. */
static const struct {
    const char *key;
    size_t offset;
    bool needed;
} sizes[] = {
    {"vocab_size", offsetof(struct ct_hub_gpt2, vocabulary), true},
    {"n_positions", offsetof(struct ct_hub_gpt2, context), true},
    {"n_embd", offsetof(struct ct_hub_gpt2, width), true},
    {"n_layer", offsetof(struct ct_hub_gpt2, layers), true},
    {"n_head", offsetof(struct ct_hub_gpt2, heads), true},
    {"n_inner", offsetof(struct ct_hub_gpt2, inner), false},
};

/* Words and switches that mean what GPT-2 computes; what is missing means the first. */
static const struct {
    const char *key, *value, *also;
} words[] = {
    {"model_type", "gpt2", "gpt2"},
    {"activation_function", "gelu_new", "gelu_pytorch_tanh"},
};
static const char *const switches[] = {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
                                       "add_cross_attention"};

static int64_t *size_at(struct ct_hub_gpt2 *gpt2, size_t i)
{
    return (int64_t *)(void *)((char *)gpt2 + sizes[i].offset);
}

static int check_choices(const char *path, const json_t *root, struct ct_error *err)
{
    for (size_t i = 0; i < CT_COUNT(words); i++) {
        const char *text = json_string_value(json_object_get(root, words[i].key));

        if (text != NULL && strcmp(text, words[i].value) != 0 && strcmp(text, words[i].also) != 0)
            return ct_error_set(err, CT_EDATA, "%s: %s is \"%.40s\", GPT-2's is %s", path,
                                words[i].key, text, words[i].value);
    }
    for (size_t i = 0; i < CT_COUNT(switches); i++)
        if (json_is_true(json_object_get(root, switches[i])))
            return ct_error_set(err, CT_EDATA, "%s: %s is true: that is not GPT-2's attention",
                                path, switches[i]);
    return 0;
}

static int read_sizes(const char *path, const json_t *root, struct ct_hub_gpt2 *to,
                      struct ct_error *err)
{
    for (size_t i = 0; i < CT_COUNT(sizes); i++) {
        const json_t *value = json_object_get(root, sizes[i].key);

        if (!sizes[i].needed && (value == NULL || json_is_null(value)))
            continue;
        uint64_t size = 0;
        if (!ct_json_whole(value, &size) || size == 0)
            return ct_error_set(err, CT_EDATA, "%s: %s is not a number above 0", path,
                                sizes[i].key);
        *size_at(to, i) = (int64_t)size;
    }
    return 0;
}

static int parse(const char *path, const struct ct_buf *text, struct ct_hub_gpt2 *ret,
                 struct ct_error *err)
{
    struct ct_hub_gpt2 read = {.eps = 1e-5};
    json_error_t where;
    json_t *root = json_loadb(ct_buf_str(text), text->size, 0, &where);

    if (root == NULL || !json_is_object(root)) {
        json_decref(root);
        return ct_error_set(err, CT_EDATA, "%s: no JSON object: %s", path,
                            root == NULL ? where.text : "another value");
    }
    int code = check_choices(path, root, err);
    if (code == 0)
        code = read_sizes(path, root, &read, err);
    const json_t *eps = json_object_get(root, "layer_norm_epsilon");
    if (json_is_number(eps))
        read.eps = json_number_value(eps);
    read.untied = json_is_false(json_object_get(root, "tie_word_embeddings"));
    if (json_is_number(json_object_get(root, "resid_pdrop")))
        read.dropout = json_number_value(json_object_get(root, "resid_pdrop"));
    json_decref(root);
    if (code == 0)
        *ret = read;
    return code;
}

int ct_hub_read(const char *path, struct ct_hub_gpt2 *ret, struct ct_error *err)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    int code = ct_fs_read(path, FILE_BYTES, &text, err);
    if (code == 0)
        code = parse(path, &text, ret, err);
    ct_buf_deinit(&text);
    return code;
}

int ct_hub_write(const char *path, const struct ct_hub_gpt2 *gpt2, struct ct_error *err)
{
    static const char *const dropouts[] = {"embd_pdrop", "resid_pdrop"};
    struct ct_hub_gpt2 whole = *gpt2;
    struct ct_buf to;

    if (whole.inner == 0)
        whole.inner = 4 * whole.width;
    ct_buf_init(&to, 0);
    (void)ct_buf_puts(&to, "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n");
    for (size_t i = 0; i < CT_COUNT(words); i++)
        (void)ct_buf_printf(&to, "  \"%s\": \"%s\",\n", words[i].key, words[i].value);
    for (size_t i = 0; i < CT_COUNT(sizes); i++)
        (void)ct_buf_printf(&to, "  \"%s\": %lld,\n", sizes[i].key, (long long)*size_at(&whole, i));
    for (size_t i = 0; i < CT_COUNT(dropouts); i++) {
        (void)ct_buf_printf(&to, "  \"%s\": ", dropouts[i]);
        ct_json_number(&to, whole.dropout);
        (void)ct_buf_puts(&to, ",\n");
    }
    (void)ct_buf_puts(&to, "  \"attn_pdrop\": 0,\n  \"layer_norm_epsilon\": ");
    ct_json_number(&to, whole.eps);
    (void)ct_buf_printf(&to, ",\n  \"tie_word_embeddings\": %s\n}\n",
                        whole.untied ? "false" : "true");
    int code = to.failed ? ct_error_set(err, CT_ENOMEM, "out of memory for %s", path)
                         : ct_fs_replace(path, ct_buf_str(&to), to.size, err);
    ct_buf_deinit(&to);
    return code;
}
