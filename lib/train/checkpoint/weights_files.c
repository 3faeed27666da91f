/* See weights_files.h. */
#include "train/checkpoint/weights_files.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/str.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_file(struct ct_weights_files *files, const char *path, struct ct_error *err)
{
    struct ct_weights_file *file = &files->at[files->count];

    if (!ct_str_copy(file->path, sizeof file->path, path))
        return ct_error_set(err, CT_ENOINPUT, "%.64s...: the path is too long", path);
    int code = ct_st_open(&file->fd, &file->table, file->path, err);
    if (code == 0)
        files->count++;
    return code;
}

/* ---- an index -------------------------------------------------------------------------------- */

/* The place of a part that the index `path` names; it lies beside it. */
static int part_path(const char *path, const char *name, char to[PATH_MAX], struct ct_error *err)
{
    const char *slash = strrchr(path, '/');
    int folder = slash != NULL ? (int)(slash - path) + 1 : 0;

    if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
        return ct_error_set(err, CT_EDATA, "%s: weight_map names \"%.64s\", which is no file here",
                            path, name != NULL ? name : "");
    if (snprintf(to, PATH_MAX, "%.*s%s", folder, path, name) >= PATH_MAX)
        return ct_error_set(err, CT_ENOINPUT, "%.64s...: the path is too long", path);
    return 0;
}

static const struct ct_weights_file *find_file(const struct ct_weights_files *files,
                                               const char *path)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->at[i].path, path) == 0)
            return &files->at[i];
    return NULL;
}

/* One row of the map: its file is open, or opened, and holds the tensor. */
static int follow(struct ct_weights_files *files, const char *path, const char *tensor,
                  const char *name, struct ct_error *err)
{
    char part[PATH_MAX];
    int code = part_path(path, name, part, err);

    if (code == 0 && find_file(files, part) == NULL) {
        if (files->count == CT_WEIGHTS_MAX_FILES)
            return ct_error_set(err, CT_ELIMIT, "%s: names more than %d files", path,
                                CT_WEIGHTS_MAX_FILES);
        code = open_file(files, part, err);
    }
    if (code == 0 && ct_st_find(&find_file(files, part)->table, tensor) == NULL)
        code = ct_error_set(err, CT_EDATA, "%s: it has no tensor \"%s\", but the index says so",
                            part, tensor);
    return code;
}

static int follow_all(struct ct_weights_files *files, const char *path, json_t *map,
                      struct ct_error *err)
{
    const char *tensor;
    json_t *name;
    int code = 0;

    if (!json_is_object(map) || json_object_size(map) == 0)
        return ct_error_set(err, CT_EDATA, "%s: has no weight_map", path);
    json_object_foreach(map, tensor, name)
    {
        code = follow(files, path, tensor, json_string_value(name), err);
        if (code != 0)
            return code;
    }
    if (ct_weights_files_tensors(files) != json_object_size(map))
        return ct_error_set(err, CT_EDATA, "%s: its files hold %zu tensors, it names %zu", path,
                            ct_weights_files_tensors(files), json_object_size(map));
    return 0;
}

static int read_index(struct ct_weights_files *files, const char *path, struct ct_error *err)
{
    struct ct_buf text;
    json_error_t where;

    ct_buf_init(&text, 0);
    int code = ct_fs_read(path, CT_ST_MAX_HEADER, &text, err);
    if (code == 0) {
        json_t *root = json_loadb(ct_buf_str(&text), text.size, JSON_REJECT_DUPLICATES, &where);
        if (root == NULL)
            code = ct_error_set(err, CT_EDATA, "%s: no JSON: %s", path, where.text);
        else
            code = follow_all(files, path, json_object_get(root, "weight_map"), err);
        json_decref(root);
    }
    ct_buf_deinit(&text);
    return code;
}

/* ---- outside --------------------------------------------------------------------------------- */

int ct_weights_files_open(struct ct_weights_files *ret, const char *path, struct ct_error *err)
{
    bool index = ct_ends_with(path, ".index.json");
    size_t room = index ? CT_WEIGHTS_MAX_FILES : 1;
    struct ct_weights_files files = {.at = calloc(room, sizeof *files.at)};

    if (files.at == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the files of %s", path);
    int code = index ? read_index(&files, path, err) : open_file(&files, path, err);
    if (code != 0)
        ct_weights_files_close(&files);
    else
        *ret = files;
    return code;
}

void ct_weights_files_close(struct ct_weights_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        ct_st_table_deinit(&files->at[i].table);
        (void)close(files->at[i].fd);
    }
    free(files->at);
    *files = (struct ct_weights_files){.at = NULL};
}

size_t ct_weights_files_tensors(const struct ct_weights_files *files)
{
    size_t count = 0;

    for (size_t i = 0; i < files->count; i++)
        count += files->at[i].table.count;
    return count;
}

/* ---- writing --------------------------------------------------------------------------------- */

void ct_weights_part_name(char name[CT_WEIGHTS_PART_NAME], size_t part, size_t parts)
{
    (void)snprintf(name, CT_WEIGHTS_PART_NAME, "model-%05zu-of-%05zu.safetensors", part + 1, parts);
}

int ct_weights_index_write(const char *path, const struct ct_st_tensor *tensors, size_t count,
                           const size_t *part_of, size_t parts, struct ct_error *err)
{
    char name[CT_WEIGHTS_PART_NAME];
    uint64_t total = 0;
    struct ct_buf to;

    for (size_t i = 0; i < count; i++)
        total += ct_st_bytes(&tensors[i]);
    ct_buf_init(&to, 0);
    (void)ct_buf_printf(&to, "{\n  \"metadata\": {\"total_size\": %" PRIu64 "},\n", total);
    (void)ct_buf_puts(&to, "  \"weight_map\": {");
    for (size_t i = 0; i < count; i++) {
        ct_weights_part_name(name, part_of[i], parts);
        (void)ct_buf_puts(&to, i > 0 ? ",\n    " : "\n    ");
        ct_json_string(&to, tensors[i].name);
        (void)ct_buf_printf(&to, ": \"%s\"", name);
    }
    (void)ct_buf_puts(&to, "\n  }\n}\n");
    int code = to.failed ? ct_error_set(err, CT_ENOMEM, "out of memory for %s", path)
                         : ct_fs_replace(path, ct_buf_str(&to), to.size, err);
    ct_buf_deinit(&to);
    return code;
}
