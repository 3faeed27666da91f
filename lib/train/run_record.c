/* run.json; see runs.h. */
#include "train/runs.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fs.h"
#include "base/str.h"
#include "train/json_number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_BYTES = 1 << 16, GIT_BYTES = 1 << 20 };

static const char *const hows[] = {"running", "finished", "interrupted", "failed"};

#define AT(field) offsetof(struct ct_run_record, field)
#define SIZE(field) sizeof((struct ct_run_record *)0)->field

static const struct {
    const char *key;
    size_t at, size;
} texts[] = {
    {"id", AT(id), SIZE(id)},
    {"job", AT(job), SIZE(job)},
    {"command", AT(command), SIZE(command)},
    {"directory", AT(directory), SIZE(directory)},
    {"version", AT(version), SIZE(version)},
    {"commit", AT(commit), SIZE(commit)},
    {"host", AT(host), SIZE(host)},
    {"cause", AT(cause), SIZE(cause)},
};

static const struct {
    const char *key;
    size_t at;
} numbers[] = {
    {"started", AT(started)}, {"starts", AT(starts)}, {"began", AT(began)},
    {"steps", AT(steps)},     {"step", AT(step)},     {"ended", AT(ended)},
    {"seconds", AT(seconds)}, {"status", AT(status)},
};

const char *ct_run_how_text(enum ct_run_how how)
{
    return hows[how];
}

static int path_of(const char *folder, char path[PATH_MAX], struct ct_error *err)
{
    if (snprintf(path, PATH_MAX, "%s/run.json", folder) < PATH_MAX)
        return 0;
    return ct_error_set(err, CT_ECANTCREAT, "%.64s...: the path is too long", folder);
}

static bool parse(const json_t *root, struct ct_run_record *ret)
{
    const char *how = json_string_value(json_object_get(root, "how"));
    uint64_t pid = 0;
    bool known = false;

    for (size_t i = 0; i < CT_COUNT(texts); i++) {
        const char *text = json_string_value(json_object_get(root, texts[i].key));
        (void)ct_str_copy((char *)ret + texts[i].at, texts[i].size, text != NULL ? text : "");
    }
    for (size_t i = 0; i < CT_COUNT(numbers); i++)
        (void)ct_json_whole(json_object_get(root, numbers[i].key),
                            (uint64_t *)(void *)((char *)ret + numbers[i].at));
    if (ct_json_whole(json_object_get(root, "pid"), &pid))
        ret->pid = (int64_t)pid;
    for (size_t i = 0; how != NULL && i < CT_COUNT(hows); i++)
        if (strcmp(how, hows[i]) == 0) {
            ret->how = (enum ct_run_how)i;
            known = true;
        }
    return known && ret->id[0] != '\0';
}

int ct_run_record_read(const char *folder, struct ct_run_record *ret, struct ct_error *err)
{
    char path[PATH_MAX];
    struct ct_buf text;
    json_t *root = NULL;

    ct_buf_init(&text, 0);
    int code = path_of(folder, path, err);
    if (code == 0)
        code = ct_fs_read(path, RECORD_BYTES, &text, err);
    if (code == 0) {
        *ret = (struct ct_run_record){.how = CT_RUN_RUNNING};
        root = json_loadb(ct_buf_str(&text), text.size, 0, NULL);
        if (!parse(root, ret))
            code = ct_error_set(err, CT_EDATA, "%s: this is no record of a run", path);
    }
    json_decref(root);
    ct_buf_deinit(&text);
    return code;
}

int ct_run_record_write(const char *folder, const struct ct_run_record *record,
                        struct ct_error *err)
{
    char path[PATH_MAX];
    json_t *root = json_object();
    int code = path_of(folder, path, err);

    for (size_t i = 0; i < CT_COUNT(texts); i++) {
        json_t *text = json_string((const char *)record + texts[i].at);
        if (text == NULL) /* an argument need not be UTF-8 */
            text = json_string("?");
        (void)json_object_set_new(root, texts[i].key, text);
    }
    for (size_t i = 0; i < CT_COUNT(numbers); i++) {
        uint64_t number;
        memcpy(&number, (const char *)record + numbers[i].at, sizeof number);
        (void)json_object_set_new(root, numbers[i].key, json_integer((json_int_t)number));
    }
    (void)json_object_set_new(root, "pid", json_integer((json_int_t)record->pid));
    (void)json_object_set_new(root, "how", json_string(hows[record->how]));
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (code == 0 && text == NULL)
        code = ct_error_set(err, CT_ENOMEM, "%s: out of memory", path);
    if (code == 0)
        code = ct_fs_replace(path, text, strlen(text), err);
    free(text);
    return code;
}

