/* See speech.h.
 *
 *   a job's ctrun, ctrund, ctworker    each line is a record, and is put into words
 *   a subcommand's ctrun               prints a document: as it is, but no line of a log in text
 *   anything else (sh, mpirun)         likewise; records among its lines are put into words */
#include "speech.h"

#include "base/assert.h"
#include "base/str.h"
#include "proc.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { AS_IT_IS, MIXED, RECORDS };

bool speech_is_json(void)
{
    const char *wish = getenv("TEST_JSON");

    return wish != NULL && strcmp(wish, "1") == 0;
}

/* ---- which program -------------------------------------------------------------------------- */

static bool is_program(const char *word, const char *name)
{
    const char *slash = strrchr(word, '/');

    return strcmp(slash != NULL ? slash + 1 : word, name) == 0;
}

static bool is_one_of(const char *word, const char *const *names)
{
    for (; *names != NULL; names++)
        if (is_program(word, *names))
            return true;
    return false;
}

static bool is_among(const char *word, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

/* Does it print a document? `word` is what follows the program's name. */
static bool prints_document(const char *word)
{
    static const char *const others[] = {
#define CT_COMMAND(name, function, usage, brief, also, arguments) #name,
#include "../../cmd/ctrun/cli/commands.def"
        NULL};
    bool runs = strcmp(word, "run") == 0 || strcmp(word, "resume") == 0;

    return !runs && is_among(word, others);
}

static bool says_format(const char *const argv[])
{
    for (; *argv != NULL; argv++)
        if (ct_starts_with(*argv, "--log_format") || ct_starts_with(*argv, "--log.format") ||
            ct_starts_with(*argv, "--log-format"))
            return true;
    return false;
}

static int speech_of(const char *const argv[], bool *ret_daemon)
{
    static const char *const documents[] = {"--help", "-h", "--version", NULL};
    static const char *const shells[] = {"sh", "bash", NULL};
    static const char *const launchers[] = {"srun",           "sbatch",       "mpirun",
                                            "mpirun.openmpi", "mpirun.mpich", NULL};
    static const char *const programs[] = {"ctrun", "ctrund", "ctworker", "torchrun", NULL};
    size_t at = 0;

    *ret_daemon = false;
    if (says_format(argv))
        return AS_IT_IS;
    for (; argv[at] != NULL && !is_one_of(argv[at], programs); at++)
        if (is_one_of(argv[at], launchers) || (at == 0 && is_one_of(argv[at], shells)))
            return MIXED;
    if (argv[at] == NULL || argv[at + 1] == NULL)
        return argv[at] == NULL ? MIXED : RECORDS;
    *ret_daemon = is_program(argv[at], "ctrund");
    for (size_t i = at + 1; argv[i] != NULL; i++)
        if (is_among(argv[i], documents))
            return MIXED;
    return !*ret_daemon && prints_document(argv[at + 1]) ? MIXED : RECORDS;
}

static void begin(struct proc *proc, const char *const argv[], const char *arguments[3],
                  const char **variable)
{
    bool daemon;

    proc->speaks = speech_of(argv, &daemon);
    if (proc->speaks == AS_IT_IS)
        return;
    *variable = "CTRUN_LOG_FORMAT=json";
    if (daemon && proc->speaks == RECORDS) {
        arguments[0] = "--log_format";
        arguments[1] = "json";
    }
}

/* ---- records -------------------------------------------------------------------------------- */

static const char *text_of(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));

    return text != NULL ? text : "";
}

static bool has_number(const json_t *record, const char *key)
{
    return json_is_number(json_object_get(record, key));
}

static double number_of(const json_t *record, const char *key)
{
    return json_number_value(json_object_get(record, key));
}

static bool is_kind(const json_t *record, const char *kind)
{
    return strcmp(text_of(record, "kind"), kind) == 0;
}

void speech_check(const json_t *record, const char *line)
{
    static const char *const kinds[] = {"log",     "output",  "progress", "eval",
                                        "summary", "failure", "event",    NULL};
    bool training = is_kind(record, "progress") || is_kind(record, "eval");

    cr_assert(is_among(text_of(record, "kind"), kinds) && strlen(text_of(record, "time")) == 24,
              "no record of a known kind and time: %s", line);
    if (is_kind(record, "log"))
        cr_assert(text_of(record, "level")[0] != '\0' && text_of(record, "event")[0] != '\0' &&
                      text_of(record, "message")[0] != '\0',
                  "a record of the log lacks a field: %s", line);
    if (is_kind(record, "output"))
        cr_assert(has_number(record, "node") && text_of(record, "stream")[0] == 's' &&
                      json_is_string(json_object_get(record, "text")),
                  "a record of output lacks a field: %s", line);
    if (is_kind(record, "output") || training)
        cr_assert(has_number(record, "rank") && has_number(record, "node"), "whose is it? %s",
                  line);
    if (training)
        cr_assert(has_number(record, "step") && has_number(record, "loss"),
                  "a record of the training lacks a number: %s", line);
}

/* ---- words ---------------------------------------------------------------------------------- */

static void put_place(const json_t *record, struct ct_buf *to)
{
    if (has_number(record, "node") && has_number(record, "rank"))
        (void)ct_buf_printf(to, "[%.0f:%.0f] ", number_of(record, "node"),
                            number_of(record, "rank"));
}

static void put_log(const json_t *record, struct ct_buf *to)
{
    const char *level = text_of(record, "level");

    put_place(record, to);
    (void)ct_buf_printf(to, "%s: %s%s\n", text_of(record, "program"),
                        strcmp(level, "warn") == 0    ? "warning: "
                        : strcmp(level, "error") == 0 ? "error: "
                                                      : "",
                        text_of(record, "message"));
}

