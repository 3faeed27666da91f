/* What concerns more than one key, or a text with a grammar of its own: a table of rules.
 *
 * A rule looks at a config and writes, broken or not, the end of a sentence that begins with the
 * name of its key; the place is where that key was set. A rule is passed over when a key that it
 * looks at has been complained about already; rules about training, when there is no whole YAML
 * file. */
#include "config/checks.h"

#include "base/assert.h"
#include "base/signals.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- launch --------------------------------------------------------------------------------- */

static bool min_above_max(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_nodes *nodes = member;

    (void)cfg;
    (void)ct_buf_printf(why, "%" PRId64 ":%" PRId64 ": MIN exceeds MAX; swap them", nodes->min,
                        nodes->max);
    return nodes->min > nodes->max;
}

static bool no_rendezvous(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_printf(why, "is above 1, so the nodes need a place to meet: add --rdzv_endpoint "
                             "HOST:PORT, or --master_addr HOST");
    return cfg->launch.nnodes.max > 1 && !cfg->launch.standalone &&
           cfg->launch.rdzv_endpoint[0] == '\0' && cfg->launch.master_addr[0] == '\0';
}

static bool static_and_elastic(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_puts(why,
                      "static knows one number of nodes, not MIN:MAX; use c10d or leave it out");
    return cfg->launch.rdzv_backend == CT_CONFIG_RDZV_BACKEND_STATIC &&
           cfg->launch.nnodes.min != cfg->launch.nnodes.max;
}

/* What was found out, and not asked for, is judged by who found it out. */
static bool standalone_with_nodes(const struct ct_config *cfg, const void *member,
                                  struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_printf(
        why, "means one node, but nnodes asks for at least %" PRId64 "; leave one of them out",
        cfg->launch.nnodes.min);
    return cfg->launch.standalone && cfg->launch.nnodes.min > 1 &&
           ct_config_origin(cfg, &cfg->launch.nnodes)->layer != CT_CONFIG_PRESET;
}

static bool bad_worker_count(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    enum { MOST = 4096 };
    static const char *const words[] = {"cpu", "gpu", "auto"};
    char shown[CT_CONFIG_SHOWN_ROOM];
    const char *text = *(const char *const *)member;
    int64_t count = 0;

    (void)cfg;
    for (size_t i = 0; i < CT_COUNT(words); i++)
        if (strcmp(text, words[i]) == 0)
            return false;
    if (strchr(text, '=') != NULL) /* a number for each host: lib/hardware/nproc.c reads it */
        return false;
    bool number = ct_parse_i64(text, &count) == 0;
    (void)ct_buf_printf(why, "must be a number from 1 to %d, cpu, gpu or auto, not \"%s\"%s", MOST,
                        ct_config_shown(text, shown),
                        number ? "" : "; for devices of another kind give their number");
    return !number || count < 1 || count > MOST;
}

static bool rank_beyond_nodes(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    int64_t rank = *(const int64_t *)member;

    (void)ct_buf_printf(why, "%" PRId64 " is not below the number of nodes (nnodes %" PRId64 ")",
                        rank, cfg->launch.nnodes.max);
    return rank >= cfg->launch.nnodes.max && cfg->launch.nnodes.min <= cfg->launch.nnodes.max;
}

static bool module_without_python(const struct ct_config *cfg, const void *member,
                                  struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_puts(why, "and no_python contradict each other; give one of them");
    return cfg->launch.module && cfg->launch.no_python;
}

static bool python_for_yaml(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_printf(why, "is for programs, but %s is a YAML file",
                        cfg->command.file != NULL ? cfg->command.file : "");
    return *(const bool *)member && cfg->command.file != NULL;
}

static bool bad_streams(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    char shown[CT_CONFIG_SHOWN_ROOM];
    const char *spec = *(const char *const *)member;

    (void)cfg;
    (void)ct_buf_printf(why, "wants 0, 1, 2 or 3, or RANK:N,RANK:N with such numbers, not \"%s\"",
                        ct_config_shown(spec, shown));
    return ct_config_streams(spec, 0) < 0;
}

