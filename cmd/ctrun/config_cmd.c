/* ctrun config FILE [options]: check a configuration and print it with the origin of each value.
 * ctrun config --schema | --man | --completion SHELL: what config.def says, in other forms. */
#include "config_cmd.h"

#include "config/config.h"
#include "recipe/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: ctrun config FILE.yaml [options]     print the effective values and their origins\n"
    "       ctrun config --schema                JSON schema of a YAML file, for editors\n"
    "       ctrun config --man                   the keys as sections of train.yaml(5)\n"
    "       ctrun config --options               the keys as a list of options\n"
    "       ctrun config --completion bash|zsh   shell completion\n";

/* Write the buffer and free it. Returns `status`, or the status of an output error. */
static int finish(struct ct_buf *text, FILE *stream, int status)
{
    bool written = !text->failed && fputs(ct_buf_str(text), stream) >= 0 && fflush(stream) == 0;

    ct_buf_deinit(text);
    return written ? status : ct_exit_status(CT_EIO);
}

static int print_config(int argc, char **argv)
{
    struct ct_config cfg;
    struct ct_config_input in = {
        .argc = argc, .argv = argv, .env = environ, .command_needed = true, .file_only = true};
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    struct ct_buf text;

    ct_buf_init(&text, 0);
    if (errs == NULL) {
        (void)ct_buf_puts(&text, "ctrun: out of memory\n");
        return finish(&text, stderr, ct_exit_status(CT_ENOMEM));
    }
    struct ct_error err = {0};
    int code = ct_config_load(&cfg, &in, errs);
    if (code == 0 && !cfg.command.help)
        code = ct_recipe_check(&cfg, &err);
    char *here = getcwd(NULL, 0);
    if (cfg.command.help)
        (void)ct_buf_puts(&text, usage);
    else if (code == 0)
        ct_config_print(&cfg, here, &text);
    else if (err.code != 0)
        (void)ct_buf_printf(&text, "ctrun: %s\n", err.text);
    else
        ct_config_errors_write(errs, "ctrun: ", &text);
    free(here);
    free(errs);
    ct_config_deinit(&cfg);
    return finish(&text, code == 0 ? stdout : stderr, ct_exit_status(code));
}

static int print_completion(const char *shell)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    if (shell != NULL && ct_config_completion(shell, &text) == 0)
        return finish(&text, stdout, 0);
    (void)ct_buf_puts(&text, "ctrun: --completion wants bash or zsh\n");
    return finish(&text, stderr, ct_exit_status(CT_EUSAGE));
}

int ct_cmd_config(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";
    struct ct_buf text;

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
    return finish(&text, stdout, 0);
}
