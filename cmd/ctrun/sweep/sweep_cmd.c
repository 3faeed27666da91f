/* ctrun sweep, or ctrun --sweep: one training with several settings, as many trials side by side as
 * fit on this node; the worst half is stopped early. Started again, it goes on with what is left.
 *
 *     ctrun --sweep optim.lr=1e-3,3e-4 --sweep seed=1,2 configs/char_gpt.yaml */
#include "cmd/ctrun/cli/commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "cmd/ctrun/cli/cli_options.h"
#include "cmd/ctrun/sweep/sweep_results.h"
#include "cmd/ctrun/sweep/sweep_trials.h"
#include "hardware/nproc.h"
#include "recipe/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_BYTES = 1 << 20 };

struct options {
    struct ct_option_texts axes;
    const char *metric, *folder;
    int64_t slots; /* 0: not given */
    bool all;
};

/* ---- what is asked for ---------------------------------------------------------------------- */

bool ct_sweep_asked(int argc, char *const *argv)
{
    for (int i = 1; i < argc;) {
        const char *word = argv[i];
        int width = 1;

        if (strcmp(word, "--sweep") == 0 || ct_starts_with(word, "--sweep="))
            return true;
        if (strcmp(word, "--") == 0)
            return false;
        if (word[0] == '-')
            width = ct_config_option_width(word, i + 1 < argc ? argv[i + 1] : NULL);
        else if (!ct_ends_with(word, ".yaml") && !ct_ends_with(word, ".yml"))
            return false; /* a program, whose words are its own */
        i += CT_MAX(width, 1);
    }
    return false;
}

static int parse_axes(struct sweep *sweep, const struct ct_option_texts *texts,
                      struct ct_error *err)
{
    if (texts->count == 0)
        return ct_error_set(err, CT_EUSAGE, "say what to sweep: --sweep optim.lr=1e-3,3e-4");
    if (texts->count > CT_SWEEP_AXES)
        return ct_error_set(err, CT_EUSAGE, "--sweep comes more than %d times", CT_SWEEP_AXES);
    for (int i = 0; i < texts->count; i++) {
        const char *wrong = ct_sweep_axis_parse(&sweep->axes[i], texts->at[i]);
        if (wrong != NULL)
            return ct_error_set(err, CT_EUSAGE, "--sweep %.200s: %s", texts->at[i], wrong);
        for (int k = 0; k < i; k++)
            if (ct_config_same_name(sweep->axes[k].key, sweep->axes[i].key))
                return ct_error_set(err, CT_EUSAGE, "--sweep names %s twice", sweep->axes[i].key);
    }
    sweep->axis_count = texts->count;
    sweep->rules.trials = ct_sweep_grid_size(sweep->axes, sweep->axis_count);
    if (sweep->rules.trials > CT_SWEEP_TRIALS)
        return ct_error_set(err, CT_EUSAGE, "the sweep has more than %d trials: fewer values",
                            CT_SWEEP_TRIALS);
    return 0;
}

static int read_options(struct sweep *sweep, struct options *options, int argc, char **argv,
                        struct ct_error *err)
{
    const struct ct_option rows[] = {
        {"sweep", CT_OPTION_TEXTS, &options->axes},
        {"sweep_slots", CT_OPTION_NUMBER, &options->slots},
        {"sweep_by", CT_OPTION_TEXT, &options->metric},
        {"sweep_dir", CT_OPTION_TEXT, &options->folder},
        {"sweep_all", CT_OPTION_FLAG, &options->all},
    };
    struct ct_cli_options cli = {.command = "sweep",
                                 .options = rows,
                                 .option_count = CT_COUNT(rows),
                                 .places = &sweep->file,
                                 .room = 1,
                                 .rest = sweep->words};
    int code = ct_cli_options_read(&cli, argc - 1, argv + 1, err);

    sweep->word_count = cli.rest_count;
    if (code == 0 && sweep->file == NULL)
        code = ct_error_set(err, CT_EUSAGE, "name the YAML file of a training");
    if (code == 0)
        code = parse_axes(sweep, &options->axes, err);
    if (code == 0 && options->slots < 0)
        code = ct_error_set(err, CT_EUSAGE, "--sweep_slots %" PRId64 ": it is 1 or more",
                            options->slots);
    sweep->metric = options->metric;
    sweep->rules.higher = strcmp(options->metric, "accuracy") == 0;
    if (code == 0 && !sweep->rules.higher && strcmp(options->metric, "loss") != 0)
        code = ct_error_set(err, CT_EUSAGE, "--sweep_by %.64s: it is loss or accuracy",
                            options->metric);
    return code;
}

/* ---- its trials ----------------------------------------------------------------------------- */