static bool bad_signals(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_strs *names = member;
    struct ct_error err = {0};
    uint64_t set;
    int rc = ct_signals_parse(names->at, (size_t)names->count, &set, &err);

    (void)cfg;
    (void)ct_buf_puts(why, err.text);
    return rc != 0;
}

static uint64_t signals_of(const struct ct_config_strs *names)
{
    uint64_t set = 0;

    (void)ct_signals_parse(names->at, (size_t)names->count, &set, NULL);
    return set;
}

static bool is_default(const struct ct_config *cfg, const void *member)
{
    return ct_config_origin(cfg, member)->layer == CT_CONFIG_DEFAULT;
}

void ct_config_signals(const struct ct_config *cfg, uint64_t *ret_ends, uint64_t *ret_forwards)
{
    uint64_t ends = signals_of(&cfg->launch.signals_to_handle);
    uint64_t forwards = signals_of(&cfg->launch.forward_signals);

    if (is_default(cfg, &cfg->launch.forward_signals))
        forwards &= ~ends;
    ends &= ~forwards;
    *ret_ends = ends & ~ct_config_requeue_signals(cfg);
    *ret_forwards = forwards & ~ct_config_requeue_signals(cfg);
}

uint64_t ct_config_requeue_signals(const struct ct_config *cfg)
{
    return signals_of(&cfg->launch.requeue_signals);
}

static bool signal_in_both_lists(const struct ct_config *cfg, const void *member,
                                 struct ct_buf *why)
{
    const struct ct_config_strs *forwards = member;
    const struct ct_config_strs *ends = &cfg->launch.signals_to_handle;

    for (int64_t i = 0; i < forwards->count; i++) {
        const struct ct_config_strs one = {1, &forwards->at[i]};

        if (is_default(cfg, forwards) || is_default(cfg, ends) ||
            (signals_of(ends) & signals_of(&one)) == 0)
            continue;
        (void)ct_buf_printf(why,
                            "and signals_to_handle both name %s; a signal either ends the job or "
                            "is passed on to the workers",
                            forwards->at[i]);
        return true;
    }
    return false;
}

static bool last_call_after_join(const struct ct_config *cfg, const void *member,
                                 struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_puts(why, "must be shorter than join_timeout");
    return cfg->launch.last_call_ms >= cfg->launch.join_timeout_ms;
}

/* ---- training ------------------------------------------------------------------------------- */

static bool wrong_classes(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    int64_t least = cfg->model.loss == CT_CONFIG_LOSS_CROSS_ENTROPY ? 2 : 1;
    int64_t classes = *(const int64_t *)member;

    if (cfg->model.type == CT_CONFIG_MODEL_GPT) {
        (void)ct_buf_puts(why, "is not for a gpt: give model.vocabulary, or nothing");
        return classes != 0;
    }
    if (classes == 0 && cfg->model.type == CT_CONFIG_MODEL_LAYERS)
        return false; /* as many as the last layer gives */
    if (classes == 0)
        (void)ct_buf_puts(why, "is missing: say how many classes the labels have");
    else
        (void)ct_buf_printf(why, "must be at least %" PRId64 " with this loss", least);
    return classes < least;
}

/* A model of layers has its list, and says what goes in: nobody guesses the shape of an image. */
static bool wrong_layers(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_layers *layers = member;
    bool list = cfg->model.type == CT_CONFIG_MODEL_LAYERS;

    if (list)
        (void)ct_buf_puts(why, "is missing: a model of type layers wants the list of them");
    else
        (void)ct_buf_printf(why, "is a list, but a model of type %s takes a number of blocks",
                            ct_config_word(cfg, &cfg->model.type));
    return list ? layers->list == NULL || layers->count == 0 : layers->list != NULL;
}

