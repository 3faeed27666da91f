/* The rows of config.def as constant tables, for the rest of this module. */
#ifndef CT_CONFIG_KEYS_H
#define CT_CONFIG_KEYS_H

#include "config/config.h"

enum ct_config_type {
    CT_CONFIG_TYPE_BOOL,
    CT_CONFIG_TYPE_INT,
    CT_CONFIG_TYPE_F64,
    CT_CONFIG_TYPE_STR,
    CT_CONFIG_TYPE_INPUT,
    CT_CONFIG_TYPE_DURATION,
    CT_CONFIG_TYPE_BYTES,
    CT_CONFIG_TYPE_NODES,
    CT_CONFIG_TYPE_INTS,
    CT_CONFIG_TYPE_STRS,
    CT_CONFIG_TYPE_PAIR,
    CT_CONFIG_TYPE_INTERVAL,
    CT_CONFIG_TYPE_LAYERS,
    CT_CONFIG_TYPE_CHOICE,
};

struct ct_config_key {
    const char *section; /* "data.train"; "" for a key outside any section */
    const char *name;    /* "path" */
    const char *path;    /* "data.train.path" */
    enum ct_config_type type;
    const char *const *words; /* of a choice, ended by NULL; else NULL */
    const char *standard;     /* the default, as it would be written */
    const char *range;
    const char *help;
    size_t offset; /* of its member in struct ct_config */
};

struct ct_config_section {
    const char *path; /* "data.train" */
    const char *help;
    bool shared;
};

enum { CT_CONFIG_SECTIONS_MAX = 32 };

extern const struct ct_config_key ct_config_keys[CT_CONFIG_KEYS];
extern const struct ct_config_section ct_config_sections[];
extern const size_t ct_config_section_count;

/* Return the key, or the section, of that path; NULL if none. Dashes count as underscores. */
const struct ct_config_key *ct_config_key_find(const char *path);
const struct ct_config_section *ct_config_section_find(const char *path);

/* Return the key's index in the table, which is also that of its origin. */
size_t ct_config_key_index(const struct ct_config_key *key);

/* Return the key whose member lies at `member` of `cfg`; asserts that it exists. */
const struct ct_config_key *ct_config_key_of(const struct ct_config *cfg, const void *member);

/* Return the part of a path after its last dot, and whether `path` lies directly in section
 * `section`. */
const char *ct_config_last_name(const char *path);
bool ct_config_lies_in(const char *path, const char *section);

/* Is the text of an INPUT a path that starts at some folder? "munge:" of a key file is none. */
bool ct_config_is_relative(const char *path);

/* The variable that sets the key, "CTRUN_OPTIM_LR", in `room`. */
enum { CT_CONFIG_VARIABLE_ROOM = 80 };
const char *ct_config_variable(const struct ct_config_key *key, char room[CT_CONFIG_VARIABLE_ROOM]);

/* Return the key or section that other tools call by the last name of `path` (synonym.def), or
 * NULL. */
const char *ct_config_synonym(const char *path);

/* Suggest a path for a misspelt `path`: a near name in its section, or the same name in another
 * one; NULL if none. The result points into the tables. */
const char *ct_config_guess(const char *path);

#endif
