/* Fuzz: any lines as command line and environment.
 *
 * Lines up to an empty one are words of the command line, those behind it are variables. Whatever
 * comes in, the load ends, its answer agrees with its complaints, and what belongs to the program
 * is an untouched tail of the words. */
#include "base/assert.h"
#include "config/config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARGUMENTS = 64 };

/* Cut `*rest` into lines until an empty one. */
static int split(char **rest, char *words[ARGUMENTS + 1])
{
    int count = 0;

    while (count < ARGUMENTS && **rest != '\0') {
        char *word = *rest;
        size_t length = strcspn(word, "\n");
        *rest = word + length + (word[length] == '\n');
        word[length] = '\0';
        if (length == 0)
            break;
        words[count++] = word;
    }
    words[count] = NULL;
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ct_config_errors errs;
    char *text = calloc(1, size + 1), *rest = text;
    char *argv[ARGUMENTS + 1], *env[ARGUMENTS + 1];
    struct ct_config cfg;
    struct ct_buf out = {0};

    memcpy(text, data, size);
    int argc = split(&rest, argv);
    (void)split(&rest, env);
    struct ct_config_input in = {.argc = argc, .argv = argv, .env = env, .command_needed = true};
    /* No file is read: a YAML file is named, but its text is given. */
    in.yaml_text = "model: {classes: 2}\ndata: {train: {path: d}}\n";
    in.yaml_size = strlen(in.yaml_text);
    memset(&errs, 0, sizeof errs);
    int code = ct_config_load(&cfg, &in, &errs);
    CT_ASSERT((code == 0) == (errs.count == 0));
    CT_ASSERT(cfg.command.arg_count >= 0 && cfg.command.arg_count < argc + (argc == 0));
    if (cfg.command.arg_count > 0)
        CT_ASSERT(cfg.command.args == argv + argc - cfg.command.arg_count);
    if (code == 0)
        ct_config_print(&cfg, NULL, &out);
    for (size_t i = 0; i < errs.count; i++)
        CT_ASSERT(errs.at[i].code != 0 && strlen(errs.at[i].text) > 0);
    ct_buf_deinit(&out);
    ct_config_deinit(&cfg);
    free(text);
    return 0;
}