/* As ct_summary_failed and ct_summary_stopped do. */
static void put_failure(const json_t *record, struct ct_buf *to)
{
    const char *text = text_of(record, "text"), *hint = text_of(record, "hint");

    bool failed = strcmp(text_of(record, "event"), "job_failed") == 0;

    (void)ct_buf_printf(to, "ctrun: job %s: %s", failed ? "failed" : "did not stop in order",
                        text_of(record, "message"));
    if (number_of(record, "others") > 0)
        (void)ct_buf_printf(to, ", and %.0f other%s failed, too", number_of(record, "others"),
                            number_of(record, "others") > 1 ? "s" : "");
    (void)ct_buf_puts(to, "\n");
    while (has_number(record, "rank") && *text != '\0') {
        size_t length = strcspn(text, "\n");
        (void)ct_buf_printf(to, "  | %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
    if (hint[0] != '\0')
        (void)ct_buf_printf(to, "  hint: %s\n", hint);
    if (failed)
        (void)ct_buf_printf(to, "ctrun: %.0f restarts were used; ", number_of(record, "restarts"));
    else
        (void)ct_buf_printf(to, "ctrun: %s%s", text_of(record, "checkpoint"),
                            text_of(record, "checkpoint")[0] != '\0' ? "; " : "");
    (void)ct_buf_printf(to, "exit status %.0f\n", number_of(record, "exit_status"));
}

static void put_step(const json_t *record, struct ct_buf *to)
{
    (void)ct_buf_printf(to, "epoch %.0f/%.0f, step %.0f/%.0f, loss %.4f\n",
                        number_of(record, "epoch"), number_of(record, "epochs"),
                        number_of(record, "step"), number_of(record, "steps"),
                        number_of(record, "loss"));
}

static void put_eval(const json_t *record, struct ct_buf *to)
{
    (void)ct_buf_printf(to, "eval  step %.0f  loss %.4f", number_of(record, "step"),
                        number_of(record, "loss"));
    if (has_number(record, "accuracy"))
        (void)ct_buf_printf(to, "  accuracy %.2f %%", 100 * number_of(record, "accuracy"));
    (void)ct_buf_printf(to, "  best %.4f at step %.0f\n", number_of(record, "best"),
                        number_of(record, "best_step"));
}

static void put_words(const json_t *record, struct ct_buf *to)
{
    if (is_kind(record, "log")) {
        put_log(record, to);
    } else if (is_kind(record, "failure")) {
        put_failure(record, to);
    } else if (is_kind(record, "progress")) {
        put_step(record, to);
    } else if (is_kind(record, "eval")) {
        put_eval(record, to);
    } else {
        if (is_kind(record, "output"))
            put_place(record, to);
        const json_t *text = json_object_get(record, "text");
        (void)ct_buf_append(to, json_string_value(text), json_string_length(text));
        (void)ct_buf_puts(to, "\n");
    }
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* A line of ours in the text format: "ctrund: ", "ctrun status: ". */
static bool is_text_log(const char *line)
{
    static const char *const names[] = {"ctrun", "ctrund", "ctworker"};

    for (size_t i = 0; i < CT_COUNT(names); i++) {
        size_t length = strlen(names[i]);
        if (strncmp(line, names[i], length) != 0)
            continue;
        if (line[length] == ' ')
            length += 1 + strspn(line + length + 1, "abcdefghijklmnopqrstuvwxyz");
        if (line[length] == ':' && line[length + 1] == ' ')
            return true;
    }
    return false;
}

static void parse_line(struct proc *proc, const char *line, size_t size)
{
    json_t *record = line[0] == '{' ? json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL) : NULL;

    if (json_is_object(record) && (proc->speaks == RECORDS || text_of(record, "kind")[0] != '\0')) {
        speech_check(record, line);
        put_words(record, &proc->text);
    } else {
        cr_assert(proc->speaks != RECORDS && !is_text_log(line),
                  "TEST_JSON: a line is no record: %s", line);
        (void)ct_buf_append(&proc->text, line, size);
        (void)ct_buf_puts(&proc->text, "\n");
    }
    json_decref(record);
}

static void receive(struct proc *proc, const char *data, size_t size)
{
    struct ct_buf *line = &proc->line;
    char *newline;

    if (proc->speaks == AS_IT_IS) {
        (void)ct_buf_append(&proc->text, data, size);
        return;
    }
    (void)ct_buf_append(line, data, size);
    while (line->size > 0 && (newline = memchr(line->data, '\n', line->size)) != NULL) {
        size_t length = (size_t)(newline - line->data);
        *newline = '\0';
        parse_line(proc, line->data, length);
        ct_buf_consume(line, length + 1);
    }
    if (size == 0 && line->size > 0) { /* who is killed may be amidst a record */
        cr_assert(proc->speaks == MIXED || line->data[0] == '{',
                  "TEST_JSON: a line is no record: %s", ct_buf_str(line));
        (void)ct_buf_append(&proc->text, line->data, line->size);
        ct_buf_clear(line);
    }
}

const char *speech_words(const char *text)
{
    static struct proc file = {.speaks = MIXED};

    if (!speech_is_json())
        return text;
    ct_buf_clear(&file.text);
    receive(&file, text, strlen(text));
    receive(&file, "", 0);
    return ct_buf_str(&file.text);
}

__attribute__((constructor)) static void choose(void)
{
    static const struct process_speech records = {begin, receive};

    if (speech_is_json())
        process_speech = &records;
}
