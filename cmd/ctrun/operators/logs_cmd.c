/* ctrun logs [JOB] [--follow]: the lines of all workers of a job, from all its nodes.
 *
 *   LINES of each node --> line_reader.h --> fold.h --> standard output
 *
 * A reader that is slow makes nobody wait but himself: nodes overwrite what he has not taken, and
 * say how much. */
#include "cmd/ctrun/cli/commands.h"

#include "asking.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log/record.h"
#include "output/fold.h"
#include "rendezvous/client/line_reader.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PART_MS = 50,               /* between two looks for lines that have waited for their equals */
    AGAIN_MS = 500,             /* until a lost connection is made again */
    WINDOWS_BYTES = 8 << 20,    /* that may be under way */
    OUT_BYTES = 64 << 10,       /* that are written at once */
    FOLDED_RANKS_MAX = 1 << 20, /* of jobs with more ranks no lines are folded */
};

static const char who[] = "ctrun logs";

struct logs {
    struct admin_request request;
    struct ct_line_reader *reader;
    struct ct_fold *fold; /* NULL: not before the first line, or never */
    struct ct_buf out, line;
    bool terminal;
    const char *place; /* the job, where it is a word of its own */
    int64_t rank, node, tail;
    bool follow, json, all; /* all: equal lines are not folded */
    bool any;               /* an answer came */
    int code;               /* of standard output */
};

/* ---- out ------------------------------------------------------------------------------------ */

static void write_out(struct logs *logs)
{
    if (logs->out.failed)
        logs->code = CT_ENOMEM;
    else if (logs->out.size > 0 && logs->code == 0 &&
             ct_fs_write_all(STDOUT_FILENO, logs->out.data, logs->out.size) != 0)
        logs->code = CT_EIO;
    ct_buf_clear(&logs->out);
}

/* On a terminal control characters are shown and do nothing: the lines may be of another user's
 * program. A file or a pipe gets the bytes. */
static void put_text(struct logs *logs, const char *text, size_t size)
{
    if (logs->terminal) {
        ct_buf_clear(&logs->line);
        for (const char *nul; (nul = memchr(text, '\0', size)) != NULL; text = nul + 1) {
            ct_buf_put_clean(&logs->out, text, "\t"); /* up to it */
            (void)ct_buf_puts(&logs->out, "\\x00");
            size -= (size_t)(nul - text) + 1;
        }
        (void)ct_buf_append(&logs->line, text, size);
        ct_buf_put_clean(&logs->out, ct_buf_str(&logs->line), "\t");
    } else {
        (void)ct_buf_append(&logs->out, text, size);
    }
    (void)ct_buf_puts(&logs->out, "\n");
    if (logs->out.size >= OUT_BYTES)
        write_out(logs);
}

static void on_folded(void *context, const struct ct_folded *line)
{
    struct logs *logs = context;

    if (line->count > 1)
        (void)ct_buf_printf(&logs->out, "[%s] x%u: ", line->ranks, line->count);
    else
        (void)ct_buf_printf(&logs->out, "[%u] ", line->rank);
    put_text(logs, line->text, line->size);
}

static void put_record(struct logs *logs, const struct ct_read_line *line)
{
    ct_record_line(&logs->out, ct_clock_wall_ns(&ct_clock_system),
                   &(struct ct_record_line){.node = line->node,
                                            .rank = line->rank,
                                            .host = line->host,
                                            .stream = line->stream == 0 ? "stdout" : "stderr",
                                            .text = line->text,
                                            .size = line->size});
    if (logs->out.size >= OUT_BYTES)
        write_out(logs);
}

