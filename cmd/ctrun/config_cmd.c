/* ctrun config FILE [options]: check a configuration and print it with the origin of each value.
 * ctrun config --schema | --man | --completion SHELL: what config.def says, in other forms. */
#include "base/str.h"
#include "cli/commands.h"
#include "config/config.h"
#include "recipe/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Write the buffer and free it. Returns `status`, or the status of an output error; main() writes
 * what is still in the stream. */
static int finish(struct ct_buf *text, int status)
{
    bool written = !text->failed && fputs(ct_buf_str(text), stdout) >= 0;

    ct_buf_deinit(text);
    return written ? status : ct_exit_status(CT_EIO);
}

static int fail(int code, const char *sentence)
{
    return ct_command_fail("ctrun", code, sentence);
}

static int print_config(int argc, char **argv)
{
    struct ct_config cfg;
    struct ct_config_input in = {
        .argc = argc, .argv = argv, .env = environ, .command_needed = true, .file_only = true};
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    struct ct_error err = {0};
    struct ct_buf text;
    int status;

    if (errs == NULL)
        return fail(CT_ENOMEM, "out of memory");
    int code = ct_config_load(&cfg, &in, errs);
    if (code == 0)
        code = ct_recipe_check(&cfg, &err);
    char *here = getcwd(NULL, 0);
    ct_buf_init(&text, 0);
    if (code == 0)
        ct_config_print(&cfg, here, &text);
    if (err.code != 0) {
        status = fail(code, err.text);
    } else {
        ct_complain(errs, false);
        status = ct_exit_status(code);
    }
    status = finish(&text, status);
    free(here);
    free(errs);
    ct_config_deinit(&cfg);
    return status;
}

static int print_completion(const char *shell)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    if (shell != NULL && ct_command_completion(shell, &text) == 0)
        return finish(&text, 0);
    ct_buf_deinit(&text);
    return fail(CT_EUSAGE, "--completion wants bash or zsh");
}

int ct_cmd_config(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";
    struct ct_error err = {0};
    struct ct_buf text;

    if (ct_starts_with(first, "--") && ct_command_option_find("config", first + 2) == NULL &&
        ct_config_option_width(first, NULL) == 0)
        return fail(ct_command_unknown("config", first, &err), err.text);
    if (strcmp(first, "--completion") == 0)
        return print_completion(argc > 2 ? argv[2] : NULL);
    ct_buf_init(&text, 0);
    if (strcmp(first, "--schema") == 0)
        ct_config_schema(&text);
    else if (strcmp(first, "--man") == 0)
        ct_config_man(&text);
    else if (strcmp(first, "--options") == 0)
        ct_config_help(true, &text);
    else
        return print_config(argc - 1, argv + 1);
    return finish(&text, 0);
}
