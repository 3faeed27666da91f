/* See costs.h: the file of a calibration. */
#include "base/fs.h"
#include "base/str.h"
#include "base/this_machine.h"
#include "collectives/planner/costs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ct_costs_path(const char *given, char *path, size_t room)
{
    const char *named = given != NULL ? given : getenv("CTRUN_CALIBRATION");

    if (named != NULL && *named != '\0')
        (void)ct_str_copy(path, room, named);
    else
        ct_this_machine_path("calibration", path, room);
}

static bool is_named(const char *given)
{
    const char *named = getenv("CTRUN_CALIBRATION");

    return given != NULL || (named != NULL && *named != '\0');
}

static int parse_file(struct ct_costs *costs, const char *path, const struct ct_buf *text,
                      bool *ret_found, struct ct_error *err)
{
    int code = ct_costs_parse(costs, ct_buf_str(text), text->size, ret_found, err);

    if (code != 0)
        ct_error_prefix(err, "calibration %s (remove it and measure anew: ctrun plan --calibrate)",
                        path);
    return code;
}

int ct_costs_load(struct ct_costs *ret, const char *given, bool *ret_found, struct ct_error *err)
{
    char path[PATH_MAX];
    struct ct_buf text;
    int code;

    *ret_found = false;
    ct_costs_path(given, path, sizeof path);
    if (*path == '\0' || (!is_named(given) && access(path, F_OK) != 0))
        return 0;
    ct_buf_init(&text, 0);
    ct_this_machine_name(ret->machine, sizeof ret->machine);
    code = ct_fs_read(path, CT_COSTS_BYTES, &text, err);
    if (code == 0)
        code = parse_file(ret, path, &text, ret_found, err);
    ct_buf_deinit(&text);
    if (code == 0 && !*ret_found && is_named(given))
        return ct_error_set(err, CT_ENOTFOUND,
                            "calibration %s has nothing of this machine, \"%s\"; measure it: ctrun "
                            "plan --calibrate --calibration %s",
                            path, ret->machine, path);
    return code;
}

static int make_folder(const char *path, struct ct_error *err)
{
    char folder[PATH_MAX];

    (void)ct_str_copy(folder, sizeof folder, path);
    char *end = strrchr(folder, '/');
    if (end == NULL || end == folder)
        return 0;
    *end = '\0';
    return ct_fs_make_dirs(folder, err);
}

int ct_costs_save(struct ct_costs *costs, const char *given, struct ct_error *err)
{
    struct ct_costs *before = calloc(1, sizeof *before);
    char path[PATH_MAX];
    struct ct_buf text, merged;
    bool found;
    int code = before != NULL ? 0 : ct_error_set(err, CT_ENOMEM, "out of memory");

    ct_costs_path(given, path, sizeof path);
    ct_buf_init(&text, 0);
    ct_buf_init(&merged, CT_COSTS_BYTES);
    ct_this_machine_name(costs->machine, sizeof costs->machine);
    if (code == 0 && *path == '\0')
        code = ct_error_set(err, CT_ECANTCREAT,
                            "no place for a calibration: name one, --calibration PATH");
    if (code == 0 && access(path, F_OK) == 0)
        code = ct_fs_read(path, CT_COSTS_BYTES, &text, err);
    if (code == 0 && text.size > 0) {
        ct_this_machine_name(before->machine, sizeof before->machine);
        code = parse_file(before, path, &text, &found, err);
    }
    ct_costs_print(costs, ct_buf_str(&text), text.size, &merged);
    if (code == 0 && merged.failed)
        code = ct_error_set(err, CT_ELIMIT, "calibration %s would have more than %d bytes", path,
                            CT_COSTS_BYTES);
    if (code == 0)
        code = make_folder(path, err);
    if (code == 0)
        code = ct_fs_replace(path, ct_buf_str(&merged), merged.size, err);
    ct_buf_deinit(&text);
    ct_buf_deinit(&merged);
    free(before);
    return code;
}
