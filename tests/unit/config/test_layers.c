/* Layers: for every key and every set of layers, the strongest one has the value and the origin. */
#include "config_test.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "config/value.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(layers, .timeout = 60);

enum { TEXT_ROOM = 160 };

/* The number `n` of the key's range, as its type writes it: small steps from the lower end. */
static const char *number_of(const struct ct_config_key *key, unsigned n, char *room)
{
    struct ct_config_range range = {.low = 0, .high = INFINITY};

    (void)ct_config_range_of(key, &range);
    long double low = isinf(range.low) ? -3 : range.low;
    if (key->type == CT_CONFIG_TYPE_F64 || key->type == CT_CONFIG_TYPE_PAIR)
        (void)snprintf(room, TEXT_ROOM, "%.17g",
                       (double)(low + (CT_MIN(range.high, low + 9) - low) * (n + 1) / 20));
    else
        (void)snprintf(room, TEXT_ROOM, "%.0Lf%s", low + n,
                       key->type == CT_CONFIG_TYPE_DURATION ? "ms" : "");
    return room;
}

/* A valid value of the key; up to 10 different ones where the type has so many. */
static const char *value_of(const struct ct_config_key *key, unsigned n, char *room)
{
    char number[TEXT_ROOM], other[TEXT_ROOM];
    unsigned words = 0;

    switch (key->type) {
    case CT_CONFIG_TYPE_BOOL:
        return n % 2 == 0 ? "true" : "false";
    case CT_CONFIG_TYPE_STR:
    case CT_CONFIG_TYPE_INPUT:
        (void)snprintf(room, TEXT_ROOM, "/text%u", n);
        return room;
    case CT_CONFIG_TYPE_STRS:
        (void)snprintf(room, TEXT_ROOM, "text%u,a,,b", n);
        return room;
    case CT_CONFIG_TYPE_NODES:
        (void)snprintf(room, TEXT_ROOM, "%u:%u", n + 1, n + 3);
        return room;
    case CT_CONFIG_TYPE_INTERVAL:
        (void)snprintf(room, TEXT_ROOM, "%s%s", number_of(key, n, number),
                       n % 2 == 0 ? "" : " epochs");
        return room;
    case CT_CONFIG_TYPE_INTS:
        (void)snprintf(room, TEXT_ROOM, "[%s, 7]", number_of(key, n, number));
        return room;
    case CT_CONFIG_TYPE_PAIR:
        (void)snprintf(room, TEXT_ROOM, "[%s, %s]", number_of(key, n, number),
                       number_of(key, n + 1, other));
        return room;
    case CT_CONFIG_TYPE_LAYERS:
        (void)snprintf(room, TEXT_ROOM, n % 2 == 0 ? "%u" : "[{a: {b: %u, c: 'x y'}}, d, [e]]", n);
        return room;
    case CT_CONFIG_TYPE_CHOICE:
        while (key->words[words] != NULL)
            words++;
        return key->words[n % words];
    default:
        return number_of(key, n, room);
    }
}

/* The value that `text` stands for, as the printer writes it. */
static void canonical(const struct ct_config_key *key, const char *text, struct ct_buf *to)
{
    struct ct_arena arena;
    struct ct_config_value value;
    union ct_config_any any = {0};
    struct ct_error err = {0};

    ct_arena_init(&arena, 1 << 16);
    cr_assert_eq(ct_config_value_split(key, text, &arena, &value), 0);
    cr_assert_eq(ct_config_value_parse(key, &value, &any, &err), 0, "%s: %s: %s", key->path, text,
                 err.text);
    ct_buf_clear(to);
    ct_config_value_write(key, &any, to);
    ct_arena_deinit(&arena);
}

static void effective(const struct ct_config_key *key, const struct ct_config *cfg,
                      struct ct_buf *to)
{
    union ct_config_any any;

