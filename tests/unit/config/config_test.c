/* See config_test.h. */
#include "config_test.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* The errors and notes, a line each. */
static void write_errors(const struct ct_config_errors *errs, struct ct_buf *to)
{
    for (size_t i = 0; i < errs->count; i++)
        (void)ct_buf_printf(to, "%s\n", errs->at[i].text);
    if (errs->dropped > 0)
        (void)ct_buf_printf(to, "and %zu more\n", errs->dropped);
    for (size_t i = 0; i < errs->note_count; i++)
        (void)ct_buf_printf(to, "note: %s\n", errs->notes[i].text);
}

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
    write_errors(&l->errs, &l->text);
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
