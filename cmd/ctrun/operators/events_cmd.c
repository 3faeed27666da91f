/* ctrun events [--follow] [--json]: what happened to running jobs.
 *
 * The rendezvous answers with a record a line (service_events.c). With --follow it tells of each
 * that comes later on the same connection, up to the last one before it forgets the job or ends. */
#include "cmd/ctrun/cli/commands.h"

#include "asking.h"
#include "rendezvous/service/admin.h"

#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAUSE_MS = 300, GENERATION_WIDTH = 5, EVENT_WIDTH = 16 };

static const char who[] = "ctrun events";

struct reading {
    struct admin_request *request;
    bool follow, json;
    bool several; /* jobs: their names are told */
    int failed;   /* why what was told could not be printed; 0: it was */
};

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
static int print_answer(struct reading *reading, const char *answer, struct ct_error *err)
{
    uint64_t *after = &reading->request->ask.admin.after;
    struct ct_buf text;

    ct_buf_init(&text, 0);
    for (const char *line = answer; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        json_t *event = json_loadb(line, size, 0, NULL);
        const uint64_t number = (uint64_t)json_integer_value(json_object_get(event, "number"));

        *after = number > 0 ? number : *after; /* a daemon that was started again counts anew */
        if (reading->json)
            (void)ct_buf_printf(&text, "%.*s\n", (int)size, line);
        else if (event != NULL)
            print_event(reading, event, &text);
        json_decref(event);
        line += size + (line[size] == '\n');
    }
    int rc = asking_print("", &text, err);
    ct_buf_deinit(&text);
    return rc;
}

/* All up to now. */
static int read_events(struct reading *reading, struct ct_error *err)
{
    struct ct_buf answer;
    int rc = 0;

    ct_buf_init(&answer, 0);
    for (bool more = true; more && rc == 0;) {
        ct_buf_clear(&answer);
        rc = admin_ask(reading->request, &answer, err);
        if (rc == 0)
            rc = print_answer(reading, ct_buf_str(&answer), err);
        more = answer.size > 0;
    }
    ct_buf_deinit(&answer);
    return rc;
}

static int on_text(void *context, const char *text, size_t size, struct ct_error *err)
{
    struct reading *reading = context;
    struct ct_buf answer;

    ct_buf_init(&answer, 0);
    int rc = ct_buf_append(&answer, text, size) == 0
                 ? print_answer(reading, ct_buf_str(&answer), err)
                 : ct_error_set(err, CT_ENOMEM, "no memory for the answer");
    reading->failed = rc;
    ct_buf_deinit(&answer);
    return rc;
}

/* Those that come, until the job or its rendezvous is gone. A connection that breaks may be one of
 * a rendezvous that moves to another host. */
static int follow_events(struct reading *reading, struct ct_error *err)
{
    struct admin_request *request = reading->request;
    struct ct_buf none;
    int rc;

    ct_buf_init(&none, 0);
    request->ask.admin.verb = CT_ADMIN_FOLLOW;
    request->on_text = on_text;
    request->context = reading;
    while ((rc = admin_ask(request, &none, err)) == 0)
        (void)poll(NULL, 0, PAUSE_MS);
    ct_buf_deinit(&none);
    return rc == CT_ELIMIT ? rc : reading->failed;
}

static int run(struct reading *reading, int count, char **rest)
{
    struct admin_request *request = reading->request;
    struct ct_error err = {0};
    int status = asking_load(who, request, count, rest);

    if (status == 0) {
        request->ask.admin.author = request->author;
        reading->several = strcmp(request->cfg.launch.rdzv_id, "none") == 0;
        int rc = read_events(reading, &err);
        if (rc == 0 && reading->follow)
            rc = follow_events(reading, &err);
        status = rc == 0 ? 0 : ct_command_fail(who, rc, err.text);
    }
    ct_config_deinit(&request->cfg);
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
        return ct_command_fail(who, CT_ENOMEM, "out of memory");
    ct_buf_init(&job, 0);
    int rc = ct_cli_options_read(&cli, argc - 1, argv + 1, &err);
    asking_put_job(&cli, id, &job);
    int status = rc != 0 ? ct_command_fail(who, rc, err.text) : run(&reading, cli.rest_count, rest);
    ct_buf_deinit(&job);
    free(rest);
    return status;
}
