/* ctrun status | drain | cordon | uncordon: questions and orders to a job that runs. */
#include "commands.h"

#include "admin_uv.h"
#include "base/fs.h"
#include "base/str.h"
#include "rendezvous/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARGS = 32, WATCH_S = 1, HELP = ARGS + 1 };

/* What each command takes besides the options that say where the job is. */
static const struct verb {
    const char *name;
    enum ct_admin_verb verb;
    bool takes_host, takes_view, takes_for;
    const char *usage;
} verbs[] = {
    {"status", CT_ADMIN_STATUS, false, true, false,
     "usage: ctrun status [--json] [--watch] [--rdzv_endpoint HOST:PORT] [--rdzv_id ID] "
     "[--key_file FILE]\n"},
    {"drain", CT_ADMIN_DRAIN, true, false, false,
     "usage: ctrun drain HOST [--reason TEXT] [--rdzv_endpoint HOST:PORT] [--rdzv_id ID] "
     "[--key_file FILE]\n"},
    {"cordon", CT_ADMIN_CORDON, true, false, true,
     "usage: ctrun cordon HOST [--for TIME] [--reason TEXT] [--rdzv_endpoint HOST:PORT] "
     "[--rdzv_id ID] [--key_file FILE]\n"},
    {"uncordon", CT_ADMIN_UNCORDON, true, false, false,
     "usage: ctrun uncordon HOST [--rdzv_endpoint HOST:PORT] [--rdzv_id ID] [--key_file FILE]\n"},
};

static int complain(const struct verb *verb, int code, const char *text)
{
    (void)fprintf(stderr, "ctrun %s: error: %s\n", verb->name, text);
    return ct_exit_status(code);
}

/* The value of option `name` in `word` ("--for=10m"), or behind it ("--for 10m": `at` moves on);
 * NULL when it is another one, "" when the value is missing. */
static const char *value_of(const char *word, const char *next, const char *name, int *at)
{
    size_t size = strlen(name);

    if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, size) != 0)
        return NULL;
    if (word[2 + size] == '=')
        return word + 3 + size;
    if (word[2 + size] != '\0')
        return NULL;
    if (next == NULL)
        return "";
    ++*at;
    return next;
}

/* The command's own words go into the request, all else into `rest` for the configuration. Returns
 * how many these are, HELP when help is asked for, or a negative code. */
static int sort_words(const struct verb *verb, char **argv, struct admin_request *request,
                      char *rest[ARGS], struct ct_error *err)
{
    int count = 0;

    for (int i = 1; argv[i] != NULL; i++) {
        const char *word = argv[i], *next = argv[i + 1], *value;

        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            return HELP;
        if (verb->takes_view && strcmp(word, "--json") == 0)
            request->ask.admin.json = 1;
        else if (verb->takes_view && strcmp(word, "--watch") == 0)
            request->watch = true;
        else if (verb->takes_host && (value = value_of(word, next, "reason", &i)) != NULL)
            request->ask.admin.reason = value;
        else if (verb->takes_for && (value = value_of(word, next, "for", &i)) != NULL) {
            if (ct_parse_duration_ms(value, &request->ask.admin.for_ms) != 0 ||
                request->ask.admin.for_ms == 0)
                return ct_error_set(err, CT_EUSAGE,
                                    "--for wants a time such as 30m or 2h, not \"%s\"", value);
        } else if (strncmp(word, "-", 1) != 0) {
            if (!verb->takes_host || request->ask.admin.host[0] != '\0')
                return ct_error_set(err, CT_EUSAGE, "unexpected argument \"%s\"", word);
            request->ask.admin.host = word;
        } else if (count + 3 > ARGS) {
            return ct_error_set(err, CT_EUSAGE, "too many options");
        } else {
            rest[count++] = argv[i];
            if (strchr(word, '=') == NULL && next != NULL)
                rest[count++] = argv[++i];
        }
    }
    rest[count] = NULL;
    if (verb->takes_host && request->ask.admin.host[0] == '\0')
        return ct_error_set(err, CT_EUSAGE, "which host? It is named as `ctrun status` shows it");
    return count;
}

static int print(const struct ct_buf *text)
{
    int rc = ct_fs_write_all(STDOUT_FILENO, ct_buf_str(text), text->size);
    bool ended = text->size > 0 && text->data[text->size - 1] == '\n';

    if (rc == 0 && !ended)
        rc = ct_fs_write_all(STDOUT_FILENO, "\n", 1);
    return rc == 0 ? 0 : CT_EIO;
}

/* Ask once; with --watch again and again, on a cleared screen, until the job cannot be found. */
static int ask(const struct verb *verb, const struct admin_request *request)
{
    struct ct_error err = {0};
    struct ct_buf text;
    int rc;

    ct_buf_init(&text, 0);
    do {
        ct_buf_clear(&text);
        if (request->watch && request->ask.admin.json == 0)
            (void)ct_buf_puts(&text, "\033[H\033[2J");
        rc = admin_ask(request, &text, &err);
        if (rc == 0)
            rc = print(&text);
        if (rc == 0 && request->watch)
            (void)sleep(WATCH_S);
    } while (rc == 0 && request->watch);
    ct_buf_deinit(&text);
    return rc == 0 ? 0 : complain(verb, rc, err.text);
}

int ct_cmd_admin(int argc, char **argv)
{
    const struct verb *verb = verbs;
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    struct admin_request request = {
        .ask = {.type = CT_MSG_ADMIN, .admin = {.host = "", .reason = ""}}};
    struct ct_error err = {0};
    char *rest[ARGS];
    int status;

    (void)argc;
    while (strcmp(verb->name, argv[0]) != 0) /* main.c lists no others */
        verb++;
    if (errs == NULL)
        return complain(verb, CT_ENOMEM, "out of memory");
    request.ask.admin.verb = (uint8_t)verb->verb;
    int count = sort_words(verb, argv, &request, rest, &err);
    if (count == HELP) {
        free(errs);
        return fputs(verb->usage, stdout) < 0;
    }
    struct ct_config_input input = {.argc = count, .argv = rest, .env = environ};
    int rc = count < 0 ? count : ct_config_load(&request.cfg, &input, errs);
    if (count < 0) {
        status = complain(verb, rc, err.text);
        (void)fputs(verb->usage, stderr);
    } else if (rc != 0) {
        struct ct_buf text;

        ct_buf_init(&text, 0);
        ct_config_errors_write(errs, "ctrun: error: ", &text);
        (void)fputs(ct_buf_str(&text), stderr);
        ct_buf_deinit(&text);
        status = ct_exit_status(rc);
    } else {
        admin_sign(&request);
        request.ask.admin.author = request.author;
        status = ask(verb, &request);
    }
    if (count >= 0)
        ct_config_deinit(&request.cfg);
    free(errs);
    return status;
}
