/* ctrun doctor: what would keep a job from starting here and between machines. Looks (doctor/), has
 * it judged (doctor/core), prints. */
#include "cli/commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/cli_options.h"
#include "cmd/ctrun/cli/key_option.h"
#include "doctor/core/doctor.h"
#include "doctor/hosts_uv.h"
#include "doctor/look.h"
#include "net/endpoint.h"
#include "operators/admin_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_PORT = 29400, HOSTS_MAX = 64, WIDTH = 100, COLUMN = 20 };

struct report {
    bool json;
    uint32_t problems, warnings;
    int status; /* of the first problem */
    struct ct_buf text;
};

/* ---- the report ---- */

static void print_json(struct ct_buf *to, const char *host, const struct doctor_finding *finding)
{
    static const char *const levels[] = {"ok", "warning", "problem"};

    (void)ct_buf_puts(to, "{\"host\":");
    ct_json_string(to, host);
    (void)ct_buf_printf(to, ",\"check\":\"%s\",\"level\":\"%s\",\"text\":", finding->check,
                        levels[finding->level]);
    ct_json_string(to, finding->text);
    (void)ct_buf_puts(to, ",\"remedy\":");
    ct_json_string(to, finding->remedy);
    (void)ct_buf_printf(to, ",\"status\":%d}\n", ct_exit_status(finding->code));
}

static void print_text(struct ct_buf *to, const struct doctor_finding *finding)
{
    static const char *const levels[] = {"ok", "warning", "PROBLEM"};
    struct ct_buf clean; /* another machine may have said it */

    (void)ct_buf_printf(to, "%-8s %-10s ", levels[finding->level], finding->check);
    ct_buf_init(&clean, 0);
    ct_buf_put_clean(&clean, finding->text, "");
    ct_buf_wrap(to, ct_buf_str(&clean), COLUMN, COLUMN, WIDTH);
    ct_buf_deinit(&clean);
    (void)ct_buf_puts(to, "\n");
    if (finding->remedy[0] == '\0')
        return;
    (void)ct_buf_printf(to, "%*s", COLUMN, "");
    ct_buf_init(&clean, 0);
    (void)ct_buf_puts(&clean, "remedy: ");
    ct_buf_put_clean(&clean, finding->remedy, "");
    ct_buf_wrap(to, ct_buf_str(&clean), COLUMN, COLUMN, WIDTH);
    ct_buf_deinit(&clean);
    (void)ct_buf_puts(to, "\n");
}

/* `host` is "" for this machine. */
static void add(struct report *report, const char *host, const struct doctor_finding *findings,
                size_t count)
{
    if (!report->json)
        (void)ct_buf_printf(&report->text, "%s%s\n", host[0] == '\0' ? "this machine" : "\n", host);
    for (size_t i = 0; i < count; i++) {
        report->problems += findings[i].level == DOCTOR_PROBLEM;
        report->warnings += findings[i].level == DOCTOR_WARNING;
        if (report->json)
            print_json(&report->text, host, &findings[i]);
        else
            print_text(&report->text, &findings[i]);
    }
    if (report->status == 0)
        report->status = doctor_status(findings, count);
}

static void conclude(struct report *report)
{
    static const char *const numbers[] = {"no", "1"};
    char problems[16], warnings[16];

    if (report->json)
        return;
    (void)snprintf(problems, sizeof problems, "%u", report->problems);
    (void)snprintf(warnings, sizeof warnings, "%u", report->warnings);
    (void)ct_buf_printf(&report->text, "\n%s problem%s, %s warning%s\n",
                        report->problems < 2 ? numbers[report->problems] : problems,
                        report->problems == 1 ? "" : "s",
                        report->warnings < 2 ? numbers[report->warnings] : warnings,
                        report->warnings == 1 ? "" : "s");
}

/* ---- what to look at ---- */

struct hosts {
    struct doctor_host *at;
    size_t count;
};

static int add_host(struct hosts *hosts, const char *text, struct ct_error *err)
{
    struct ct_endpoint endpoint;
    int rc = ct_endpoint_parse(text, DEFAULT_PORT, &endpoint, err);

    if (rc == 0 && (endpoint.is_unix || endpoint.host[0] == '\0' || endpoint.port == 0))
        rc = ct_error_set(err, CT_EUSAGE, "\"%s\" is no host: give HOST or HOST:PORT", text);
    if (rc == 0 && hosts->count == HOSTS_MAX)
        rc = ct_error_set(err, CT_EUSAGE, "more than %d hosts are given", HOSTS_MAX);
    for (size_t i = 0; i < hosts->count && rc == 0; i++)
        if (strcmp(hosts->at[i].name.name, endpoint.host) == 0 &&
            hosts->at[i].port == endpoint.port)
            return 0;
    if (rc != 0)
        return rc;
    struct doctor_host *host = &hosts->at[hosts->count++];

    (void)ct_str_copy(host->given, sizeof host->given, text);
    (void)ct_str_copy(host->name.name, sizeof host->name.name, endpoint.host);
    host->port = endpoint.port;
    return 0;
}

/* Those of the command line, then those of --rdzv_endpoint. */
static int list_hosts(const struct ct_config *cfg, const char *const *names, int count,
                      struct hosts *hosts, struct ct_error *err)
{
    const char *list = cfg->launch.rdzv_endpoint;
    char one[CT_ENDPOINT_TEXT];
    int rc = 0;

