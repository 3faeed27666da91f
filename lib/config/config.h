/* The configuration of a job: one struct, filled from layers, each stronger than the one before.
 *
 *     defaults        config.def
 *     presets         detected by the caller (SLURM_*)
 *     YAML            configs/digits_mlp.yaml
 *     environment     PET_NNODES < CTRUN_LAUNCH_NNODES
 *     command line    --optim.lr 0.1   --optim.lr=0.1   --nnodes 2   --nproc-per-node=gpu
 *
 * config.def lists the keys; struct ct_config has a member for each (cfg->optim.lr,
 * cfg->launch.grace_ms, cfg->data.train.path). Every key also knows the origin of its value.
 *
 * Loading reports all errors, each in a sentence with its place, not only the first one. Nothing
 * here prints, exits, or keeps global state; one thread at a time per struct. */
#ifndef CT_CONFIG_CONFIG_H
#define CT_CONFIG_CONFIG_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/error.h"
#include "config/source.def"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- types of values ------------------------------------------------------------------------ */

/* For each set of words an enum: enum ct_config_optimizer { CT_CONFIG_OPTIMIZER_SGD, ... }. */
#define CT_WORD(set, id, word) CT_CONFIG_##set##_##id,
#define CT_WORDS(set, words) enum ct_config_##set{words};
#include "config/config.def"

struct ct_config_nodes {
    int64_t min, max; /* "2" is 2, 2 */
};

enum { CT_CONFIG_INTS_MAX = 64 };
struct ct_config_ints {
    int64_t count;
    int64_t at[CT_CONFIG_INTS_MAX];
};

struct ct_config_strs {
    int64_t count;
    const char *const *at;
};

struct ct_config_pair {
    double at[2];
};

/* A part of a value with structure. */
enum ct_config_node_kind { CT_CONFIG_NODE_WORD, CT_CONFIG_NODE_LIST, CT_CONFIG_NODE_MAP };
struct ct_config_node {
    enum ct_config_node_kind kind;
    const char *name;                   /* in a map; else NULL */
    const char *text;                   /* of a word; else "" */
    int line, column;                   /* in the file that the value came from, from 1 */
    const struct ct_config_node *first; /* of a list or map */
    const struct ct_config_node *next;  /* beside it */
};

struct ct_config_layers {
    int64_t count;                     /* the number, or that of the list's elements */
    const struct ct_config_node *list; /* NULL: a number */
};

enum ct_config_unit { CT_CONFIG_STEPS, CT_CONFIG_EPOCHS };
struct ct_config_interval {
    int64_t count; /* 0: never */
    enum ct_config_unit unit;
};

/* ---- where a value came from ---------------------------------------------------------------- */

/* In ascending order of precedence; a layer overrides weaker ones key by key. */
enum ct_config_layer {
    CT_CONFIG_DEFAULT,
    CT_CONFIG_PRESET,
    CT_CONFIG_FILE,
    CT_CONFIG_PET,
    CT_CONFIG_ENVIRONMENT,
    CT_CONFIG_COMMAND_LINE,
};

struct ct_config_origin {
    enum ct_config_layer layer;
    const char *name; /* file, variable or option: "configs/a.yaml", "PET_NNODES", "--optim.lr" */
    int line, column; /* from 1, in a file; else 0 */
};

/* The arguments of the command line besides keys. */
struct ct_config_command {
    const char *file;    /* the YAML file, or NULL */
    const char *program; /* the program (or module) that is no YAML file, or NULL */
    char *const *args;   /* what follows the program, or follows "--" after a YAML file */
    int arg_count;
    bool ended;   /* "--" came before the program, which may lie in PATH */
    bool help;    /* -h or --help was met: nothing else counts, loading succeeds */
    bool version; /* the same for --version */
};

/* ---- the struct ----------------------------------------------------------------------------- */

#define CT_TYPE_BOOL bool
#define CT_TYPE_INT int64_t
#define CT_TYPE_F64 double
#define CT_TYPE_STR const char *
#define CT_TYPE_INPUT const char *
#define CT_TYPE_DURATION int64_t
#define CT_TYPE_BYTES int64_t
#define CT_TYPE_NODES struct ct_config_nodes
#define CT_TYPE_INTS struct ct_config_ints
#define CT_TYPE_STRS struct ct_config_strs
#define CT_TYPE_PAIR struct ct_config_pair
#define CT_TYPE_INTERVAL struct ct_config_interval
#define CT_TYPE_LAYERS struct ct_config_layers