static bool wrong_input(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_ints *input = member;
    bool layers = cfg->model.type == CT_CONFIG_MODEL_LAYERS;
    bool shape = input->count == 1 || (layers && input->count == 3);

    if (shape)
        (void)ct_buf_puts(why, "is missing: say how many features a sample has, or the channels, "
                               "height and width of an image ([1, 28, 28])");
    else
        (void)ct_buf_printf(why, "has %" PRId64 " numbers, must have %s", input->count,
                            layers ? "1 (features) or 3 (channels, height, width)"
                                   : "1, the features of a sample");
    for (int64_t i = 0; i < input->count && layers; i++)
        if (input->at[i] == 0)
            return true;
    return !shape;
}

static bool too_many_layers(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    enum { MOST = 16 };
    const struct ct_config_ints *hidden = member;

    (void)cfg;
    (void)ct_buf_printf(why, "has %" PRId64 " elements, more than the limit of %d", hidden->count,
                        MOST);
    return hidden->count > MOST;
}

/* A size of a gpt that nothing gives. */
static bool size_missing(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "is missing: a gpt needs it, or a model.preset");
    return cfg->model.type == CT_CONFIG_MODEL_GPT &&
           cfg->model.preset == CT_CONFIG_GPT_PRESET_NONE && *(const int64_t *)member == 0;
}

static bool heads_do_not_divide(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    int64_t heads = *(const int64_t *)member, width = cfg->model.width;

    (void)ct_buf_printf(why,
                        "%" PRId64 " does not divide model.width %" PRId64
                        ": each head has an equal share of the columns",
                        heads, width);
    return heads > 0 && width % heads != 0;
}

/* The data source that a member of it belongs to. */
static const struct ct_config_source *source_of(const struct ct_config *cfg, const void *member)
{
    size_t offset = (size_t)((const char *)member - (const char *)cfg);

    return offset < offsetof(struct ct_config, data.eval) ? &cfg->data.train : &cfg->data.eval;
}

bool ct_config_source_wanted(const struct ct_config *cfg, const struct ct_config_source *source)
{
    return source == &cfg->data.train || source->path[0] != '\0' || source->images[0] != '\0' ||
           source->labels[0] != '\0';
}

/* Windows of tokens are for a gpt, features for all others. */
static bool wrong_format(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    enum ct_config_format format = *(const enum ct_config_format *)member;
    bool tokens = format == CT_CONFIG_FORMAT_TEXT || format == CT_CONFIG_FORMAT_TOKENS;
    bool gpt = cfg->model.type == CT_CONFIG_MODEL_GPT;

    (void)ct_buf_printf(why, "%s gives %s, but a model of type %s takes %s",
                        ct_config_word(cfg, member), tokens ? "tokens" : "features",
                        ct_config_word(cfg, &cfg->model.type),
                        gpt ? "tokens (text, tokens)" : "features (csv, idx)");
    return ct_config_source_wanted(cfg, source_of(cfg, member)) && tokens != gpt;
}

/* A file of a source that its format does not have, or needs and lacks. */
static bool wrong_file(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_source *source = source_of(cfg, member);
    const char *format = ct_config_word(cfg, &source->format);
    bool idx = source->format == CT_CONFIG_FORMAT_IDX;
    bool wanted = member == (const void *)&source->path ? !idx : idx;
    bool given = (*(const char *const *)member)[0] != '\0';

    if (wanted)
        (void)ct_buf_printf(why, "is missing: format %s reads it", format);
    else
        (void)ct_buf_printf(why, "is given, but format %s does not read it", format);
    return given != wanted && ct_config_source_wanted(cfg, source);
}

/* The file of merges goes with GPT-2's tokenizer, which goes with a text. */
static bool wrong_merges(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_source *source = source_of(cfg, member);
    bool wanted =
        source->format == CT_CONFIG_FORMAT_TEXT && source->tokenizer == CT_CONFIG_TOKENIZER_GPT2;
    bool given = source->merges[0] != '\0';

    (void)ct_buf_puts(why, wanted ? "is missing: the tokenizer gpt2 reads it"
                                  : "is given, but only a text's tokenizer gpt2 reads it");
    return given != wanted && ct_config_source_wanted(cfg, source);
}