    for (int i = 0; i < count && rc == 0; i++)
        rc = add_host(hosts, names[i], err);
    while (rc == 0 && *list != '\0') {
        ct_endpoint_next(&list, one);
        if (strncmp(one, "unix:", 5) != 0 && one[0] != '/') /* on this machine by its nature */
            rc = add_host(hosts, one, err);
    }
    return rc;
}

static bool is_beyond(const struct ct_config *cfg, const struct hosts *hosts)
{
    bool beyond = cfg->launch.nnodes.max > 1;

    for (size_t i = 0; i < hosts->count; i++)
        beyond |= !hosts->at[i].name.loopback;
    return beyond;
}

/* ---- looking ---- */

static int look_hosts(const struct ct_config *cfg, struct hosts *hosts)
{
    struct admin_request request = {.watch = false};
    struct ct_key key = {0};
    struct ct_error err = {0};
    const struct ct_key_source source = key_option_source(cfg);
    bool has_key = ct_key_source_given(&source) && ct_key_source_load(&source, &key, &err) == 0;
    bool has_job =
        (has_key && key.kind == CT_KEY_SECRET) || strcmp(cfg->launch.rdzv_id, "none") != 0;

    admin_sign(&request);
    const struct doctor_question question = {.key = has_key ? &key : NULL,
                                             .job = has_job ? cfg->launch.rdzv_id : "",
                                             .author = request.author};
    int rc = hosts->count > 0 ? doctor_look_hosts(hosts->at, hosts->count, &question) : 0;
    ct_net_key_wipe(&key);
    return rc;
}

static void look_here(const struct ct_config *cfg, const struct hosts *hosts, struct report *report)
{
    struct doctor_facts *facts = calloc(1, sizeof *facts);
    struct doctor_finding *findings = calloc(DOCTOR_CHECKS, sizeof *findings);

    if (facts != NULL && findings != NULL) {
        struct doctor_resolution own = {.lookup = &facts->name};

        facts->beyond = is_beyond(cfg, hosts);
        (void)gethostname(facts->name.name, sizeof facts->name.name - 1);
        doctor_resolve(&own, 1, 1500);
        doctor_look_machine(cfg, facts);
        doctor_look_programs(cfg, facts);
        add(report, "", findings, doctor_judge(facts, findings));
    }
    free(facts);
    free(findings);
}

static int look(const struct ct_config *cfg, struct hosts *hosts, bool json)
{
    struct report report = {.json = json};
    struct doctor_finding findings[DOCTOR_HOST_CHECKS];
    int rc = look_hosts(cfg, hosts);

    if (rc != 0)
        return ct_command_fail("ctrun doctor", rc, ct_strerror(rc));
    ct_buf_init(&report.text, 0);
    look_here(cfg, hosts, &report);
    for (size_t i = 0; i < hosts->count; i++)
        add(&report, hosts->at[i].given, findings, doctor_judge_host(&hosts->at[i], findings));
    conclude(&report);
    if (report.text.failed ||
        ct_fs_write_all(STDOUT_FILENO, ct_buf_str(&report.text), report.text.size) != 0)
        report.status = ct_exit_status(CT_EIO);
    ct_buf_deinit(&report.text);
    return report.status;
}

static int examine(int rest_count, char **rest, struct ct_cli_options *cli, bool json)
{
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    struct ct_config *cfg = calloc(1, sizeof *cfg);
    struct hosts hosts = {.at = calloc(HOSTS_MAX, sizeof *hosts.at)};
    const struct ct_config_input input = {.argc = rest_count, .argv = rest, .env = environ};
    struct ct_error err = {0};
    int status;

    if (errs == NULL || cfg == NULL || hosts.at == NULL) {
        status = ct_command_fail("ctrun doctor", CT_ENOMEM, "out of memory");
    } else if (ct_config_load(cfg, &input, errs) != 0) {
        ct_complain(errs, false);
        status = ct_exit_status(CT_ECONFIG);
    } else if (list_hosts(cfg, cli->places, cli->count, &hosts, &err) != 0) {
        status = ct_command_fail("ctrun doctor", err.code, err.text);
    } else {
        status = look(cfg, &hosts, json);
    }
    if (cfg != NULL)
        ct_config_deinit(cfg);
    free(hosts.at);
    free(cfg);
    free(errs);
    return status;
}

int ct_cmd_doctor(int argc, char **argv)
{
    const char *names[HOSTS_MAX];
    bool json = false;
    const struct ct_option options[] = {{"json", CT_OPTION_FLAG, &json}};
    struct ct_cli_options cli = {.command = "doctor",
                                 .options = options,
                                 .option_count = CT_COUNT(options),
                                 .places = names,
                                 .room = HOSTS_MAX,
                                 .rest = calloc((size_t)argc + 1, sizeof(char *))};
    struct ct_error err = {0};
    int status;

    if (cli.rest == NULL)
        return ct_command_fail("ctrun doctor", CT_ENOMEM, "out of memory");
    if (ct_cli_options_read(&cli, argc - 1, argv + 1, &err) != 0)
        status = ct_command_fail("ctrun doctor", err.code, err.text);
    else
        status = examine(cli.rest_count, cli.rest, &cli, json);
    free(cli.rest);
    return status;
}
