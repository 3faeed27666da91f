/* The inside of a load: the settings of the front ends, and their errors.
 *
 *     cli.c  ---- settings --+
 *     env_layer.c  ---- settings --+--> ct_config_set --> cfg + origins
 *     yaml.c ---- settings --+          |
 *     checks.c (across keys) -----------+--> errors
 *
 * The order in which layers are read does not matter: a key keeps the value of its strongest layer,
 * and a wrong value is reported even when a stronger layer replaces it. */
#ifndef CT_CONFIG_LOADER_H
#define CT_CONFIG_LOADER_H

#include "config/value.h"

struct ct_config_loader {
    struct ct_config *cfg;
    const struct ct_config_input *in;
    struct ct_config_errors *errs;
    bool failed[CT_CONFIG_KEYS]; /* a value of the key was complained about */
    bool unreadable;             /* the YAML file was not read to its end */
};

/* Add the error "PLACE: SUBJECT SENTENCE". An error of a variable or an option has that name as its
 * place and subject; elsewhere the subject is `subject` (the path of a key, mostly), and the place
 * the line of the file, if there is one. */
void ct_config_complain(struct ct_config_loader *loader, const struct ct_config_origin *origin,
                        const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Add a note, likewise. */
void ct_config_note(struct ct_config_loader *loader, const struct ct_config_origin *origin,
                    const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Parse `value`, complain when it is wrong, keep it when no stronger layer has set the key. Later
 * values of a layer replace earlier ones. `origin->name` must live as long as the config. */
void ct_config_set(struct ct_config_loader *loader, const struct ct_config_key *key,
                   const struct ct_config_value *value, const struct ct_config_origin *origin);

/* Set likewise from text of a source without lists. */
void ct_config_set_text(struct ct_config_loader *loader, const struct ct_config_key *key,
                        const char *text, const struct ct_config_origin *origin);

/* The front ends. */
void ct_config_read_command_line(struct ct_config_loader *loader);
void ct_config_read_environment(struct ct_config_loader *loader);
void ct_config_read_yaml(struct ct_config_loader *loader, const char *path);

/* Apply torchrun's rdzv_conf as settings of the layer that it came from. */
void ct_config_apply_rdzv_conf(struct ct_config_loader *loader);

/* Check constraints over several keys, and texts with a grammar of their own. */
void ct_config_check(struct ct_config_loader *loader);

/* torchrun's other options, a row of torchrun.def each. */
enum ct_torchrun_action {
    CT_TORCHRUN_KEY,
    CT_TORCHRUN_SET,
    CT_TORCHRUN_NOTE,
    CT_TORCHRUN_ONLY,
    CT_TORCHRUN_REFUSE,
};
struct ct_torchrun_option {
    const char *name;
    char letter;
    enum ct_torchrun_action action;
    const char *text;
    const char *only; /* of CT_TORCHRUN_ONLY: the one value that is taken */
};

/* Find by name (dashes count as underscores), by letter, by index (for suggestions); NULL if
 * none. */
const struct ct_torchrun_option *ct_torchrun_find(const char *name);
const struct ct_torchrun_option *ct_torchrun_find_letter(char letter);
const struct ct_torchrun_option *ct_torchrun_at(size_t index);

/* Apply `value` as the option's row defines. */
void ct_torchrun_apply(struct ct_config_loader *loader, const struct ct_torchrun_option *option,
                       const char *value, const struct ct_config_origin *origin);

/* Return the remedy for a choice of the key that torchrun has and ctrun has not, or NULL. */
const char *ct_torchrun_word_refused(const struct ct_config_key *key, const char *word);

/* Apply torchrun's variable of that name (without PET_); a no-op for any other name. */
void ct_torchrun_apply_variable(struct ct_config_loader *loader, const char *name,
                                const char *value);

#endif
