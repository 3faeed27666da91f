/* Loading for tests: a config with its errors, on the heap, from whichever layers a test gives. */
#ifndef CT_CONFIG_TEST_H
#define CT_CONFIG_TEST_H

#include "config/config.h"

struct loaded {
    struct ct_config cfg;
    struct ct_config_errors errs;
    struct ct_buf text; /* the errors, then the notes, a line each */
    int code;
};

/* The input of a test; lists are NULL-terminated, and may be NULL. */
struct given {
    const char *name; /* of the YAML text; "a.yaml" when NULL */
    const char *yaml; /* NULL: no file */
    const char *path; /* a real file instead */
    const char *const *argv;
    const char *const *env;
    const struct ct_config_preset *presets;
    size_t preset_count;
    bool command_needed, file_only;
};

struct loaded *load(const struct given *given);
struct loaded *load_yaml(const char *text);
struct loaded *load_argv(const char *const *argv);
void unload(struct loaded *l);

/* The loaded errors and notes as text. */
const char *complaints(const struct loaded *l);

#endif
