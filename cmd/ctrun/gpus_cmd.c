/* ctrun gpus: how this machine's GPUs are. With --ask and --watch it is the process that asks
 * NVML, for another ctrun (diagnose/nvml_probe_uv.h). */
#include "cli/commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/cli_options.h"
#include "diagnose/nvml_probe_uv.h"
#include "hardware/gpus.h"
#include "hardware/xid.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { LIMIT_S = 30 };

/* ---- the process that asks ------------------------------------------------------------------ */

/* False when nobody reads. */
static bool put(struct ct_buf *record)
{
    bool done = ct_fs_write_all(STDOUT_FILENO, ct_buf_str(record), record->size) == 0;

    ct_buf_clear(record);
    return done;
}

static void on_driver(void *context, const char *version, uint32_t cards)
{
    ct_health_print_driver(context, version, cards);
    (void)put(context);
}

static void on_card(void *context, const struct ct_nvml_card *card)
{
    ct_health_print_card(context, card);
    (void)put(context);
}

static int ask(void)
{
    struct ct_buf record;
    const struct ct_nvml_callbacks callbacks = {on_driver, on_card, &record};
    struct ct_error err = {0};

    ct_buf_init(&record, 0);
    if (ct_nvml_query(CT_NVML_LIBRARY, &callbacks, &err) != 0) {
        ct_health_print_error(&record, &err);
        (void)put(&record);
    }
    ct_buf_deinit(&record);
    return 0;
}

static bool on_xid(void *context, const struct ct_nvml_xid *xid)
{
    ct_xid_print(context, xid);
    return put(context);
}

/* It ends with the ctrun that started it, which decides what signals mean: Slurm sends them to all
 * processes of a step. */
static int watch(void)
{
    struct ct_buf record;
    struct ct_error err = {0};
    sigset_t all;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    ct_buf_init(&record, 0);
    if (ct_nvml_watch(CT_NVML_LIBRARY, on_xid, &record, &err) != 0) {
        ct_health_print_error(&record, &err);
        (void)put(&record);
    }
    ct_buf_deinit(&record);
    return 0;
}

/* ---- the one that is asked ------------------------------------------------------------------ */

struct gpu_report {
    struct ct_gpus gpus;
    struct ct_health health;
    uint64_t late_ms;
    bool is_wrong;
    struct ct_buf sentences;
};

static void on_sentence(void *context, bool is_wrong, const char *sentence)
{
    struct gpu_report *report = context;

    report->is_wrong |= is_wrong;
    (void)ct_buf_printf(&report->sentences, "%s\n", sentence);
}

/* A line a card, then sentences. */
static void print_text(struct gpu_report *report, struct ct_buf *to)
{
    for (uint32_t i = 0; i < report->health.received; i++) {
        const struct ct_nvml_card *card = &report->health.cards[i];
        struct ct_gpu gpu = {.address = ""};
        int32_t node = -1;

        (void)snprintf(gpu.address, sizeof gpu.address, "%s", card->address);
        (void)ct_buf_printf(to, "GPU %" PRIu32 "  %s  %s", card->index, card->address, card->name);
        if (card->memory_bytes > 0)
            (void)ct_buf_printf(to, "  %.1f of %.1f GiB free",
                                (double)card->free_bytes / 1073741824.0,
                                (double)card->memory_bytes / 1073741824.0);
        if (card->celsius >= 0)
            (void)ct_buf_printf(to, "  %" PRId32 " C", card->celsius);
        if (ct_gpu_node("", &gpu, &node) && node >= 0)
            (void)ct_buf_printf(to, "  NUMA node %" PRId32, node);
        (void)ct_buf_puts(to, "\n");
    }
    (void)ct_buf_append(to, report->sentences.data, report->sentences.size);
}

static void print_json(const struct ct_health *health, struct ct_buf *to)
{
    if (health->begun)
        ct_health_print_driver(to, health->driver, health->count);
    for (uint32_t i = 0; i < health->received; i++)
        ct_health_print_card(to, &health->cards[i]);
}

/* Nothing is known of the GPUs: programs get an object, too. */
static int refuse(bool json, int code, const char *why)
{
    struct ct_buf text;

    if (json) {
        ct_buf_init(&text, 0);
        (void)ct_buf_puts(&text, "{\"error\":");
        ct_json_string(&text, why);
        (void)ct_buf_printf(&text, ",\"status\":%d}\n", ct_exit_status(code));
        (void)fputs(ct_buf_str(&text), stdout);
        ct_buf_deinit(&text);
    }
    return ct_command_fail("ctrun gpus", code, why);
}

static int show(bool json, uint64_t limit_ms)
{
    static struct gpu_report report;
    struct ct_error err = {0};
    struct ct_buf text;

    ct_gpus_read("", &report.gpus);
    if (ct_gpus_present("") == 0)
        return refuse(json, CT_EUNAVAILABLE,
                      "no NVIDIA GPU in /dev or /proc/driver/nvidia that this user may open");
    int rc = ct_nvml_probe_wait(limit_ms, &report.health, &report.late_ms, &err);
    if (rc != 0)
        return refuse(json, rc, err.text);
    const struct ct_health_scope scope = {.gpus = &report.gpus, .late_ms = report.late_ms};

    ct_buf_init(&text, 0);
    ct_buf_init(&report.sentences, 0);
    ct_health_report(&report.health, &scope, on_sentence, &report);
    if (json)
        print_json(&report.health, &text);
    else
        print_text(&report, &text);
    if (ct_fs_write_all(STDOUT_FILENO, ct_buf_str(&text), text.size) != 0)
        rc = CT_EIO;
    if (json && report.is_wrong)
        (void)fputs(ct_buf_str(&report.sentences), stderr);
    ct_buf_deinit(&text);
    ct_buf_deinit(&report.sentences);
    if (rc != 0)
        return ct_exit_status(rc);
    if (report.is_wrong)
        return 1;
    return report.health.begun ? 0 : ct_exit_status(CT_EUNAVAILABLE);
}

int ct_cmd_gpus(int argc, char **argv)
{
    bool json = false, asks = false, watches = false;
    double limit_s = LIMIT_S;
    const struct ct_option options[] = {
        {"json", CT_OPTION_FLAG, &json},
        {"limit", CT_OPTION_REAL, &limit_s},
        {"ask", CT_OPTION_FLAG, &asks}, /* these two are ctrun's own use */
        {"watch", CT_OPTION_FLAG, &watches},
    };
    struct ct_cli_options cli = {
        .command = "gpus", .options = options, .option_count = CT_COUNT(options)};
    struct ct_error err = {0};

    if (ct_cli_options_read(&cli, argc - 1, argv + 1, &err) == 0 &&
        !(limit_s > 0 && limit_s <= 3600))
        (void)ct_error_set(&err, CT_EUSAGE,
                           "--limit is %g; it takes seconds, more than 0 and at "
                           "most 3600",
                           limit_s);
    if (err.code != 0)
        return ct_command_fail("ctrun", err.code, err.text);
    if (watches)
        return watch();
    return asks ? ask() : show(json, (uint64_t)(limit_s * 1000));
}
