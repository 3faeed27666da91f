/* Values: from text to a member of struct ct_config and back, by the key's type. Pure. */
#ifndef CT_CONFIG_VALUE_H
#define CT_CONFIG_VALUE_H

#include "config/config_keys.h"

/* A value as some front end met it. */
enum ct_config_shape {
    CT_CONFIG_PLAIN,  /* one word */
    CT_CONFIG_QUOTED, /* one word in quotes: text, never a number */
    CT_CONFIG_LIST,   /* several */
};

enum { CT_CONFIG_ITEMS_MAX = 64 };
struct ct_config_value {
    enum ct_config_shape shape;
    size_t count; /* 1 unless a list */
    const char *items[CT_CONFIG_ITEMS_MAX];
    const struct ct_config_node *tree; /* of a key of type LAYERS, when it is a list */
    const char *problem;               /* why there is no tree, or NULL */
};

/* A value of the widest member; which one is the key's type. */
union ct_config_any {
    bool boolean;
    int choice;
    int64_t integer;
    double real;
    const char *text;
    struct ct_config_nodes nodes;
    struct ct_config_ints ints;
    struct ct_config_strs strs;
    struct ct_config_pair pair;
    struct ct_config_interval interval;
    struct ct_config_layers layers;
};

/* Read text from a place that knows no lists (default, environment, command line): "[1, 2]" or
 * "1,2" becomes a list when the key wants one of numbers, "a,b,,c" (a and "b,c") when of texts. The
 * items lie in `arena`. 0, CT_ENOMEM or CT_ELIMIT.
 */
int ct_config_value_split(const struct ct_config_key *key, const char *text, struct ct_arena *arena,
                          struct ct_config_value *ret_value);

/* Parse `value` as the key wants it, range included. 0, or CT_ECONFIG with what is wrong in `err`,
 * phrased to follow the key's name: "wants a number such as 1e-3, not \"x\"". Texts are not copied,
 * nor is the list of them: it stays `value`'s until ct_config_value_keep. A tree stays where it is.
 */
int ct_config_value_parse(const struct ct_config_key *key, const struct ct_config_value *value,
                          union ct_config_any *ret_any, struct ct_error *err);

/* Copy what a parsed value points to into `arena`; 0 or CT_ENOMEM. */
int ct_config_value_keep(const struct ct_config_key *key, struct ct_arena *arena,
                         union ct_config_any *any);

/* Copy a parsed value to the key's member, and back. */
void ct_config_value_store(const struct ct_config_key *key, const union ct_config_any *any,
                           struct ct_config *cfg);
void ct_config_value_fetch(const struct ct_config_key *key, const struct ct_config *cfg,
                           union ct_config_any *ret_any);

/* Append the value as YAML that parses to the same value. */
void ct_config_value_write(const struct ct_config_key *key, const union ct_config_any *any,
                           struct ct_buf *to);

/* The ends of the key's range as numbers (of milliseconds, bytes, ...); false when it has none.
 * An open end does not belong to the range; a missing one is infinite. */
struct ct_config_range {
    long double low, high;
    bool low_open, high_open;
};
bool ct_config_range_of(const struct ct_config_key *key, struct ct_config_range *ret_range);

/* Append the range as text: "at least 0 and below 1"; nothing if the key has none. */
void ct_config_range_write(const struct ct_config_key *key, struct ct_buf *to);

/* Describe the values of a type: "a number such as 1e-3". */
const char *ct_config_type_wanted(enum ct_config_type type);

/* `text` made fit for a message: cut to about 60 bytes, control characters replaced. */
enum { CT_CONFIG_SHOWN_ROOM = 72 };
const char *ct_config_shown(const char *text, char room[CT_CONFIG_SHOWN_ROOM]);

#endif
