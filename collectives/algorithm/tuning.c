/* See tuning.h: the table as text, and what it means for a group. */
#include "algorithm/tuning.h"

#include "algorithm/cost.h"
#include "base/assert.h"
#include "base/str.h"

#include <limits.h>
#include <string.h>

/* DEFAULT_RANKS: those with which sizes of select.def that depend on the ranks were measured. */
enum { VERSION = 1, WORDS = 4, LINE_BYTES = 256, DEFAULT_RANKS = 24 };

/* ---- sizes by name ---------------------------------------------------------------------------*/

static const char LOCAL[] = "shm thread", MESH[] = "tcp ucx mpi", HIER[] = "hier",
                  STAGED[] = "staged nccl";

static const struct {
    const char *backends;
    const char *name;
    size_t least, most;
} sizes[CT_TUNABLES] = {
#define CT_TUNABLE(scope, name, otherwise, least, most, text) {scope, #name, least, most},
#include "algorithm/select.def"
#undef CT_TUNABLE
};

static const struct ct_table_line defaults[] = {
#define CT_DEFAULT(backend, ranks, name, value) {backend, ranks, CT_SIZE_##name, value},
#include "defaults.def"
#undef CT_DEFAULT
};

const char *ct_tunable_name(enum ct_tunable size)
{
    return sizes[size].name;
}

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = strstr(words, word); at != NULL && length > 0; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' '))
            return true;
    return false;
}

bool ct_tunable_concerns(enum ct_tunable size, const char *backend)
{
    return has_word(sizes[size].backends, backend);
}

/* ---- lines -----------------------------------------------------------------------------------*/

static bool same_line(const struct ct_table_line *a, const struct ct_table_line *b)
{
    return strcmp(a->backend, b->backend) == 0 && a->ranks == b->ranks && a->size == b->size;
}

bool ct_table_set(struct ct_table *table, const struct ct_table_line *line)
{
    int i = 0;

    while (i < table->count && !same_line(&table->lines[i], line))
        i++;
    if (i == CT_TABLE_LINES)
        return false;
    table->lines[i] = *line;
    table->count = CT_MAX(table->count, i + 1);
    return true;
}

/* Is a line of `mine` ranks a better one for a group of `ranks` than one of `best`? */
static bool is_nearer(int mine, int best, int ranks)
{
    if ((mine <= ranks) != (best <= ranks))
        return mine <= ranks;
    return mine <= ranks ? mine > best : mine < best;
}

static const struct ct_table_line *find(const struct ct_table_line *lines, size_t count,
                                        const char *backend, int ranks, enum ct_tunable size)
{
    const struct ct_table_line *best = NULL;

    for (const struct ct_table_line *line = lines; line < lines + count; line++)
        if (line->size == size && strcmp(line->backend, backend) == 0 &&
            (best == NULL || is_nearer(line->ranks, best->ranks, ranks)))
            best = line;
    return best;
}

const struct ct_table_line *ct_table_find(const struct ct_table *table, const char *backend,
                                          int ranks, enum ct_tunable size)
{
    return find(table->lines, (size_t)table->count, backend, ranks, size);
}

/* Of the line that is nearest, or of select.def. */
static size_t find_value(const struct ct_table *table, const char *backend, int ranks,
                         enum ct_tunable size, size_t otherwise)
{
    const struct ct_table_line *line = ct_table_find(table, backend, ranks, size);

    if (line == NULL)
        line = find(defaults, CT_COUNT(defaults), backend, ranks, size);
    size_t value = line != NULL ? line->value : otherwise;
    value = ct_cost_extrapolate(size, value, line != NULL ? line->ranks : DEFAULT_RANKS, ranks);
    return CT_MAX(CT_MIN(value, sizes[size].most), sizes[size].least);
}

struct ct_tuning ct_table_tuning(const struct ct_table *table, const char *backend, int ranks,
                                 const struct ct_tuning *given)
{
    struct ct_tuning tuning = *given, defaulted = ct_tuning_complete(NULL);

    for (int i = 0; i < CT_TUNABLES; i++) {
        enum ct_tunable size = (enum ct_tunable)i;
        size_t *value = ct_tuning_at(&tuning, size);

        if (*value == 0)
            *value = find_value(table, backend, ranks, size, *ct_tuning_at(&defaulted, size));
    }
    return tuning;
}

/* ---- reading ---------------------------------------------------------------------------------*/

/* Cut a line at blanks; how many words it has, WORDS + 1 for more than there may be. */
static int cut(char *line, char *words[WORDS])
{
    char *rest = line, *word;
    int count = 0;

    while ((word = strsep(&rest, " \t")) != NULL)
        if (*word != '\0') {
            if (count == WORDS)
                return WORDS + 1;
            words[count++] = word;
        }
    return count;
}

static int find_size(const char *name)
{
    int size = 0;

    while (size < CT_TUNABLES && strcmp(name, sizes[size].name) != 0)
        size++;
    return size;
}

static int read_size(char *const words[WORDS], struct ct_table_line *ret_line, struct ct_error *err)
{
    int size = find_size(words[2]);
    uint64_t ranks, value;

    if (size == CT_TUNABLES)
        return ct_error_set(err, CT_ECONFIG, "\"%s\" is no size that collectives have", words[2]);
    if (!ct_tunable_concerns((enum ct_tunable)size, words[0]) ||
        !ct_str_copy(ret_line->backend, sizeof ret_line->backend, words[0]))
        return ct_error_set(err, CT_ECONFIG, "%s is a size of %s, not of \"%s\"", words[2],
                            sizes[size].backends, words[0]);
    if (ct_parse_u64(words[1], &ranks) != 0 || ranks < 2 || ranks > INT_MAX)
        return ct_error_set(err, CT_ECONFIG, "\"%s\" is no number of ranks: 2 or more", words[1]);
    if (ct_parse_bytes(words[3], &value) != 0 || value < sizes[size].least ||
        value > sizes[size].most)
        return ct_error_set(err, CT_ECONFIG, "%s \"%s\": it is %zu to %zu", words[2], words[3],
                            sizes[size].least, sizes[size].most);
    ret_line->ranks = (int)ranks;
    ret_line->size = (enum ct_tunable)size;
    ret_line->value = (size_t)value;
    return 0;
}