    ct_config_value_fetch(key, cfg, &any);
    ct_buf_clear(to);
    ct_config_value_write(key, &any, to);
}

/* A YAML file that says `text` for one key, nested as its path. */
static void yaml_of(const struct ct_config_key *key, const char *text, struct ct_buf *to)
{
    const char *at = key->path;

    ct_buf_clear(to);
    for (const char *dot = strchr(at, '.'); dot != NULL; dot = strchr(at, '.')) {
        (void)ct_buf_printf(to, "{%.*s: ", (int)(dot - at), at);
        at = dot + 1;
    }
    const char *quote = key->type == CT_CONFIG_TYPE_STRS ? "'" : "";
    (void)ct_buf_printf(to, "{%s: %s%s%s}", at, quote, text, quote);
    for (const char *dot = key->path; *dot != '\0'; dot++)
        if (*dot == '.')
            (void)ct_buf_puts(to, "}");
}

/* One key set in the layers of `set` (bit = enum ct_config_layer), each to another value. */
static void check_key(const struct ct_config_key *key, unsigned set)
{
    char texts[6][TEXT_ROOM], variable[CT_CONFIG_VARIABLE_ROOM];
    char pet[256], env[256], option[256];
    const char *values[6], *variables[3] = {NULL}, *options[2] = {NULL};
    struct ct_config_preset preset = {key->path, "", "SLURM_X"};
    struct ct_buf yaml = {0}, expected = {0}, got = {0};
    unsigned strongest = 0, count = 0;

    for (unsigned layer = 0; layer < 6; layer++)
        values[layer] = value_of(key, layer, texts[layer]);
    yaml_of(key, values[CT_CONFIG_FILE], &yaml);
    preset.value = values[CT_CONFIG_PRESET];
    (void)snprintf(pet, sizeof pet, "PET_%s=%s", key->name, values[CT_CONFIG_PET]);
    for (char *at = pet; *at != '='; at++)
        *at = (char)toupper((unsigned char)*at);
    (void)snprintf(env, sizeof env, "%s=%s", ct_config_variable(key, variable),
                   values[CT_CONFIG_ENVIRONMENT]);
    (void)snprintf(option, sizeof option, "--%s=%s", key->path, values[CT_CONFIG_COMMAND_LINE]);
    if (set & 1u << CT_CONFIG_ENVIRONMENT)
        variables[count++] = env;
    if (set & 1u << CT_CONFIG_PET)
        variables[count++] = pet;
    if (set & 1u << CT_CONFIG_COMMAND_LINE)
        options[0] = option;
    for (unsigned layer = 1; layer < 6; layer++)
        if (set & 1u << layer)
            strongest = layer;

    struct loaded *l = load(&(struct given){
        .yaml = set & 1u << CT_CONFIG_FILE ? ct_buf_str(&yaml) : NULL,
        .presets = &preset,
        .preset_count = (set & 1u << CT_CONFIG_PRESET) != 0,
        .env = variables,
        .argv = options,
    });
    const struct ct_config_origin *origin = &l->cfg.origins[ct_config_key_index(key)];
    canonical(key, strongest != 0 ? values[strongest] : key->standard, &expected);
    effective(key, &l->cfg, &got);
    cr_assert_str_eq(ct_buf_str(&got), ct_buf_str(&expected), "%s, layers %x:\n%s", key->path, set,
                     complaints(l));
    cr_assert_eq(origin->layer, strongest, "%s, layers %x: %u", key->path, set, origin->layer);
    unload(l);
    ct_buf_deinit(&yaml);
    ct_buf_deinit(&expected);
    ct_buf_deinit(&got);
}

Test(layers, the_strongest_layer_has_value_and_origin_for_every_key)
{
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        bool launch = strcmp(key->section, "launch") == 0;

        if (strcmp(key->name, "rdzv_conf") == 0)
            continue; /* sets other keys, see test_command_line.c */
        for (unsigned set = 0; set < 64; set += 2)
            if (launch || !(set & 1u << CT_CONFIG_PET))
                check_key(key, set);
    }
}