static bool empty_split(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_pair *split = member;

    (void)cfg;
    (void)ct_buf_printf(why, "must go from a smaller to a larger fraction, not from %g to %g",
                        split->at[0], split->at[1]);
    return split->at[0] >= split->at[1];
}

/* The divisor of `whole` nearest to `wanted`. */
static int64_t nearest_divisor(int64_t whole, int64_t wanted)
{
    for (int64_t away = 0;; away++) {
        if (wanted > away && whole % (wanted - away) == 0)
            return wanted - away;
        if (wanted + away <= whole && whole % (wanted + away) == 0)
            return wanted + away;
    }
}

static bool micro_does_not_divide(const struct ct_config *cfg, const void *member,
                                  struct ct_buf *why)
{
    int64_t micro = *(const int64_t *)member;

    if (micro == 0 || cfg->batch.global % micro == 0)
        return false;
    (void)ct_buf_printf(why,
                        "must divide batch.global (%" PRId64 "), which %" PRId64
                        " does not; %" PRId64 " would",
                        cfg->batch.global, micro, nearest_divisor(cfg->batch.global, micro));
    return true;
}

static bool nesterov_without_momentum(const struct ct_config *cfg, const void *member,
                                      struct ct_buf *why)
{
    bool sgd = cfg->optim.type == CT_CONFIG_OPTIMIZER_SGD;

    if (sgd)
        (void)ct_buf_puts(why, "needs optim.momentum above 0, 0.9 is usual");
    else
        (void)ct_buf_printf(why, "is for sgd, but optim.type is %s",
                            ct_config_word(cfg, &cfg->optim.type));
    return *(const bool *)member && (!sgd || cfg->optim.momentum == 0);
}

static bool bad_factor(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_strs *factors = member;
    char shown[CT_CONFIG_SHOWN_ROOM], pattern[CT_CONFIG_PATTERN_SIZE];
    double factor;

    (void)cfg;
    for (int64_t i = 0; i < factors->count; i++) {
        if (ct_config_factor(factors->at[i], pattern, &factor) == 0)
            continue;
        (void)ct_buf_printf(why,
                            "holds \"%s\"; each part is PATTERN=FACTOR with a factor from 0 to "
                            "1000, such as head.*=10",
                            ct_config_shown(factors->at[i], shown));
        return true;
    }
    return false;
}

/* "auto" and "1d" are words for the first place. */
static bool misplaced_word(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    const struct ct_config_strs *names = member;

    (void)cfg;
    for (int64_t i = 0; i < names->count; i++) {
        bool alone = strcmp(names->at[i], "auto") == 0;
        if ((alone && names->count > 1) || (i > 0 && strcmp(names->at[i], "1d") == 0)) {
            (void)ct_buf_printf(why, "%s",
                                alone ? "has auto beside others; it stands alone"
                                      : "has 1d behind others; put it first");
            return true;
        }
    }
    return false;
}

static bool no_average(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)ct_buf_puts(why, "looks at an average that is not kept: set optim.ema, 0.999 is usual");
    return *(const bool *)member && cfg->optim.ema == 0;
}

static bool nothing_to_train(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_puts(why, "and train.steps are both 0; one of them must say how long to train");
    return cfg->train.epochs == 0 && cfg->train.steps == 0;
}

static bool warmup_too_long(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_printf(why,
                        "is longer than the whole training (train.steps is %" PRId64
                        "); make it shorter (0 is none), or give more steps",
                        cfg->train.steps);
    return cfg->train.steps > 0 && cfg->schedule.warmup > cfg->train.steps;
}