int ct_run_record_end(const char *folder, const struct ct_run_record *end, uint64_t now,
                      struct ct_error *err)
{
    struct ct_run_record *record = malloc(sizeof *record);
    int code = CT_ENOMEM;

    if (record != NULL)
        code = ct_run_record_read(folder, record, NULL);
    if (code == 0) {
        record->how = end->how;
        record->status = end->status;
        record->step = end->step > 0 ? end->step : record->step;
        record->ended = now;
        record->seconds += now > record->began ? now - record->began : 0;
        (void)ct_str_copy(record->cause, sizeof record->cause, end->cause);
        code = ct_run_record_write(folder, record, err);
    }
    free(record);
    return code == CT_ENOINPUT ? 0 : code;
}

/* ---- git ------------------------------------------------------------------------------------ */

/* The first line of FOLDER/NAME behind `prefix`. */
static bool read_line(const char *folder, const char *name, const char *prefix, char *to,
                      size_t room)
{
    char path[PATH_MAX];
    struct ct_buf text;
    bool found = false;

    ct_buf_init(&text, 0);
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
        ct_fs_read(path, GIT_BYTES, &text, NULL) == 0 && text.size > 0) {
        char *line = (char *)(uintptr_t)ct_buf_str(&text);
        line[strcspn(line, "\r\n")] = '\0';
        found = ct_starts_with(line, prefix) && ct_str_copy(to, room, line + strlen(prefix));
    }
    ct_buf_deinit(&text);
    return found;
}

/* "<hash> <ref>" of packed-refs. */
static bool find_packed(const char *folder, const char *ref, char commit[72])
{
    char path[PATH_MAX];
    struct ct_buf text;
    bool found = false;

    ct_buf_init(&text, 0);
    if (snprintf(path, sizeof path, "%s/packed-refs", folder) < (int)sizeof path &&
        ct_fs_read(path, GIT_BYTES, &text, NULL) == 0)
        for (char *line = (char *)(uintptr_t)ct_buf_str(&text), *end; *line != '\0' && !found;
             line = end + (*end != '\0')) {
            end = line + strcspn(line, "\n");
            size_t hash = strcspn(line, " \n");
            found = hash < 72 && line[hash] == ' ' &&
                    (size_t)(end - line) == hash + 1 + strlen(ref) &&
                    strncmp(line + hash + 1, ref, strlen(ref)) == 0;
            if (found)
                (void)snprintf(commit, 72, "%.*s", (int)hash, line);
        }
    ct_buf_deinit(&text);
    return found;
}

/* What HEAD of the repository in `git` stands for; a worktree's branches lie in its `commondir`. */
static void read_head(const char *git, char commit[72])
{
    char ref[512], common[PATH_MAX], shared[PATH_MAX];

    if (!read_line(git, "HEAD", "ref: ", ref, sizeof ref)) {
        (void)read_line(git, "HEAD", "", commit, 72);
        return;
    }
    (void)ct_str_copy(shared, sizeof shared, git);
    if (read_line(git, "commondir", "", common, sizeof common) &&
        (common[0] == '/'
             ? snprintf(shared, sizeof shared, "%s", common)
             : snprintf(shared, sizeof shared, "%s/%s", git, common)) >= (int)sizeof shared)
        return;
    if (!read_line(git, ref, "", commit, 72) && !read_line(shared, ref, "", commit, 72))
        (void)find_packed(shared, ref, commit);
}

void ct_run_commit(char commit[72])
{
    char folder[PATH_MAX - 8], git[PATH_MAX], elsewhere[PATH_MAX];

    commit[0] = '\0';
    if (getcwd(folder, sizeof folder) == NULL)
        return;
    for (char *slash; (slash = strrchr(folder, '/')) != NULL; *slash = '\0') {
        (void)snprintf(git, sizeof git, "%s/.git", folder);
        if (read_line(folder, ".git", "gitdir: ", elsewhere, sizeof elsewhere))
            (void)ct_str_copy(git, sizeof git, elsewhere);
        read_head(git, commit);
        if (commit[0] != '\0')
            return;
    }
}