Test(layers, an_origin_names_its_place)
{
    static const char *const argv[] = {"--optim.lr", "3", "--nproc-per-node=2", NULL};
    static const char *const env[] = {"PET_NNODES=1", "CTRUN_OPTIM_EPS=0.5", NULL};
    static const struct ct_config_preset preset = {"launch.node_rank", "0", "SLURM_NODEID"};
    char room[64];
    struct loaded *l = load(&(struct given){
        .name = "x/y.yaml",
        .yaml = "model: {classes: 3}\ndata: {train: {path: d}}\nseed: 4\n",
        .argv = argv,
        .env = env,
        .presets = &preset,
        .preset_count = 1,
    });
    const struct ct_config *cfg = &l->cfg;
    const struct {
        const void *member;
        const char *place;
    } places[] = {
        {&cfg->seed, "x/y.yaml:3:7"},
        {&cfg->optim.lr, "--optim.lr"},
        {&cfg->launch.nproc_per_node, "--nproc-per-node"},
        {&cfg->launch.nnodes, "PET_NNODES"},
        {&cfg->optim.eps, "CTRUN_OPTIM_EPS"},
        {&cfg->launch.node_rank, "SLURM_NODEID"},
        {&cfg->optim.clip, "default"},
    };

    cr_assert_str_eq(complaints(l), "");
    for (size_t i = 0; i < CT_COUNT(places); i++)
        cr_assert_str_eq(
            ct_config_origin_text(ct_config_origin(cfg, places[i].member), room, sizeof room),
            places[i].place);
    unload(l);
}

Test(layers, a_wrong_value_is_reported_even_when_it_is_overridden)
{
    static const char *const argv[] = {"--optim.lr=1", NULL};
    struct loaded *l =
        load(&(struct given){.yaml = "optim: {lr: x}\nmodel: {classes: 3}\n", .argv = argv});

    cr_assert_str_eq(complaints(l),
                     "a.yaml:1:13: optim.lr wants a number such as 1e-3, not \"x\"\n");
    unload(l);
}

/* ---- printing ------------------------------------------------------------------------------- */

static const char *const awkward[] = {
    "",
    "null",
    "~",
    "true",
    "1e3",
    "-",
    "- a",
    "a: b",
    "a #b",
    " lead",
    "end ",
    "two\nli",
    "tab\there",
    "q\"uo\\te'",
    "[1, 2]",
    "{a: b}",
    "&a",
    "*a",
    "!tag",
    "%x",
    "@at",
    "`tick",
    "gr\xc3\xbc\xc3\x9f",
    "a,b",
    "|",
    ">",
    "\x7f",
};

static bool same_tree(const struct ct_config_node *a, const struct ct_config_node *b)
{
    for (; a != NULL && b != NULL; a = a->next, b = b->next)
        if (a->kind != b->kind || strcmp(a->text, b->text) != 0 ||
            (a->name == NULL) != (b->name == NULL) ||
            (a->name != NULL && strcmp(a->name, b->name) != 0) || !same_tree(a->first, b->first))
            return false;
    return a == b;
}

/* Whether two configs hold the same value for a key; no printing is involved. */
static bool same(const struct ct_config_key *key, const struct ct_config *a,
                 const struct ct_config *b)
{
    union ct_config_any x, y;

    ct_config_value_fetch(key, a, &x);
    ct_config_value_fetch(key, b, &y);
    if (key->type == CT_CONFIG_TYPE_STR || key->type == CT_CONFIG_TYPE_INPUT)
        return strcmp(x.text, y.text) == 0;
    if (key->type == CT_CONFIG_TYPE_STRS) {
        bool equal = x.strs.count == y.strs.count;

        for (int64_t i = 0; equal && i < x.strs.count; i++)
            equal = strcmp(x.strs.at[i], y.strs.at[i]) == 0;
        return equal;
    }
    if (key->type == CT_CONFIG_TYPE_LAYERS)
        return same_tree(x.layers.list, y.layers.list) && x.layers.count == y.layers.count;
    if (key->type == CT_CONFIG_TYPE_INTERVAL)
        return x.interval.count == y.interval.count && x.interval.unit == y.interval.unit;
    return memcmp(&x, &y, sizeof x) == 0;
}

