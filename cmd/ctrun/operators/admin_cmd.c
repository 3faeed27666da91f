/* ctrun status | drain | cordon | uncordon | takeover: questions and orders to a job that runs. */
#include "cmd/ctrun/cli/commands.h"

#include "asking.h"
#include "base/assert.h"
#include "base/str.h"
#include "rendezvous/service/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WATCH_S = 1, WHO_BYTES = 32 };

static const struct verb {
    const char *name;
    enum ct_admin_verb verb;
} verbs[] = {
    {"status", CT_ADMIN_STATUS},     {"drain", CT_ADMIN_DRAIN},       {"cordon", CT_ADMIN_CORDON},
    {"uncordon", CT_ADMIN_UNCORDON}, {"takeover", CT_ADMIN_TAKEOVER},
};

static const char *name_of(const struct verb *verb, char name[WHO_BYTES])
{
    (void)snprintf(name, WHO_BYTES, "ctrun %s", verb->name);
    return name;
}

static int complain(const struct verb *verb, int code, const char *text)
{
    char who[WHO_BYTES];

    return ct_command_fail(name_of(verb, who), code, text);
}

/* The command's own words go into the request, those that say where the job is into `rest`, which
 * has room for two more than there are; `job` takes "--rdzv_id=ID". Returns how many these are, or
 * a negative code. */
static int parse_arguments(const struct verb *verb, int argc, char **argv,
                           struct admin_request *request, struct ct_buf *job, char **rest,
                           struct ct_error *err)
{
    const bool is_order = verb->verb != CT_ADMIN_STATUS;
    const bool of_host = is_order && verb->verb != CT_ADMIN_TAKEOVER;
    const char *id = NULL, *host = NULL, *reason = "";
    bool json = false;
    const struct ct_option options[] = {
        {"job", CT_OPTION_TEXT, &id},
        {is_order ? "reason" : "json", is_order ? CT_OPTION_TEXT : CT_OPTION_FLAG,
         is_order ? (void *)&reason : &json},
        {"watch", CT_OPTION_FLAG, &request->watch},
        {"for", CT_OPTION_TIME, &request->ask.admin.for_ms},
    };
    /* status alone watches, cordon alone has a time */
    struct ct_cli_options cli = {.command = verb->name,
                                 .options = options,
                                 .option_count = verb->verb == CT_ADMIN_STATUS ? 3 : 2,
                                 .places = &host,
                                 .room = of_host,
                                 .rest = rest};
    const struct ct_option cordon[] = {options[0], options[1], options[3]};

    if (verb->verb == CT_ADMIN_CORDON) {
        cli.options = cordon;
        cli.option_count = CT_COUNT(cordon);
    }
    int code = ct_cli_options_read(&cli, argc - 1, argv + 1, err);
    if (code == 0 && of_host && cli.count == 0)
        code = ct_error_set(err, CT_EUSAGE, "which host? Name it as `ctrun status` shows it");
    if (code != 0)
        return code;
    asking_put_job(&cli, id, job);
    request->ask.admin.json = json;
    request->ask.admin.reason = reason;
    request->ask.admin.host = of_host ? host : "";
    return cli.rest_count;
}

/* What "done" means of such an order: until when. */
static void explain(const struct ct_msg_admin *order, struct ct_buf *text)
{
    char when[64] = "";
    time_t until = time(NULL) + (time_t)(order->for_ms / 1000);
    struct tm local;

    if (strcmp(ct_buf_str(text), "done") != 0)
        return;
    ct_buf_clear(text);
    if (order->for_ms > 0 && localtime_r(&until, &local) != NULL)
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    if (order->verb == CT_ADMIN_UNCORDON)
        (void)ct_buf_printf(text, "%s may join new rounds again", order->host);
    else if (when[0] != '\0')
        (void)ct_buf_printf(text, "%s joins no new round until %s", order->host, when);
    else
        (void)ct_buf_printf(text, "%s joins no new round until `ctrun uncordon %s`", order->host,
                            order->host);
}

/* Ask once; with --watch again and again, on a cleared screen, until the job cannot be found. */
static int ask(const struct verb *verb, const struct admin_request *request)
{
    const char *clear = request->watch && request->ask.admin.json == 0 ? "\033[H\033[2J" : "";
    struct ct_error err = {0};
    struct ct_buf text;
    int rc;

    ct_buf_init(&text, 0);
    do {
        ct_buf_clear(&text);
        rc = admin_ask(request, &text, &err);
        if (rc == 0 && verb->verb != CT_ADMIN_STATUS)
            explain(&request->ask.admin, &text);
        if (text.size == 0 || text.data[text.size - 1] != '\n')
            (void)ct_buf_puts(&text, "\n");
        if (rc == 0)
            rc = asking_print(clear, &text, &err);
        if (rc == 0 && request->watch)
            (void)sleep(WATCH_S);
    } while (rc == 0 && request->watch);
    ct_buf_deinit(&text);
    return rc == 0 ? 0 : complain(verb, rc, err.text);
}

/* Read the configuration's options, ask, and say what is wrong. */
static int run(const struct verb *verb, struct admin_request *request, int count, char **rest)
{
    char who[WHO_BYTES];
    int status = asking_load(name_of(verb, who), request, count, rest);

    request->ask.admin.author = request->author;
    if (status == 0)
        status = ask(verb, request);
    ct_config_deinit(&request->cfg);
    return status;
}

int ct_cmd_admin(int argc, char **argv)
{
    const struct verb *verb = verbs;
    struct admin_request request = {
        .ask = {.type = CT_MSG_ADMIN, .admin = {.host = "", .reason = ""}}};
    char **rest = calloc((size_t)argc + 2, sizeof *rest);
    struct ct_error err = {0};
    struct ct_buf job;

    while (strcmp(verb->name, argv[0]) != 0) /* commands.def lists no others */
        verb++;
    if (rest == NULL)
        return complain(verb, CT_ENOMEM, "out of memory");
    ct_buf_init(&job, 0);
    request.ask.admin.verb = (uint8_t)verb->verb;
    int count = parse_arguments(verb, argc, argv, &request, &job, rest, &err);
    int status = count < 0 ? complain(verb, count, err.text) : run(verb, &request, count, rest);
    ct_buf_deinit(&job);
    free(rest);
    return status;
}
