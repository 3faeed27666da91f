/* ctrun events [--follow] [--json]: what happened to running jobs.
 *
 * The rendezvous answers with a record a line (service_events.c); with --follow it is asked again,
 * for later numbers, until it knows the job no more. */
#include "commands.h"

#include "admin_uv.h"
#include "base/fs.h"
#include "cli_options.h"
#include "rendezvous/service/admin.h"

#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 300, GENERATION_WIDTH = 5, EVENT_WIDTH = 16 };

struct reading {
    struct admin_request *request;
    bool follow, json;
    bool several; /* jobs: their names are told */
    bool any;     /* an answer came */
};

static int complain(int code, const char *text)
{
    struct ct_buf clean;

    ct_buf_init(&clean, 0);
    ct_buf_put_clean(&clean, text, "\n\t");
    int status = ct_command_fail("ctrun events", code, ct_buf_str(&clean));
    ct_buf_deinit(&clean);
    return status;
}

/* "2026-03-01T10:00:02.125Z" in local time, as logs have it. */
static void print_time(const char *utc, struct ct_buf *to)
{
    struct tm parts = {0}, local;
    char text[32];

    if (strptime(utc, "%Y-%m-%dT%H:%M:%S", &parts) == NULL)
        return;
    time_t seconds = timegm(&parts);
    if (localtime_r(&seconds, &local) != NULL &&
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local) > 0)
        (void)ct_buf_puts(to, text);
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));

    return text != NULL ? text : "";
}

/* "2026-03-01 11:00:02  g2   node_lost       node b is lost: it was silent for 5 s" */
static void print_event(const struct reading *reading, const json_t *event, struct ct_buf *to)
{
    char generation[24];
    const char *job = text_of(event, "job");

    (void)snprintf(generation, sizeof generation, "g%" PRId64,
                   (int64_t)json_integer_value(json_object_get(event, "generation")));
    print_time(text_of(event, "time"), to);
    if (reading->several)
        (void)ct_buf_printf(to, "  %s", job);
    (void)ct_buf_printf(to, "  %-*s%-*s %s\n", GENERATION_WIDTH, generation, EVENT_WIDTH,
                        text_of(event, "event"), text_of(event, "text"));
}

/* Print an answer's lines, and note the number of the last. */
static int print_answer(struct reading *reading, const char *answer)
{
    uint64_t *after = &reading->request->ask.admin.after;
    struct ct_buf text, clean;

    ct_buf_init(&text, 0);
    ct_buf_init(&clean, 0);
    for (const char *line = answer; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        json_t *event = json_loadb(line, size, 0, NULL);
        const uint64_t number = (uint64_t)json_integer_value(json_object_get(event, "number"));

        *after = number > *after ? number : *after;
        if (reading->json)
            (void)ct_buf_printf(&text, "%.*s\n", (int)size, line);
        else if (event != NULL)
            print_event(reading, event, &text);
        json_decref(event);
        line += size + (line[size] == '\n');
    }
    ct_buf_put_clean(&clean, ct_buf_str(&text), "\n\t");
    int rc = text.failed || clean.failed
                 ? CT_ENOMEM
                 : ct_fs_write_all(STDOUT_FILENO, ct_buf_str(&clean), clean.size);
    ct_buf_deinit(&clean);
    ct_buf_deinit(&text);
    return rc;
}

/* Until there are no more, or with --follow until the job is known no more. */
static int read_events(struct reading *reading, struct ct_error *err)
{
    struct ct_buf answer;
    int rc = 0;

    ct_buf_init(&answer, 0);
    for (bool more = true; more && rc == 0;) {
        ct_buf_clear(&answer);
        rc = admin_ask(reading->request, &answer, err);
        if (rc == 0)
            rc = print_answer(reading, ct_buf_str(&answer));
        more = answer.size > 0 || reading->follow;
        if (rc == 0 && answer.size == 0 && more)
            (void)poll(NULL, 0, PAUSE_MS);
        if (rc != 0 && reading->follow && reading->any)
            rc = 0, more = false; /* the job and its rendezvous are gone */
        reading->any = true;
    }
    ct_buf_deinit(&answer);
    return rc;
}

static int run(struct reading *reading, int count, char **rest)
{
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    struct admin_request *request = reading->request;
    const struct ct_config_input input = {.argc = count, .argv = rest, .env = environ};
    struct ct_error err = {0};
    int status = 0;

    if (errs == NULL)
        return complain(CT_ENOMEM, "out of memory");
    int rc = ct_config_load(&request->cfg, &input, errs);
    if (rc != 0) {
        ct_complain(errs, false);
        status = ct_exit_status(rc);
    } else {
        admin_sign(request);
        request->ask.admin.author = request->author;
        reading->several = strcmp(request->cfg.launch.rdzv_id, "none") == 0;
        rc = read_events(reading, &err);
        status = rc == 0 ? 0 : complain(rc, err.text);
    }
    ct_config_deinit(&request->cfg);
    free(errs);
    return status;
}

int ct_cmd_events(int argc, char **argv)
{
    struct admin_request request = {
        .ask = {.type = CT_MSG_ADMIN,
                .admin = {.verb = CT_ADMIN_EVENTS, .host = "", .reason = "", .author = ""}}};
    struct reading reading = {.request = &request};
    const char *id = NULL;
    const struct ct_option options[] = {{"job", CT_OPTION_TEXT, &id},
                                        {"follow", CT_OPTION_FLAG, &reading.follow},
                                        {"json", CT_OPTION_FLAG, &reading.json}};
    char **rest = calloc((size_t)argc + 2, sizeof *rest);
    struct ct_cli_options cli = {.command = "events",
                                 .options = options,
                                 .option_count = sizeof options / sizeof *options,
                                 .rest = rest};
    struct ct_error err = {0};
    struct ct_buf job;

    if (rest == NULL)
        return complain(CT_ENOMEM, "out of memory");
    ct_buf_init(&job, 0);
    int rc = ct_cli_options_read(&cli, argc - 1, argv + 1, &err);
    if (rc == 0 && id != NULL) {
        (void)ct_buf_printf(&job, "--rdzv_id=%s", id);
        rest[cli.rest_count++] = (char *)(uintptr_t)ct_buf_str(&job);
    }
    int status = rc != 0 ? complain(rc, err.text) : run(&reading, cli.rest_count, rest);
    ct_buf_deinit(&job);
    free(rest);
    return status;
}