/* Every key random, then one text that YAML could misread. */
static struct loaded *random_config(struct ct_rng *rng)
{
    char text[TEXT_ROOM], lines[CT_CONFIG_KEYS][256];
    const char *argv[CT_CONFIG_KEYS + 1] = {NULL};

    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        unsigned pick = (unsigned)(ct_rng_below(rng, 10));
        const char *value = value_of(key, pick, text);
        if (key->type == CT_CONFIG_TYPE_STRS && pick < 8) {
            (void)snprintf(text, sizeof text, "%s,%s",
                           awkward[ct_rng_below(rng, CT_COUNT(awkward))],
                           awkward[ct_rng_below(rng, CT_COUNT(awkward))]);
            value = text;
        }
        if (key->type == CT_CONFIG_TYPE_STR && strcmp(key->name, "rdzv_conf") != 0 && pick < 8)
            value = awkward[ct_rng_below(rng, CT_COUNT(awkward))];
        else if (strcmp(key->name, "rdzv_conf") == 0)
            value = "";
        (void)snprintf(lines[i], sizeof lines[i], "--%s=%s", key->path, value);
        argv[i] = lines[i];
    }
    return load_argv(argv);
}

Test(layers, what_is_printed_means_the_same)
{
    struct ct_rng rng;
    struct ct_buf text = {0};

    ct_rng_init(&rng, 20);
    for (int round = 0; round < 100; round++) {
        struct loaded *a = random_config(&rng);
        ct_buf_clear(&text);
        ct_config_print(&a->cfg, NULL, &text);
        struct loaded *b = load_yaml(ct_buf_str(&text));
        for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
            cr_assert(same(&ct_config_keys[i], &a->cfg, &b->cfg), "%s:\n%s\n%s",
                      ct_config_keys[i].path, complaints(b), ct_buf_str(&text));
            cr_assert_eq(b->cfg.origins[i].layer, CT_CONFIG_FILE);
        }
        cr_assert_eq(ct_config_hash(&a->cfg), ct_config_hash(&b->cfg));
        unload(a);
        unload(b);
    }
    ct_buf_deinit(&text);
}

Test(layers, values_are_printed_in_their_largest_whole_unit)
{
    static const struct {
        const char *path, *text, *printed;
    } cases[] = {
        {"launch.nnodes", "2:8", "2:8"},
        {"launch.nnodes", "3:3", "3"},
        {"launch.grace", "90000ms", "90s"},
        {"launch.grace", "120", "2m"},
        {"launch.grace", "3600s", "1h"},
        {"launch.grace", "0", "0ms"},
        {"launch.grace", "1.5s", "1500ms"},
        {"parallel.bucket", "1024MB", "1GB"},
        {"parallel.bucket", "1536KB", "1536KB"},
        {"parallel.bucket", "1000", "1000B"},
        {"eval.every", "1 epoch", "1 epoch"},
        {"eval.every", "2epochs", "2 epochs"},
        {"eval.every", "7 steps", "7"},
        {"optim.betas", "0.5,.25", "[0.5, 0.25]"},
        {"model.hidden", "[]", "[]"},
        {"model.hidden", "[ 3,  4]", "[3, 4]"},
        {"launch.forward_signals", "", "[]"},
        {"launch.forward_signals", "SIGUSR1", "[SIGUSR1]"},
        {"launch.duplicate_stderr_filters", "Error, in,a,,b", "[Error, \" in\", \"a,b\"]"},
        {"launch.duplicate_stderr_filters", ",,", "[\",\"]"},
        {"launch.duplicate_stderr_filters", ",a,", "[\"\", a, \"\"]"},
        {"launch.duplicate_stderr_filters", "a,,,b", "[\"a,\", b]"},
        {"optim.lr", "1e-4", "0.0001"},
        {"optim.eps", "1e-8", "1.0e-08"},
        {"optim.eps", "1.5e-8", "1.5e-08"},
        {"optim.type", "sgd", "sgd"},
        {"launch.rdzv_id", "12", "\"12\""},
        {"launch.rdzv_id", "job_12", "job_12"},
    };
    struct ct_buf printed = {0};

    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        canonical(ct_config_key_find(cases[i].path), cases[i].text, &printed);
        cr_assert_str_eq(ct_buf_str(&printed), cases[i].printed, "%s", cases[i].text);
    }
    ct_buf_deinit(&printed);
}

