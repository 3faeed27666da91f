/* config.json of GPT-2: what is read, what is written, what is refused. */
#include "train/hub.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "folder.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(hub, .init = folder_make, .fini = folder_remove, .timeout = 20);

/* What the hub's gpt2 says, shortened. */
static const char published[] =
    "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"],\n"
    " \"bos_token_id\": 50256, \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\",\n"
    " \"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_inner\": null,\n"
    " \"n_positions\": 1024, \"resid_pdrop\": 0.1, \"vocab_size\": 50257,\n"
    " \"task_specific_params\": {\"text-generation\": {\"do_sample\": true}}}\n";

Test(hub, the_published_configuration_is_read)
{
    const char *path = folder_path("config.json");
    struct ct_hub_gpt2 hub;
    struct ct_error err = {0};

    folder_write(path, published, strlen(published));
    cr_assert_eq(ct_hub_read(path, &hub, &err), 0, "%s", err.text);
    cr_assert_eq(hub.vocabulary, 50257);
    cr_assert_eq(hub.context, 1024);
    cr_assert_eq(hub.width, 768);
    cr_assert_eq(hub.layers, 12);
    cr_assert_eq(hub.heads, 12);
    cr_assert_eq(hub.inner, 0, "4 * width");
    cr_assert_eq(hub.eps, 1e-5);
    cr_assert_eq(hub.dropout, 0.1);
    cr_assert_not(hub.untied);
}

Test(hub, what_is_written_reads_back)
{
    const struct ct_hub_gpt2 all = {.vocabulary = 17,
                                    .context = 12,
                                    .width = 8,
                                    .layers = 2,
                                    .heads = 2,
                                    .inner = 20,
                                    .eps = 1e-6,
                                    .dropout = 0.25,
                                    .untied = true};
    const char *path = folder_path("config.json");
    struct ct_hub_gpt2 back;

    memset(&back, 0, sizeof back);
    cr_assert_eq(ct_hub_write(path, &all, NULL), 0);
    cr_assert_eq(ct_hub_read(path, &back, NULL), 0);
    cr_assert(back.vocabulary == 17 && back.context == 12 && back.width == 8 && back.layers == 2);
    cr_assert(back.heads == 2 && back.inner == 20 && back.untied);
    cr_assert(back.eps == 1e-6 && back.dropout == 0.25);
}

Test(hub, what_computes_something_else_is_refused)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"{\"model_type\": \"llama\"}", "model_type is \"llama\", GPT-2's is gpt2"},
        {"{\"activation_function\": \"relu\"}", "activation_function is \"relu\""},
        {"{\"scale_attn_by_inverse_layer_idx\": true}", "that is not GPT-2's attention"},
        {"{\"vocab_size\": 0}", "vocab_size is not a number above 0"},
        {"{\"vocab_size\": 5, \"n_positions\": \"x\"}", "n_positions is not a number above 0"},
        {"[1]", "no JSON object"},
        {"{", "no JSON object"},
    };
    const char *path = folder_path("config.json");
    struct ct_hub_gpt2 hub = {.heads = 77};
    struct ct_error err = {0};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        folder_write(path, rows[i].text, strlen(rows[i].text));
        cr_assert_eq(ct_hub_read(path, &hub, &err), CT_EDATA, "%s", rows[i].text);
        cr_expect(strstr(err.text, rows[i].expected) != NULL, "%s: %s", rows[i].expected, err.text);
    }
    cr_assert_eq(ct_hub_read("no/such", &hub, &err), CT_ENOINPUT);
    cr_assert_eq(hub.heads, 77, "untouched");
}