/* ---- in ------------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
    return ct_clock_mono_ms(&ct_clock_system);
}

static void on_line(void *context, const struct ct_read_line *line)
{
    struct logs *logs = context;
    uint32_t world = ct_line_reader_world(logs->reader);

    if (logs->json) {
        put_record(logs, line);
        return;
    }
    if (logs->fold == NULL && !logs->all && world > 1 && world <= FOLDED_RANKS_MAX)
        logs->fold = ct_fold_new(world, world, on_folded, logs);
    if (logs->fold != NULL)
        ct_fold_add(logs->fold, now_ms(), line->rank, line->text, line->size);
    else
        on_folded(logs,
                  &(struct ct_folded){
                      .count = 1, .rank = line->rank, .text = line->text, .size = line->size});
}

/* What is said of lines goes after those before it. */
static void say(struct logs *logs, const char *host, const char *what)
{
    char text[512];

    if (logs->fold != NULL)
        ct_fold_flush(logs->fold, now_ms(), true);
    write_out(logs);
    (void)snprintf(text, sizeof text, "node %s %s", host, what);
    ct_command_warn(who, text);
}

static void on_missed(void *context, const char *host, uint64_t count)
{
    char text[128];

    (void)snprintf(text, sizeof text,
                   "wrote %" PRIu64 " lines faster than they were read: they are in its log folder "
                   "alone",
                   count);
    say(context, host, text);
}

static void on_absent(void *context, const char *host, const char *why)
{
    say(context, host, why);
}

static void next(void *context, struct ct_message *ret_next)
{
    const struct logs *logs = context;

    if (!ct_line_reader_next(logs->reader, ret_next))
        ret_next->type = 0;
}

