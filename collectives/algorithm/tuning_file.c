/* See tuning.h: the file. */
#include "algorithm/tuning.h"

#include "base/fs.h"
#include "base/str.h"
#include "base/this_machine.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ct_table_path(char *path, size_t room)
{
    const char *given = getenv("CTRUN_TUNING");

    if (given != NULL && *given != '\0')
        (void)ct_str_copy(path, room, strcmp(given, "none") == 0 ? "" : given);
    else
        ct_this_machine_path("tuning", path, room);
}

/* The file's text; empty when nobody named it and it is not there. */
static int read_file(const char *path, struct ct_buf *text, struct ct_error *err)
{
    bool named = getenv("CTRUN_TUNING") != NULL;

    if (*path == '\0' || (!named && access(path, F_OK) != 0))
        return 0;
    return ct_fs_read(path, CT_TABLE_TEXT, text, err);
}

static int parse_file(struct ct_table *table, const char *path, const struct ct_buf *text,
                      struct ct_error *err)
{
    int code = ct_table_parse(table, ct_buf_str(text), text->size, err);

    if (code != 0)
        ct_error_prefix(err, "tuning table %s (CTRUN_TUNING=none does without)", path);
    return code;
}

int ct_table_load(struct ct_table *ret_table, struct ct_error *err)
{
    char path[PATH_MAX];
    struct ct_buf text;

    ret_table->count = 0;
    ct_table_path(path, sizeof path);
    ct_buf_init(&text, 0);
    int code = read_file(path, &text, err);
    if (code == 0 && text.size > 0) {
        ct_this_machine_name(ret_table->machine, CT_MACHINE_TEXT);
        code = parse_file(ret_table, path, &text, err);
    }
    ct_buf_deinit(&text);
    return code;
}

int ct_table_save(struct ct_table *table, struct ct_error *err)
{
    struct ct_table before = {0};
    char path[PATH_MAX], folder[PATH_MAX];
    struct ct_buf text, merged;

    ct_table_path(path, sizeof path);
    if (*path == '\0')
        return ct_error_set(err, CT_ECANTCREAT,
                            "no place for a tuning table: set CTRUN_TUNING to a path");
    ct_buf_init(&text, 0);
    ct_buf_init(&merged, CT_TABLE_TEXT);
    ct_this_machine_name(table->machine, CT_MACHINE_TEXT);
    int code = access(path, F_OK) != 0 ? 0 : ct_fs_read(path, CT_TABLE_TEXT, &text, err);
    if (code == 0)
        code = parse_file(&before, path, &text, err);
    ct_table_merge(table, ct_buf_str(&text), text.size, &merged);
    (void)ct_str_copy(folder, sizeof folder, path);
    char *end = strrchr(folder, '/');
    if (code == 0 && end != NULL && end > folder) {
        *end = '\0';
        code = ct_fs_make_dirs(folder, err);
    }
    if (code == 0 && merged.failed)
        code = ct_error_set(err, CT_ELIMIT, "tuning table %s would have more than %d bytes", path,
                            CT_TABLE_TEXT);
    if (code == 0)
        code = ct_fs_replace(path, ct_buf_str(&merged), merged.size, err);
    ct_buf_deinit(&text);
    ct_buf_deinit(&merged);
    return code;
}