static bool decay_too_long(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    int64_t decay = *(const int64_t *)member;

    (void)ct_buf_printf(why,
                        "%" PRId64 " and schedule.warmup %" PRId64
                        " are longer than the whole training (train.steps is %" PRId64
                        "); make one of them shorter, or give more steps",
                        decay, cfg->schedule.warmup, cfg->train.steps);
    return cfg->schedule.type == CT_CONFIG_SCHEDULE_WSD && cfg->train.steps > 0 && decay > 0 &&
           cfg->schedule.warmup + decay > cfg->train.steps;
}

/* ---- log ------------------------------------------------------------------------------------ */

static bool wandb_of_no_file(const struct ct_config *cfg, const void *member, struct ct_buf *why)
{
    (void)member;
    (void)ct_buf_puts(why, "takes its records from metrics.jsonl, which log.jsonl: false leaves "
                           "out; set log.jsonl to true, or log.wandb to off");
    return cfg->log.wandb != CT_CONFIG_WANDB_OFF && !cfg->log.jsonl;
}

#define AT(member) offsetof(struct ct_config, member)

static const struct ct_config_rule rules[] = {
    {AT(launch.nnodes), AT(launch.nnodes), false, min_above_max},
    {AT(launch.nnodes), AT(launch.rdzv_endpoint), false, no_rendezvous},
    {AT(launch.nproc_per_node), AT(launch.nproc_per_node), false, bad_worker_count},
    {AT(launch.node_rank), AT(launch.nnodes), false, rank_beyond_nodes},
    {AT(launch.rdzv_backend), AT(launch.nnodes), false, static_and_elastic},
    {AT(launch.standalone), AT(launch.nnodes), false, standalone_with_nodes},
    {AT(launch.module), AT(launch.no_python), false, module_without_python},
    {AT(launch.module), AT(launch.module), false, python_for_yaml},
    {AT(launch.no_python), AT(launch.no_python), false, python_for_yaml},
    {AT(launch.run_path), AT(launch.run_path), false, python_for_yaml},
    {AT(launch.redirects), AT(launch.redirects), false, bad_streams},
    {AT(launch.tee), AT(launch.tee), false, bad_streams},
    {AT(launch.signals_to_handle), AT(launch.signals_to_handle), false, bad_signals},
    {AT(launch.forward_signals), AT(launch.forward_signals), false, bad_signals},
    {AT(launch.requeue_signals), AT(launch.requeue_signals), false, bad_signals},
    {AT(launch.forward_signals), AT(launch.signals_to_handle), false, signal_in_both_lists},
    {AT(log.wandb), AT(log.jsonl), false, wandb_of_no_file},
    {AT(launch.last_call_ms), AT(launch.join_timeout_ms), false, last_call_after_join},
    {AT(model.classes), AT(model.loss), true, wrong_classes},
    {AT(model.hidden), AT(model.hidden), true, too_many_layers},
    {AT(model.layers), AT(model.type), true, wrong_layers},
    {AT(model.input), AT(model.type), true, wrong_input},
    {AT(model.context), AT(model.preset), true, size_missing},
    {AT(model.layers), AT(model.preset), true, size_missing},
    {AT(model.heads), AT(model.preset), true, size_missing},
    {AT(model.width), AT(model.preset), true, size_missing},
    {AT(model.heads), AT(model.width), true, heads_do_not_divide},
    {AT(data.train.format), AT(model.type), true, wrong_format},
    {AT(data.eval.format), AT(model.type), true, wrong_format},
    {AT(data.train.path), AT(data.train.format), true, wrong_file},
    {AT(data.train.images), AT(data.train.format), true, wrong_file},
    {AT(data.train.labels), AT(data.train.format), true, wrong_file},
    {AT(data.train.merges), AT(data.train.tokenizer), true, wrong_merges},
    {AT(data.train.split), AT(data.train.split), true, empty_split},
    {AT(data.eval.path), AT(data.eval.format), true, wrong_file},
    {AT(data.eval.images), AT(data.eval.format), true, wrong_file},
    {AT(data.eval.labels), AT(data.eval.format), true, wrong_file},
    {AT(data.eval.merges), AT(data.eval.tokenizer), true, wrong_merges},
    {AT(data.eval.split), AT(data.eval.split), true, empty_split},
    {AT(batch.micro), AT(batch.global), true, micro_does_not_divide},
    {AT(optim.nesterov), AT(optim.momentum), true, nesterov_without_momentum},
    {AT(optim.lr_factors), AT(optim.lr_factors), true, bad_factor},
    {AT(optim.no_decay), AT(optim.no_decay), true, misplaced_word},
    {AT(eval.ema), AT(optim.ema), true, no_average},
    {AT(train.epochs), AT(train.steps), true, nothing_to_train},
    {AT(schedule.warmup), AT(train.steps), true, warmup_too_long},
    {AT(schedule.decay), AT(train.steps), true, decay_too_long},
};