#define CT_MEMBER_BOOL(name) name
#define CT_MEMBER_INT(name) name
#define CT_MEMBER_F64(name) name
#define CT_MEMBER_STR(name) name
#define CT_MEMBER_INPUT(name) name
#define CT_MEMBER_DURATION(name) name##_ms
#define CT_MEMBER_BYTES(name) name##_bytes
#define CT_MEMBER_NODES(name) name
#define CT_MEMBER_INTS(name) name
#define CT_MEMBER_STRS(name) name
#define CT_MEMBER_PAIR(name) name
#define CT_MEMBER_INTERVAL(name) name
#define CT_MEMBER_LAYERS(name) name

/* The number of keys. */
enum {
    CT_CONFIG_KEYS = 0
#define CT_ROOT(name, type, standard, range, help) +1
#define CT_KEY(section, name, type, standard, range, help) +1
#define CT_CHOICE(section, name, set, standard, help) +1
#define CT_SOURCE(name, help) CT_SOURCE_KEYS(name)
#include "config/config.def"
};

#define CT_KEY(section, name, type, standard, range, help) CT_TYPE_##type CT_MEMBER_##type(name);
#define CT_CHOICE(section, name, set, standard, help) enum ct_config_##set name;

/* Where samples come from: the type of cfg->data.train and cfg->data.eval. */
struct ct_config_source {
    CT_SOURCE_KEYS(source)
};

struct ct_config {
#define CT_ROOT(name, type, standard, range, help) CT_TYPE_##type CT_MEMBER_##type(name);
#define CT_SECTION(name, scope, help) struct {
#define CT_END(name) \
    }                \
    name;
#define CT_SOURCE(name, help) struct ct_config_source name;
#include "config/config.def"
    struct ct_config_command command;
    struct ct_config_origin origins[CT_CONFIG_KEYS]; /* in the order of config.def */
    struct ct_arena arena;                           /* holds every string */
};

/* ---- loading -------------------------------------------------------------------------------- */

/* A value that the caller found out by itself, for instance from SLURM_* variables. */
struct ct_config_preset {
    const char *key;   /* "launch.nnodes" */
    const char *value; /* as on the command line */
    const char *name;  /* for messages: "SLURM_NNODES" */
};

/* The input of loading; zero-initialise, then fill the fields that are available. The strings must
 * outlive the config. */
struct ct_config_input {
    const char *yaml_path; /* a YAML file; NULL: the one that argv names, if any */
    const char *yaml_text; /* when not NULL, the file's content: yaml_path only names it */
    size_t yaml_size;      /* bytes of yaml_text */
    int argc;              /* argv without the program's own name and subcommand */
    char *const *argv;     /* options, then a YAML file or a program; may be NULL */
    char *const *env;      /* as `environ`; may be NULL */
    bool command_needed;   /* a missing YAML file or program is an error */
    bool file_only;        /* the first positional is a YAML file whatever its name */
    const struct ct_config_preset *presets;
    size_t preset_count;
};

/* Errors (loading fails) and notes about settings without an effect (loading succeeds). Each text
 * is one sentence that begins with its place, "configs/a.yaml:3:7: ...". Zero-initialise. */
enum { CT_CONFIG_ERRORS_MAX = 20 };
struct ct_config_errors {
    size_t count, dropped; /* `dropped` more errors were found than there is room for */
    size_t note_count;
    struct ct_error at[CT_CONFIG_ERRORS_MAX];
    struct ct_error notes[CT_CONFIG_ERRORS_MAX];
};

/* Fill `cfg` from all layers and check it. Returns 0, or the code of the first error (CT_EUSAGE:
 * command line or environment; CT_ECONFIG: the rest; both are exit status 2). A YAML file is at
 * most 1 MiB, 32 levels deep, without aliases, tags and duplicate keys. A file that is named on the
 * command line may be followed by options; arguments after a program are its own. `cfg` needs
 * ct_config_deinit also after a failure. */
int ct_config_load(struct ct_config *cfg, const struct ct_config_input *in,
                   struct ct_config_errors *errs);
void ct_config_deinit(struct ct_config *cfg);

/* ---- asking --------------------------------------------------------------------------------- */

