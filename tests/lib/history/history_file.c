/* The files of a history.
 *
 *      > NUMBER KIND GENERATION KEY A B NS      an invocation
 *      < NUMBER CODE VALUE NS                   its answer
 *
 * Each line is one write, so a client that is killed leaves whole lines. See history.h. */
#include "history/history.h"

#include "base/assert.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 256, FIRST_ROOM = 1024 };

static const char *const kinds[HISTORY_KINDS] = {
    [HISTORY_SET] = "set",         [HISTORY_GET] = "get",   [HISTORY_ADD] = "add",
    [HISTORY_CAS] = "cas",         [HISTORY_WAIT] = "wait", [HISTORY_DELETE] = "delete",
    [HISTORY_PUBLISH] = "publish", [HISTORY_SEE] = "see",
};

/* ---- writing -------------------------------------------------------------------------------- */

int history_open_file(struct history_file *file, const char *folder, const char *name)
{
    char path[PATH_MAX];

    CT_ASSERT(snprintf(path, sizeof path, "%s/history.%s", folder, name) < (int)sizeof path);
    *file = (struct history_file){.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    return file->fd < 0 ? -errno : 0;
}

void history_close_file(struct history_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}

/* A history with a gap would accuse the store: better no client. */
static void put_line(const struct history_file *file, const char *line, int size)
{
    CT_ASSERT(size < LINE && write(file->fd, line, (size_t)size) == size);
}

uint64_t history_invoke(struct history_file *file, const struct history_op *op)
{
    char line[LINE];

    put_line(file, line,
             snprintf(line, sizeof line,
                      "> %" PRIu64 " %s %" PRIu64 " %s %" PRId64 " %" PRId64 " %" PRIu64 "\n",
                      file->next, kinds[op->kind], op->generation, op->key, op->a, op->b,
                      op->begin_ns));
    return file->next++;
}

void history_answer(struct history_file *file, uint64_t number, uint64_t end_ns, int code,
                    int64_t value)
{
    char line[LINE];

    put_line(file, line,
             snprintf(line, sizeof line, "< %" PRIu64 " %d %" PRId64 " %" PRIu64 "\n", number, code,
                      value, end_ns));
}

/* ---- reading -------------------------------------------------------------------------------- */

void history_deinit(struct history *history)
{
    free(history->ops);
    *history = (struct history){0};
}

bool history_add(struct history *history, const struct history_op *op)
{
    if (history->count == history->room) {
        size_t room = history->room > 0 ? 2 * history->room : FIRST_ROOM;
        struct history_op *ops = realloc(history->ops, room * sizeof *ops);
        if (ops == NULL)
            return false;
        history->ops = ops;
        history->room = room;
    }
    history->ops[history->count++] = *op;
    return true;
}

static bool parse_kind(const char *word, enum history_kind *ret_kind)
{
    for (int i = 0; i < HISTORY_KINDS; i++) {
        if (strcmp(word, kinds[i]) != 0)
            continue;
        *ret_kind = (enum history_kind)i;
        return true;
    }
    return false;
}

/* Take a line of the file whose operations begin at `first`. */
static bool take_line(struct history *history, size_t first, int file, const char *line)
{
    struct history_op op = {.file = file, .end_ns = HISTORY_OPEN};
    size_t number;
    char kind[16];

    if (sscanf(line, "> %zu %15s %" SCNu64 " %23s %" SCNd64 " %" SCNd64 " %" SCNu64, &number, kind,
               &op.generation, op.key, &op.a, &op.b, &op.begin_ns) == 7)
        return first + number == history->count && parse_kind(kind, &op.kind) &&
               history_add(history, &op);
    if (sscanf(line, "< %zu %d %" SCNd64 " %" SCNu64, &number, &op.code, &op.value, &op.end_ns) !=
            4 ||
        first + number >= history->count)
        return false;
    struct history_op *asked = &history->ops[first + number];
    if (asked->end_ns != HISTORY_OPEN || op.end_ns < asked->begin_ns)
        return false;
    asked->code = op.code;
    asked->value = op.value;
    asked->end_ns = op.end_ns;
    return true;
}

static bool read_file(struct history *history, const char *path, int file)
{
    size_t first = history->count;
    FILE *from = fopen(path, "re");
    char line[LINE];
    bool good = from != NULL;

    while (good && fgets(line, sizeof line, from) != NULL)
        good = take_line(history, first, file, line);
    if (from != NULL)
        (void)fclose(from);
    return good;
}

bool history_read(struct history *history, const char *folder, char text[HISTORY_TEXT])
{
    static const char head[] = "history.";
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    char path[PATH_MAX];
    int files = 0;

    text[0] = '\0';
    while (dir != NULL && text[0] == '\0' && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, head, strlen(head)) != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (!read_file(history, path, files++))
            (void)snprintf(text, HISTORY_TEXT, "%.400s is no history", path);
    }
    if (dir != NULL)
        (void)closedir(dir);
    if (text[0] == '\0' && files == 0)
        (void)snprintf(text, HISTORY_TEXT, "there is no history in %.400s", folder);
    return text[0] == '\0';
}

/* ---- printing ------------------------------------------------------------------------------- */

void history_print(const struct history_op *op, char *text, size_t room)
{
    char value[32] = "nothing";

    if (op->value != HISTORY_ABSENT)
        (void)snprintf(value, sizeof value, "%" PRId64, op->value);
    if (op->end_ns == HISTORY_OPEN)
        (void)snprintf(value, sizeof value, "no answer");
    (void)snprintf(text, room,
                   "%s %s (%" PRId64 ", %" PRId64 ") = %s, code %d, in g%" PRIu64
                   " of history %d, from %.6f to %.6f s",
                   kinds[op->kind], op->key, op->a, op->b, value, op->code, op->generation,
                   op->file, (double)op->begin_ns * 1e-9,
                   op->end_ns == HISTORY_OPEN ? 0 : (double)op->end_ns * 1e-9);
}