/* What --standalone makes pointless: the user may have thought of something. */
static void note_unused(struct ct_config_loader *loader)
{
    const struct ct_config *cfg = loader->cfg;
    const void *const members[] = {&cfg->launch.rdzv_endpoint, &cfg->launch.master_addr,
                                   &cfg->launch.nnodes};
    bool elastic = cfg->launch.nnodes.min == 1 && cfg->launch.nnodes.max > 1;
    size_t count = CT_COUNT(members) - !elastic; /* one node agrees with it, more are an error */

    for (size_t i = 0; cfg->launch.standalone && i < count; i++)
        if (!is_default(cfg, members[i]))
            ct_config_note(loader, ct_config_origin(cfg, members[i]),
                           ct_config_key_of(cfg, members[i])->path,
                           "has no effect: --standalone meets nobody");
}

/* Whether the rule can be looked at: both keys have values that their users meant. */
static bool applies(const struct ct_config_loader *loader, const struct ct_config_rule *rule)
{
    const char *cfg = (const char *)loader->cfg;
    const struct ct_config_key *key = ct_config_key_of(loader->cfg, cfg + rule->member);
    const struct ct_config_key *other = ct_config_key_of(loader->cfg, cfg + rule->other);

    if (rule->training && (loader->cfg->command.file == NULL || loader->unreadable))
        return false;
    return !loader->failed[ct_config_key_index(key)] && !loader->failed[ct_config_key_index(other)];
}

/* The rules of one table. */
static void check_all(struct ct_config_loader *loader, const struct ct_config_rules *table,
                      bool wrong)
{
    const struct ct_config *cfg = loader->cfg;
    struct ct_buf why;

    ct_buf_init(&why, 0);
    for (size_t i = 0; i < table->count; i++) {
        const struct ct_config_rule *rule = &table->rules[i];
        const void *member = (const char *)cfg + rule->member;
        struct ct_config_origin origin = *ct_config_origin(cfg, member);

        ct_buf_clear(&why);
        if (!applies(loader, rule) || !rule->broken(cfg, member, &why))
            continue;
        if (origin.layer == CT_CONFIG_DEFAULT && wrong)
            continue;
        if (origin.layer == CT_CONFIG_DEFAULT && rule->training)
            origin = (struct ct_config_origin){.layer = CT_CONFIG_FILE, .name = cfg->command.file};
        ct_config_complain(loader, &origin, ct_config_key_of(cfg, member)->path, "%s",
                           ct_buf_str(&why));
    }
    ct_buf_deinit(&why);
}

void ct_config_check(struct ct_config_loader *loader)
{
    const struct ct_config_rules tables[] = {
        {rules, CT_COUNT(rules)},  ct_config_parallel_rules,   ct_config_served_rules,
        ct_config_precision_rules, ct_config_evaluation_rules,
    };
    bool wrong = loader->errs->count > 0;

    note_unused(loader);
    ct_config_fit_trial(loader);
    for (size_t i = 0; i < CT_COUNT(tables); i++)
        check_all(loader, &tables[i], wrong);
}