/* Return the origin of a member's value: ct_config_origin(cfg, &cfg->optim.lr). */
const struct ct_config_origin *ct_config_origin(const struct ct_config *cfg, const void *member);

/* Print the origin for messages: "configs/a.yaml:3:7", "--optim.lr", "PET_NNODES", "default". */
const char *ct_config_origin_text(const struct ct_config_origin *origin, char *room, size_t size);

/* Return the word of a choice: ct_config_word(cfg, &cfg->optim.type) is "adamw". */
const char *ct_config_word(const struct ct_config *cfg, const void *member);

enum { CT_CONFIG_PATTERN_SIZE = 128 };

/* Read "PATTERN=FACTOR" (optim.lr_factors), the factor from 0 to 1000; CT_EUSAGE for anything else.
 */
int ct_config_factor(const char *text, char ret_pattern[CT_CONFIG_PATTERN_SIZE],
                     double *ret_factor);

/* Return the streams of a worker that `spec` (launch.redirects, launch.tee) selects: 0 none, 1
 * stdout, 2 stderr, 3 both; CT_EUSAGE when `spec` is not "N" or "RANK:N,RANK:N" with N from 0 to
 * 3. */
int ct_config_streams(const char *spec, int64_t local_rank);

/* Return the signals that end the job and those that are forwarded (sets of base/signals.h). No
 * signal is in both: when only one of the two lists was given, its signals are removed from the
 * default of the other. */
void ct_config_signals(const struct ct_config *cfg, uint64_t *ret_ends, uint64_t *ret_forwards);

/* Return the signals after which the job is requeued; they are in neither of the two sets. */
uint64_t ct_config_requeue_signals(const struct ct_config *cfg);

/* Return a hash of the SHARED sections (without paths of inputs and launch settings), to compare
 * nodes. */
uint64_t ct_config_hash(const struct ct_config *cfg);

/* Append the settings behind that hash, one "--key=value" a line, in the order of config.def,
 * without defaults. */
void ct_config_settings(const struct ct_config *cfg, struct ct_buf *to);

/* Return the parent folder of runs, unless log.dir is set: "runs/digits_mlp" for
 * configs/digits_mlp.yaml. */
void ct_config_run_base(const struct ct_config *cfg, char path[PATH_MAX]);

/* Return whether checkpoint.dir is auto. */
bool ct_config_keeps_checkpoints_in_run(const struct ct_config *cfg);

/* Call `each` with every key whose values are not the same in all `count` configurations, and the
 * value in each of them, as a file has it. */
void ct_config_differences(const struct ct_config *const *cfgs, size_t count,
                           void (*each)(void *context, const char *key, const char *const *values),
                           void *context);

/* ---- writing -------------------------------------------------------------------------------- */

/* Append the effective values as a YAML file that means the same; each line's comment names the
 * origin of the value. Relative INPUT paths get `base_dir` in front unless it is NULL. */
void ct_config_print(const struct ct_config *cfg, const char *base_dir, struct ct_buf *to);

/* The same for the folder of a run, without the defaults of section launch, which are chosen anew
 * when the run is resumed. */
void ct_config_print_run(const struct ct_config *cfg, const char *base_dir, struct ct_buf *to);

/* Append the JSON schema (2020-12) of a YAML file, for editors. */
void ct_config_schema(struct ct_buf *to);

/* Append the sections of train.yaml(5) that describe the keys, as troff. */
void ct_config_man(struct ct_buf *to);

/* Append a list of the launch options (or of all keys), for `ctrun help`. */
void ct_config_help(bool all, struct ct_buf *to);

/* Return whether two names are equal; dashes count as underscores. */
bool ct_config_same_name(const char *a, const char *b);

/* Return the number of arguments that the option `word` ("--nnodes", "--nnodes=2", "-m") occupies,
 * itself included: 1 or 2; `next` is the argument after it, or NULL. 0 for an unknown option. */
int ct_config_option_width(const char *word, const char *next);

/* Return the option (without its dashes) that `name` may be a misspelling of, or NULL. */
const char *ct_config_option_like(const char *name);

/* Append a function _ctrun_keys for "bash" or "zsh" that completes the keys as options (bash: $1 is
 * the word, $2 the one before it); CT_EUSAGE for another shell. */
int ct_config_completion(const char *shell, struct ct_buf *to);

#endif