static bool receive(void *context, const struct ct_message *message, struct ct_message *ret_next)
{
    struct logs *logs = context;
    bool is_last = ct_line_reader_receive(logs->reader, now_ms(), message);

    logs->any = true;
    if (logs->fold != NULL)
        ct_fold_flush(logs->fold, now_ms(), is_last);
    write_out(logs);
    next(logs, ret_next);
    return is_last || logs->code != 0;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int judge(const struct logs *logs, int rc, struct ct_error *err)
{
    if (logs->code != 0)
        return ct_error_set(err, logs->code,
                            logs->code == CT_EIO ? "cannot write to standard output"
                                                 : "no memory for the lines");
    rc = rc == 0 ? ct_line_reader_code(logs->reader) : rc;
    if (rc == CT_ENOTFOUND && ct_line_reader_nodes(logs->reader) > 0)
        return ct_error_set(
            err, rc, "the job has nodes 0 to %u and ranks 0 to %u: no %s %" PRId64,
            ct_line_reader_nodes(logs->reader) - 1, ct_line_reader_world(logs->reader) - 1,
            logs->node >= (int64_t)ct_line_reader_nodes(logs->reader) ? "node" : "rank",
            logs->node >= (int64_t)ct_line_reader_nodes(logs->reader) ? logs->node : logs->rank);
    return rc;
}

/* With --follow over one connection after the other, until there is no such job any more. */
static int read_lines(struct logs *logs, struct ct_error *err)
{
    struct ct_buf none;
    int rc;

    ct_buf_init(&none, 0);
    for (;;) {
        struct ct_message first;

        (void)ct_line_reader_next(logs->reader, &first);
        logs->request.ask = first;
        bool had_any = logs->any;
        logs->any = false;
        rc = admin_ask(&logs->request, &none, err);
        bool is_over = rc == 0 || logs->code != 0 || ct_line_reader_code(logs->reader) != 0;
        if (is_over || !logs->follow)
            break;
        if (!logs->any) { /* nobody answers, or not with lines */
            rc = had_any ? 0 : rc;
            break;
        }
        ct_line_reader_again(logs->reader);
        (void)poll(NULL, 0, AGAIN_MS);
    }
    if (logs->follow)
        ct_line_reader_end(logs->reader);
    if (logs->fold != NULL)
        ct_fold_flush(logs->fold, now_ms(), true);
    write_out(logs);
    ct_buf_deinit(&none);
    return judge(logs, rc, err);
}

static int run(struct logs *logs, int count, char **rest)
{
    const struct ct_line_reader_options options = {.rank = logs->rank,
                                                   .node = logs->node,
                                                   .tail = logs->tail < 0 ? UINT64_MAX
                                                                          : (uint64_t)logs->tail,
                                                   .bytes = WINDOWS_BYTES,
                                                   .follow = logs->follow,
                                                   .context = logs,
                                                   .on_line = on_line,
                                                   .on_missed = on_missed,
                                                   .on_absent = on_absent};
    struct ct_error err = {0};
    int status = asking_load(who, &logs->request, count, rest);

    logs->reader = ct_line_reader_new(&options);
    logs->request.on_answer = receive;
    logs->request.on_sent = next;
    logs->request.part_ms = PART_MS;
    logs->request.context = logs;
    if (status == 0) {
        int rc = logs->reader != NULL ? read_lines(logs, &err)
                                      : ct_error_set(&err, CT_ENOMEM, "out of memory");
        status = rc == 0 ? 0 : ct_command_fail(who, rc, err.text);
    }
    ct_line_reader_free(logs->reader);
    ct_fold_free(logs->fold);
    ct_config_deinit(&logs->request.cfg);
    return status;
}

static int parse(struct logs *logs, struct ct_cli_options *cli, int argc, char **argv,
                 const char **ret_id, struct ct_error *err)
{
    const struct ct_option options[] = {
        {"job", CT_OPTION_TEXT, ret_id},           {"rank", CT_OPTION_NUMBER, &logs->rank},
        {"node", CT_OPTION_NUMBER, &logs->node},   {"tail", CT_OPTION_NUMBER, &logs->tail},
        {"follow", CT_OPTION_FLAG, &logs->follow}, {"json", CT_OPTION_FLAG, &logs->json},
        {"all", CT_OPTION_FLAG, &logs->all}};

    cli->options = options;
    cli->option_count = CT_COUNT(options);
    cli->places = &logs->place;
    cli->room = 1;
    int rc = ct_cli_options_read(cli, argc - 1, argv + 1, err);
    if (rc == 0 && logs->place != NULL && *ret_id != NULL)
        rc = ct_error_set(err, CT_EUSAGE, "both %s and --job %s: name the job once", logs->place,
                          *ret_id);
    if (rc == 0 && (logs->rank < -1 || logs->rank > INT32_MAX || logs->node < -1 ||
                    logs->node > INT32_MAX || logs->tail < -1))
        rc = ct_error_set(err, CT_EUSAGE, "--rank, --node and --tail want a number from 0 on");
    *ret_id = logs->place != NULL ? logs->place : *ret_id;
    return rc;
}

int ct_cmd_logs(int argc, char **argv)
{
    struct logs *logs = calloc(1, sizeof *logs);
    char **rest = calloc((size_t)argc + 2, sizeof *rest);
    struct ct_cli_options cli = {.command = "logs", .letters = "f", .rest = rest};
    const char *id = NULL;
    struct ct_error err = {0};
    struct ct_buf job;

    if (rest == NULL || logs == NULL) {
        free(rest);
        free(logs);
        return ct_command_fail(who, CT_ENOMEM, "out of memory");
    }
    logs->rank = logs->node = logs->tail = -1;
    ct_buf_init(&job, 0);
    ct_buf_init(&logs->out, 0);
    ct_buf_init(&logs->line, 0);
    logs->terminal = isatty(STDOUT_FILENO) == 1;
    int rc = parse(logs, &cli, argc, argv, &id, &err);
    asking_put_job(&cli, id, &job);
    int status = rc != 0 ? ct_command_fail(who, rc, err.text) : run(logs, cli.rest_count, rest);
    ct_buf_deinit(&logs->out);
    ct_buf_deinit(&logs->line);
    ct_buf_deinit(&job);
    free(logs);
    free(rest);
    return status;
}