static void name_trials(struct sweep *sweep)
{
    for (int i = 0; i < sweep->rules.trials; i++) {
        struct sweep_trial *facts = &sweep->facts[i];
        struct ct_buf label;

        ct_buf_init(&label, 0);
        for (int k = 0; k < sweep->axis_count; k++) {
            (void)ct_buf_printf(&label, "%s%s ", k > 0 ? ", " : "", sweep->axes[k].key);
            ct_buf_put_clean(&label, ct_sweep_grid_value(sweep->axes, sweep->axis_count, i, k), "");
        }
        (void)ct_str_copy(facts->label, sizeof facts->label, ct_buf_str(&label));
        ct_buf_deinit(&label);
        (void)snprintf(facts->folder, sizeof facts->folder, "%.4000s/trial_%0*d", sweep->folder,
                       sweep->rules.trials > 100 ? 3 : 2, i);
    }
}

/* The configuration of a trial, with all errors of a wrong one told. */
static int load_trial(const struct sweep *sweep, int trial, struct ct_config *ret,
                      struct ct_error *err)
{
    char **argv = calloc((size_t)sweep->word_count + CT_SWEEP_AXES + SWEEP_OWN_WORDS, sizeof *argv);
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    struct ct_buf buf;
    int code = CT_ENOMEM;

    ct_buf_init(&buf, 0);
    if (argv != NULL && errs != NULL) {
        int count = sweep_words(sweep, trial, -1, &buf, argv);
        const struct ct_config_input input = {.argc = count - 1,
                                              .argv = argv + 1,
                                              .env = environ,
                                              .command_needed = true,
                                              .file_only = true};
        code = ct_config_load(ret, &input, errs);
        if (code != 0)
            *err = errs->at[0];
    }
    if (code == 0)
        code = ct_recipe_check(ret, err);
    if (code == 0 && ret->launch.nnodes.max > 1)
        code =
            ct_error_set(err, CT_EUSAGE, "a sweep runs on one node, but launch.nnodes is above 1");
    ct_buf_deinit(&buf);
    free(errs);
    free(argv);
    return code;
}

/* All of them before the first begins; *ret_first is that of the first. */
static int check_trials(struct sweep *sweep, struct ct_config *ret_first, struct ct_error *err)
{
    struct ct_config *cfg = calloc(1, sizeof *cfg);
    int code = cfg != NULL ? load_trial(sweep, 0, ret_first, err) : CT_ENOMEM;

    for (int i = 1; i < sweep->rules.trials && code == 0; i++) {
        code = load_trial(sweep, i, cfg, err);
        ct_config_deinit(cfg);
        *cfg = (struct ct_config){.command = {.file = NULL}};
    }
    free(cfg);
    return code;
}

/* How many run side by side, and where. */
static int find_seats(struct sweep *sweep, const struct ct_config *cfg, int64_t slots,
                      struct ct_error *err)
{
    static uint16_t order[CT_CPUS_MAX];
    struct ct_cpus allowed;
    bool known = ct_cpus_allowed(&allowed) == 0;
    const struct ct_host_view host = {.root = "",
                                      .cpus = known ? ct_cpus_available("", &allowed) : 1,
                                      .cuda_visible_devices = getenv("CUDA_VISIBLE_DEVICES")};
    uint32_t gpus = cfg->train.device == CT_CONFIG_DEVICE_CPU ? 0 : ct_nproc_gpus(&host);
    uint32_t workers = 1;
    int code = ct_nproc_resolve(cfg->launch.nproc_per_node, &host, &workers, err);

    if (code != 0)
        return code;
    int64_t given = slots > 0 ? slots : gpus > 0 ? (int64_t)gpus : (int64_t)host.cpus;
    int64_t seats = CT_MIN(CT_MAX(given / (int64_t)workers, 1), SWEEP_SEATS);
    sweep->workers = (int)workers;
    sweep->rules.seats = (int)CT_MIN(seats, (int64_t)sweep->rules.trials);
    sweep->gpus = gpus > 0 && cfg->launch.devices.count == 0 &&
                  (int64_t)workers * sweep->rules.seats <= (int64_t)gpus;
    uint32_t cpus = known ? ct_cpus_order("", &allowed, order) : 0;
    for (int i = 0; i < sweep->rules.seats; i++)
        sweep->bound[i] =
            sweep->rules.seats > 1 &&
            ct_cpus_share(order, cpus, (uint32_t)sweep->rules.seats, (uint32_t)i, &sweep->cpus[i]);
    return 0;
}

/* ---- its folder ----------------------------------------------------------------------------- */

/* What makes it this sweep: file, settings and options; also the name of its folder. */
static void describe(const struct sweep *sweep, const struct options *options, struct ct_buf *to)
{
    (void)ct_buf_puts(to, "{\"v\":1,\"file\":");
    ct_json_string(to, sweep->file);
    (void)ct_buf_puts(to, ",\"sweep\":[");
    for (int i = 0; i < options->axes.count; i++) {
        (void)ct_buf_puts(to, i > 0 ? "," : "");
        ct_json_string(to, options->axes.at[i]);
    }
    (void)ct_buf_puts(to, "],\"by\":");
    ct_json_string(to, options->metric);
    (void)ct_buf_printf(to, ",\"all\":%s,\"options\":[", options->all ? "true" : "false");
    for (int i = 0; i < sweep->word_count; i++) {
        (void)ct_buf_puts(to, i > 0 ? "," : "");
        ct_json_string(to, sweep->words[i]);
    }
    (void)ct_buf_puts(to, "]}\n");
}