/* Text that can be repeated in a sentence, in lines that fit. */
static int check_line(const char *text, size_t bytes, size_t at, struct ct_error *err)
{
    size_t length = 0;

    for (; at < bytes && text[at] != '\n'; at++, length++)
        if ((text[at] < ' ' && text[at] != '\t' && text[at] != '\r') || text[at] > '~')
            return ct_error_set(err, CT_ECONFIG, "byte 0x%02x: a tuning table is plain text",
                                (unsigned char)text[at]);
    return length < LINE_BYTES
               ? 0
               : ct_error_set(err, CT_ECONFIG, "a line has at most %d bytes", LINE_BYTES - 1);
}

struct reader {
    struct ct_table *table;
    bool versioned;
    enum { NOWHERE, HERE, ELSEWHERE } machine;
};

static int read_line(struct reader *reader, char *text, struct ct_error *err)
{
    char *words[WORDS];
    struct ct_table_line line;

    if (ct_starts_with(text, "machine ")) {
        if (*reader->table->machine == '\0')
            (void)ct_str_copy(reader->table->machine, CT_MACHINE_TEXT, text + 8);
        reader->machine = strcmp(text + 8, reader->table->machine) == 0 ? HERE : ELSEWHERE;
        return reader->versioned ? 0
                                 : ct_error_set(err, CT_ECONFIG, "\"version 1\" has to come first");
    }
    int count = cut(text, words);
    if (count == 0)
        return 0;
    if (count == 2 && strcmp(words[0], "version") == 0) {
        reader->versioned = strcmp(words[1], "1") == 0;
        return reader->versioned
                   ? 0
                   : ct_error_set(err, CT_ECONFIG, "version \"%s\" is not known here: it is %d",
                                  words[1], VERSION);
    }
    if (count != WORDS || reader->machine == NOWHERE)
        return ct_error_set(err, CT_ECONFIG,
                            "\"%s\" is no line of a tuning table: it is \"machine NAME\", and "
                            "below that \"BACKEND RANKS SIZE VALUE\"",
                            words[0]);
    int code = read_size(words, &line, err);
    if (code == 0 && reader->machine == HERE && !ct_table_set(reader->table, &line))
        code = ct_error_set(err, CT_ECONFIG, "a machine has at most %d lines", CT_TABLE_LINES);
    return code;
}

/* The line at *at without its end and comment, in `line`; false behind the last one. */
static bool next_line(const char *text, size_t bytes, size_t *at, char line[LINE_BYTES])
{
    const char *from = text + *at, *end = *at < bytes ? memchr(from, '\n', bytes - *at) : NULL;
    size_t length = end != NULL ? (size_t)(end - from) : bytes - *at;

    if (*at >= bytes)
        return false;
    *at += length + 1;
    length = CT_MIN(length, (size_t)LINE_BYTES - 1);
    memcpy(line, from, length);
    line[length] = '\0';
    line[strcspn(line, "#\r")] = '\0';
    for (length = strlen(line); length > 0 && strchr(" \t", line[length - 1]) != NULL; length--)
        line[length - 1] = '\0';
    return true;
}

int ct_table_parse(struct ct_table *table, const char *text, size_t bytes, struct ct_error *err)
{
    struct reader reader = {.table = table};
    char line[LINE_BYTES];
    int code = 0, number = 0;

    table->count = 0;
    for (size_t at = 0; code == 0 && at < bytes; number++) {
        code = check_line(text, bytes, at, err);
        if (code == 0 && next_line(text, bytes, &at, line))
            code = read_line(&reader, line, err);
    }
    if (code != 0)
        ct_error_prefix(err, "%d", number);
    return code;
}

/* ---- writing ---------------------------------------------------------------------------------*/

static void print_lines(const struct ct_table *table, struct ct_buf *to)
{
    (void)ct_buf_printf(to, "machine %s\n", table->machine);
    for (const struct ct_table_line *line = table->lines; line < table->lines + table->count;
         line++) {
        bool kib = line->value % 1024 == 0;

        (void)ct_buf_printf(to, "%s %d %s %zu%s\n", line->backend, line->ranks,
                            sizes[line->size].name, kib ? line->value / 1024 : line->value,
                            kib ? "KiB" : "");
    }
}

void ct_table_print(const struct ct_table *table, struct ct_buf *to)
{
    (void)ct_buf_printf(to, "# what ctrun bench collectives --tune measured\nversion %d\n",
                        VERSION);
    print_lines(table, to);
}

void ct_table_merge(const struct ct_table *table, const char *text, size_t bytes, struct ct_buf *to)
{
    bool here = false, placed = false;
    char line[LINE_BYTES];

    if (bytes == 0) {
        ct_table_print(table, to);
        return;
    }
    for (size_t at = 0, from = 0; next_line(text, bytes, &at, line); from = at) {
        if (ct_starts_with(line, "machine ")) {
            here = strcmp(line + 8, table->machine) == 0;
            if (here && !placed)
                print_lines(table, to);
            placed = placed || here;
        }
        if (here)
            continue;
        (void)ct_buf_append(to, text + from, CT_MIN(at, bytes) - from);
        if (at > bytes) /* the last line had no end */
            (void)ct_buf_puts(to, "\n");
    }
    if (!placed)
        print_lines(table, to);
}
