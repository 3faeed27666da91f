/* See config_test.h. */
#include "config_test.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct loaded *load(const struct given *given)
{
    struct loaded *l = calloc(1, sizeof *l);
    struct ct_config_input in = {
        .argv = (char *const *)given->argv,
        .env = (char *const *)given->env,
        .yaml_path = given->path,
        .presets = given->presets,
        .preset_count = given->preset_count,
        .command_needed = given->command_needed,
        .file_only = given->file_only,
    };

    cr_assert_not_null(l);
    while (given->argv != NULL && given->argv[in.argc] != NULL)
        in.argc++;
    if (given->yaml != NULL) {
        in.yaml_text = given->yaml;
        in.yaml_size = strlen(given->yaml);
        in.yaml_path = given->name != NULL ? given->name : "a.yaml";
    }
    l->code = ct_config_load(&l->cfg, &in, &l->errs);
    ct_config_errors_write(&l->errs, "", &l->text);
    ct_config_notes_write(&l->errs, "note: ", &l->text);
    cr_assert_eq(l->code == 0, l->errs.count == 0);
    return l;
}

struct loaded *load_yaml(const char *text)
{
    return load(&(struct given){.yaml = text});
}

struct loaded *load_argv(const char *const *argv)
{
    return load(&(struct given){.argv = argv});
}

void unload(struct loaded *l)
{
    ct_config_deinit(&l->cfg);
    ct_buf_deinit(&l->text);
    free(l);
}

const char *complaints(const struct loaded *l)
{
    return ct_buf_str(&l->text);
}