static void name_folder(struct sweep *sweep, const struct options *options,
                        const struct ct_config *cfg, const struct ct_buf *record)
{
    char base[PATH_MAX];

    ct_config_run_base(cfg, base);
    if (options->folder[0] != '\0')
        (void)ct_str_copy(sweep->folder, sizeof sweep->folder, options->folder);
    else
        (void)snprintf(sweep->folder, sizeof sweep->folder, "%.4000s/sweep_%08x", base,
                       (unsigned)ct_hash64(record->data, record->size, 0));
}

/* A folder that holds another sweep is left alone. */
static int open_folder(const struct sweep *sweep, const struct ct_buf *record, struct ct_error *err)
{
    char path[PATH_MAX + 16];
    struct ct_buf there;

    (void)snprintf(path, sizeof path, "%s/sweep.json", sweep->folder);
    ct_buf_init(&there, 0);
    int code = ct_fs_read(path, RECORD_BYTES, &there, NULL);
    bool same = code == 0 && there.size == record->size &&
                memcmp(there.data, record->data, record->size) == 0;
    ct_buf_deinit(&there);
    if (code == 0)
        return same ? 0
                    : ct_error_set(err, CT_ECANTCREAT,
                                   "%s holds another sweep (see sweep.json in it): name another "
                                   "folder",
                                   sweep->folder);
    code = ct_fs_make_dirs(sweep->folder, err);
    return code == 0 ? ct_fs_replace(path, record->data, record->size, err) : code;
}

/* ---- the command ---------------------------------------------------------------------------- */

/* Without evaluations on the way nothing is known before the end. */
static void decide_rungs(struct sweep *sweep, const struct ct_config *cfg, bool all)
{
    bool evaluates = (cfg->data.eval.path[0] != '\0' || cfg->data.eval.images[0] != '\0') &&
                     cfg->eval.every.count > 0;

    sweep->rules.rungs = all || !evaluates ? 0 : ct_sweep_rungs(sweep->rules.trials);
    if (!all && !evaluates)
        ct_command_note("no trial is stopped early: there are no evaluations on the way "
                        "(data.eval, eval.every)");
}

static int prepare(struct sweep *sweep, const struct options *options, struct ct_error *err)
{
    struct ct_config *cfg = calloc(1, sizeof *cfg);
    struct ct_buf record;
    int code = cfg != NULL ? 0 : CT_ENOMEM;

    ct_buf_init(&record, 0);
    (void)ct_str_copy(sweep->folder, sizeof sweep->folder, ".");
    name_trials(sweep);
    if (code == 0)
        code = check_trials(sweep, cfg, err);
    if (code == 0)
        code = find_seats(sweep, cfg, options->slots, err);
    if (code == 0) {
        describe(sweep, options, &record);
        name_folder(sweep, options, cfg, &record);
        name_trials(sweep);
        decide_rungs(sweep, cfg, options->all);
        code = open_folder(sweep, &record, err);
    }
    ct_buf_deinit(&record);
    ct_config_deinit(cfg);
    free(cfg);
    return code;
}

static int run(struct sweep *sweep, struct ct_error *err)
{
    int failed = 0;

    sweep_read(sweep);
    ct_command_note("%d trials in %s, %d side by side with %d worker%s each", sweep->rules.trials,
                    sweep->folder, sweep->rules.seats, sweep->workers,
                    sweep->workers > 1 ? "s" : "");
    int code = sweep_run(sweep, err);
    if (code < 0)
        return code;
    sweep_results_print(sweep);
    if (code > 0) {
        ct_command_note("stopped; the same command goes on with what is left");
        return 128 + code;
    }
    for (int i = 0; i < sweep->rules.trials; i++)
        failed += sweep->trials[i].failed;
    if (failed == 0)
        return 0;
    ct_command_note("%d trial%s failed; the same command tries %s again", failed,
                    failed > 1 ? "s" : "", failed > 1 ? "them" : "it");
    return 1;
}

int ct_cmd_sweep(int argc, char **argv)
{
    struct options options = {.metric = "loss", .folder = ""};
    struct sweep *sweep = calloc(1, sizeof *sweep);
    struct ct_error err = {0};
    int code = CT_ENOMEM;

    if (sweep != NULL)
        sweep->words = calloc((size_t)argc + 1, sizeof *sweep->words);
    if (sweep != NULL && sweep->words != NULL)
        code = read_options(sweep, &options, argc, argv, &err);
    if (code == 0)
        code = prepare(sweep, &options, &err);
    if (code == 0)
        code = run(sweep, &err);
    if (sweep != NULL)
        free(sweep->words);
    free(sweep);
    return code >= 0 ? code : ct_command_fail("ctrun sweep", code, err.text);
}