Test(layers, printed_inputs_are_found_from_any_folder)
{
    struct ct_buf text = {0};
    struct loaded *l = load(&(struct given){
        .name = "sub/a.yaml",
        .yaml = "model: {classes: 3}\ndata: {train: {path: d.csv}, eval: {path: /e}}\n"});

    ct_config_print(&l->cfg, "/home/me", &text);
    cr_assert_not_null(strstr(ct_buf_str(&text), "path: /home/me/sub/d.csv "));
    cr_assert_not_null(strstr(ct_buf_str(&text), "# sub/a.yaml:2:22\n"));
    cr_assert_not_null(strstr(ct_buf_str(&text), "path: /e "));
    unload(l);
    ct_buf_deinit(&text);
}

Test(layers, the_hash_changes_with_what_nodes_must_agree_on_and_with_nothing_else)
{
    struct loaded *standard = load_argv((const char *const[]){NULL});
    uint64_t hash = ct_config_hash(&standard->cfg);
    struct ct_buf before = {0};

    ct_config_settings(&standard->cfg, &before);
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        char option[256], setting[256], text[TEXT_ROOM];
        const char *const argv[] = {option, NULL};
        const struct ct_config_section *section = ct_config_section_find(key->section);
        struct ct_buf value = {0}, normal = {0};

        canonical(key, key->standard, &normal);
        for (unsigned n = 0; n < 3; n++)
            if (n == 0 || strcmp(ct_buf_str(&value), ct_buf_str(&normal)) == 0)
                canonical(key, value_of(key, n, text), &value);
        (void)snprintf(setting, sizeof setting, "--%s=%s", key->path, ct_buf_str(&value));
        /* Lists of texts are printed as in YAML, and given in parts with commas. */
        (void)snprintf(option, sizeof option, "--%s=%s", key->path,
                       key->type == CT_CONFIG_TYPE_STRS ? text : ct_buf_str(&value));
        struct loaded *l = load_argv(argv);
        bool shared = (section == NULL || section->shared) && key->type != CT_CONFIG_TYPE_INPUT;
        bool changed = strcmp(ct_buf_str(&value), ct_buf_str(&normal)) != 0; /* mlp is alone */
        cr_assert_eq(ct_config_hash(&l->cfg) != hash, shared && changed, "%s", option);
        struct ct_buf settings = {0};
        ct_config_settings(&l->cfg, &settings);
        cr_assert_eq(strcmp(ct_buf_str(&settings), ct_buf_str(&before)) != 0, shared && changed,
                     "%s: %s", option, ct_buf_str(&settings));
        if (shared && changed)
            cr_assert_not_null(strstr(ct_buf_str(&settings), setting));
        ct_buf_deinit(&settings);
        unload(l);
        ct_buf_deinit(&value);
        ct_buf_deinit(&normal);
    }
    ct_buf_deinit(&before);
    unload(standard);
}
