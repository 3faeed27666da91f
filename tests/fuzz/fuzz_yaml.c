/* Fuzz: any bytes as a YAML file.
 *
 * Whatever comes in, each complaint is one line of text; and what loads is printed as a file that
 * loads again, to the same values. */
#include "base/assert.h"
#include "config/config.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int load(struct ct_config *cfg, struct ct_config_errors *errs, const char *text, size_t size)
{
    struct ct_config_input in = {.yaml_path = "a.yaml", .yaml_text = text, .yaml_size = size};

    memset(errs, 0, sizeof *errs);
    return ct_config_load(cfg, &in, errs);
}

static void check_lines(const struct ct_config_errors *errs)
{
    for (size_t i = 0; i < errs->count; i++) {
        CT_ASSERT(strncmp(errs->at[i].text, "a.yaml:", 7) == 0);
        for (const char *at = errs->at[i].text; *at != '\0'; at++)
            CT_ASSERT((unsigned char)*at >= 0x20 && *at != 0x7f);
    }
}

static void check_printed(const struct ct_config *cfg)
{
    static struct ct_config_errors errs;
    struct ct_config again;
    struct ct_buf first = {0}, second = {0};

    ct_config_print(cfg, NULL, &first);
    CT_ASSERT(load(&again, &errs, first.data, first.size) == 0);
    CT_ASSERT(ct_config_hash(cfg) == ct_config_hash(&again));
    CT_ASSERT(strcmp(cfg->checkpoint.dir, again.checkpoint.dir) == 0);
    CT_ASSERT(strcmp(cfg->data.train.path, again.data.train.path) == 0);
    ct_config_print(&again, NULL, &second);
    CT_ASSERT(!second.failed && second.size > 0);
    ct_config_deinit(&again);
    ct_buf_deinit(&first);
    ct_buf_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ct_config_errors errs;
    struct ct_config cfg;

    if (load(&cfg, &errs, (const char *)data, size) == 0)
        check_printed(&cfg);
    check_lines(&errs);
    ct_config_deinit(&cfg);
    return 0;
}
