/* See weights.h. Tensors pass through a window of some rows of the file, so that a large one costs
 * no second copy of itself. */
#include "train/checkpoint/weights.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "train/checkpoint/weights_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char hub_prefix[] = "transformer.", head_name[] = "lm_head.weight",
                  table_name[] = "wte.weight";

/* In a folder: all weights, or the index of their files. The first goes before, as in the hub's own
 * programs. */
static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};

enum { WINDOW_BYTES = 1 << 20, NAME_BYTES = 64 << 20 };

/* Is it the weight of a linear layer that Hugging Face keeps as [in, out]? */
static bool is_transposed(const char *name)
{
    return ct_ends_with(name, ".c_attn.weight") || ct_ends_with(name, ".c_proj.weight") ||
           ct_ends_with(name, ".c_fc.weight");
}

static bool is_mask(const char *name)
{
    return ct_ends_with(name, ".attn.bias") || ct_ends_with(name, ".attn.masked_bias");
}

/* The name as it is called here. */
static const char *plain_name(const char *name)
{
    return ct_starts_with(name, hub_prefix) ? name + strlen(hub_prefix) : name;
}

static struct ct_st_tensor transposed(const struct ct_st_tensor *tensor)
{
    struct ct_st_tensor other = *tensor;

    other.shape[0] = tensor->shape[1];
    other.shape[1] = tensor->shape[0];
    return other;
}

int ct_weights_path(const char *path, char ret_path[PATH_MAX], struct ct_error *err)
{
    struct stat info;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);

    if (strlen(path) + strlen(names[1]) + 1 >= PATH_MAX)
        return ct_error_set(err, CT_ENOINPUT, "%.64s...: the path is too long", path);
    for (size_t i = folder ? 0 : 1; i < CT_COUNT(names); i++) {
        (void)snprintf(ret_path, PATH_MAX, "%s%s%s", path, folder ? "/" : "",
                       folder ? names[i] : "");
        if (stat(ret_path, &info) == 0)
            return 0;
    }
    return ct_error_set(err, CT_ENOINPUT, "%s%s: cannot be read: %s", path,
                        folder ? "/model.safetensors" : "", strerror(errno));
}

/* ---- rows of a tensor ----------------------------------------------------------------------- */

/* Rows of a tensor as its file has them; one of fewer than two dimensions is a single row. */
struct window {
    uint64_t rows, columns; /* of the tensor */
    uint64_t height;        /* rows that it holds at most */
    size_t width;           /* bytes of an element in the file */
    char *stored;           /* [height, columns] as in the file */
    float *values;          /* the same as f32 */
};

static int open_window(struct window *ret, const struct ct_st_tensor *tensor, enum ct_dtype dtype,
                       struct ct_error *err)
{
    struct window w = {.rows = 1, .columns = 1, .width = ct_dtype_size(dtype)};

    for (uint32_t i = 0; i < tensor->dims; i++)
        *(i == 0 && tensor->dims > 1 ? &w.rows : &w.columns) *= tensor->shape[i];
    w.height = CT_MAX(1, WINDOW_BYTES / CT_MAX(1, w.columns * sizeof(float)));
    w.height = CT_MIN(w.height, CT_MAX(1, w.rows));
    w.stored = malloc((size_t)(w.height * w.columns) * w.width + 1);
    w.values = malloc((size_t)(w.height * w.columns) * sizeof *w.values + 1);
    if (w.stored == NULL || w.values == NULL) {
        free(w.stored);
        free(w.values);
        return ct_error_set(err, CT_ENOMEM, "out of memory for rows of tensor \"%s\"",
                            tensor->name);
    }
    *ret = w;
    return 0;
}

static void close_window(struct window *w)
{
    free(w->stored);
    free(w->values);
}

static void widen(float *to, const char *from, enum ct_dtype dtype, size_t count)
{
    uint16_t bits;
    double wide;

    if (dtype == CT_F32)
        memcpy(to, from, count * sizeof *to);
    for (size_t i = 0; dtype == CT_F64 && i < count; i++) {
        memcpy(&wide, from + i * sizeof wide, sizeof wide);
        to[i] = (float)wide;
    }
    for (size_t i = 0; (dtype == CT_BF16 || dtype == CT_F16) && i < count; i++) {
        memcpy(&bits, from + i * sizeof bits, sizeof bits);
        to[i] = dtype == CT_BF16 ? ct_bf16_to_f32(bits) : ct_f16_to_f32(bits);
    }
}

static void narrow(char *to, const float *from, enum ct_dtype dtype, size_t count)
{
    if (dtype == CT_F32)
        memcpy(to, from, count * sizeof *from);
    for (size_t i = 0; dtype != CT_F32 && i < count; i++) {
        uint16_t bits = dtype == CT_BF16 ? ct_bf16_from_f32(from[i]) : ct_f16_from_f32(from[i]);
        memcpy(to + i * sizeof bits, &bits, sizeof bits);
    }
}

/* Between rows first .. first + count - 1 of the window and the columns of the same numbers of
 * `whole`, whose rows are w->rows long. */
static void transpose(const struct window *w, float *whole, uint64_t first, uint64_t count, bool in)
{
    for (uint64_t column = 0; column < w->columns; column++)
        for (uint64_t row = 0; row < count; row++) {
            float *there = &whole[column * w->rows + first + row];
            float *here = &w->values[row * w->columns + column];

            *(in ? there : here) = *(in ? here : there);
        }
}

/* ---- in --------------------------------------------------------------------------------------*/

struct source {
    const char *path;
    struct ct_weights_files files;
    bool transposed; /* linear weights are [in, out] */
};

/* A tensor of the source: where its file has it. */
struct place {
    const struct ct_weights_file *file;
    const struct ct_st_entry *entry; /* NULL: nowhere */
};

/* What is called `name` here. */
static struct place find(const struct source *source, const char *name)
{
    for (size_t f = 0; f < source->files.count; f++) {
        const struct ct_weights_file *file = &source->files.at[f];
        for (size_t i = 0; i < file->table.count; i++)
            if (strcmp(plain_name(file->table.entries[i].tensor.name), name) == 0)
                return (struct place){file, &file->table.entries[i]};
    }
    return (struct place){NULL, NULL};
}

/* Square weights do not tell; all of one file are alike. */
static bool looks_transposed(const struct source *source, const struct ct_st_tensor *wanted,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct ct_st_entry *entry =
            is_transposed(wanted[i].name) ? find(source, wanted[i].name).entry : NULL;
        const struct ct_st_tensor other = transposed(&wanted[i]);

        if (entry != NULL && !ct_st_same_shape(&other, &wanted[i]))
            return ct_st_same_shape(&entry->tensor, &other);
    }
    return false;
}

static int check_wanted(const struct source *source, const struct ct_st_tensor *wanted,
                        struct ct_error *err)
{
    const struct ct_st_entry *entry = find(source, wanted->name).entry;
    bool turns = source->transposed && is_transposed(wanted->name);
    const struct ct_st_tensor there = turns ? transposed(wanted) : *wanted;
    char have[128], want[128];

    CT_ASSERT(wanted->dtype == CT_F32);
    ct_st_describe(&there, want, sizeof want);
    if (entry == NULL)
        return ct_error_set(err, CT_EDATA,
                            "%s: of another model: it has no tensor \"%s\", which is %s here",
                            source->path, wanted->name, want);
    ct_st_describe(&entry->tensor, have, sizeof have);
    if (!ct_st_same_shape(&entry->tensor, &there))
        return ct_error_set(err, CT_EDATA, "%s: of another model: tensor \"%s\" is %s, but %s here",
                            source->path, wanted->name, have, want);
    switch (entry->tensor.dtype) {
    case CT_F32:
    case CT_F64:
    case CT_BF16:
    case CT_F16:
        return 0;
    default:
        return ct_error_set(err, CT_EDATA,
                            "%s: tensor \"%s\" is %s; weights are F32, F64, BF16 or F16",
                            source->path, wanted->name, have);
    }
}

/* Whether anybody wants it, or may: a head, see check_head. */
static bool is_known(const char *name, const struct ct_st_tensor *wanted, size_t count)
{
    bool known = is_mask(name) || strcmp(name, head_name) == 0;

    for (size_t i = 0; !known && i < count; i++)
        known = strcmp(name, wanted[i].name) == 0;
    return known;
}

/* What the files hold and nobody wants. */
static int check_rest(const struct source *source, const struct ct_st_tensor *wanted, size_t count,
                      struct ct_error *err)
{
    for (size_t f = 0; f < source->files.count; f++) {
        const struct ct_weights_file *file = &source->files.at[f];
        for (size_t i = 0; i < file->table.count; i++) {
            const char *name = file->table.entries[i].tensor.name;
            if (!is_known(plain_name(name), wanted, count))
                return ct_error_set(err, CT_EDATA,
                                    "%s: of another model: its tensor \"%s\" does not exist here",
                                    file->path, name);
        }
    }
    return 0;
}

static int read_tensor(const struct source *source, const struct ct_st_tensor *wanted,
                       struct place place, struct ct_error *err)
{
    const struct ct_st_entry *entry = place.entry;
    enum ct_dtype dtype = entry->tensor.dtype;
    bool turns = source->transposed && is_transposed(wanted->name);
    struct window w = {0};
    int code = open_window(&w, &entry->tensor, dtype, err);

    if (code != 0)
        return code;
    for (uint64_t row = 0; row < w.rows && code == 0; row += w.height) {
        uint64_t rows = CT_MIN(w.height, w.rows - row), first = row * w.columns;
        size_t count = (size_t)(rows * w.columns);

        code = ct_st_read(place.file->fd, place.file->path, w.stored, count * w.width,
                          entry->offset + first * w.width, err);
        if (code != 0)
            break;
        widen(turns ? w.values : (float *)wanted->data + first, w.stored, dtype, count);
        if (turns)
            transpose(&w, wanted->data, row, rows, true);
    }
    close_window(&w);
    return code;
}

/* Whether the file's head is `embedding`, which has been read. */
static int compare_head(const struct source *source, const struct ct_st_tensor *embedding,
                        struct place place, bool *ret_same, struct ct_error *err)
{
    struct ct_st_tensor head = *embedding;
    size_t bytes = (size_t)ct_st_bytes(embedding);

    head.data = malloc(bytes + 1);
    if (head.data == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a head");
    int code = read_tensor(source, &head, place, err);
    *ret_same = code == 0 && memcmp(head.data, embedding->data, bytes) == 0;
    free(head.data);
    return code;
}

/* A tied model has no use for the file's head unless it says what wte says. */
static int check_head(const struct source *source, const struct ct_st_tensor *wanted, size_t count,
                      struct ct_error *err)
{
    struct place place = find(source, head_name);
    const struct ct_st_tensor *embedding = NULL;
    bool same = false;
    int code = 0;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(wanted[i].name, head_name) == 0)
            return 0;
        if (strcmp(wanted[i].name, table_name) == 0)
            embedding = &wanted[i];
    }
    if (place.entry == NULL)
        return 0;
    if (embedding != NULL && ct_st_same_shape(&place.entry->tensor, embedding))
        code = compare_head(source, embedding, place, &same, err);
    if (code != 0 || same)
        return code;
    return ct_error_set(err, CT_EDATA,
                        "%s: its lm_head.weight is not its embedding: set model.tie to false to "
                        "have a head of its own",
                        source->path);
}

/* Names and shapes. */
static int check(const struct source *source, const struct ct_st_tensor *wanted, size_t count,
                 struct ct_error *err)
{
    int code = 0;

    for (size_t i = 0; i < count && code == 0; i++)
        code = check_wanted(source, &wanted[i], err);
    return code == 0 ? check_rest(source, wanted, count, err) : code;
}

static int open_source(struct source *source, const char *path, char file[PATH_MAX],
                       const struct ct_st_tensor *wanted, size_t count, struct ct_error *err)
{
    int code = ct_weights_path(path, file, err);

    source->path = file;
    if (code == 0)
        code = ct_weights_files_open(&source->files, file, err);
    if (code == 0)
        source->transposed = looks_transposed(source, wanted, count);
    return code;
}

int ct_weights_load(const char *path, const struct ct_st_tensor *wanted, size_t count,
                    struct ct_error *err)
{
    char file[PATH_MAX];
    struct source source;
    int code = open_source(&source, path, file, wanted, count, err);

    if (code != 0)
        return code;
    code = check(&source, wanted, count, err);
    for (size_t i = 0; i < count && code == 0; i++)
        code = read_tensor(&source, &wanted[i], find(&source, wanted[i].name), err);
    if (code == 0)
        code = check_head(&source, wanted, count, err);
    ct_weights_files_close(&source.files);
    return code;
}

int ct_weights_check(const char *path, const struct ct_st_tensor *wanted, size_t count,
                     struct ct_error *err)
{
    char file[PATH_MAX];
    struct source source;
    int code = open_source(&source, path, file, wanted, count, err);

    if (code != 0)
        return code;
    if (count > 0)
        code = check(&source, wanted, count, err);
    ct_weights_files_close(&source.files);
    return code;
}

/* ---- out -------------------------------------------------------------------------------------*/

static bool has_head(const struct ct_st_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, head_name) == 0)
            return true;
    return false;
}

/* The tensors as the file has them, in `arena`. A head of its own is no part of the transformer:
 * then the others say that they are. */
static int describe(struct ct_st_tensor **ret, const struct ct_st_tensor *tensors, size_t count,
                    enum ct_dtype stored, struct ct_arena *arena)
{
    struct ct_st_tensor *there = ct_arena_array(arena, count, sizeof *there);
    const char *prefix = has_head(tensors, count) ? hub_prefix : "";

    for (size_t i = 0; there != NULL && i < count; i++) {
        bool head = strcmp(tensors[i].name, head_name) == 0;

        CT_ASSERT(tensors[i].dtype == CT_F32);
        there[i] = is_transposed(tensors[i].name) ? transposed(&tensors[i]) : tensors[i];
        there[i].dtype = stored;
        there[i].name = ct_arena_printf(arena, "%s%s", head ? "" : prefix, tensors[i].name);
        if (there[i].name == NULL)
            there = NULL;
    }
    *ret = there;
    return there != NULL ? 0 : CT_ENOMEM;
}

static int write_tensor(int fd, const struct ct_st_tensor *there, bool turns, struct ct_error *err)
{
    struct window w = {0};
    int code = open_window(&w, there, there->dtype, err);

    if (code != 0)
        return code;
    for (uint64_t row = 0; row < w.rows && code == 0; row += w.height) {
        uint64_t rows = CT_MIN(w.height, w.rows - row), first = row * w.columns;
        size_t count = (size_t)(rows * w.columns);

        if (turns)
            transpose(&w, there->data, row, rows, false);
        narrow(w.stored, turns ? w.values : (const float *)there->data + first, there->dtype,
               count);
        code = ct_fs_write_all(fd, w.stored, count * w.width);
    }
    close_window(&w);
    return code;
}

static int write_all(int fd, const struct ct_st_tensor *there, size_t count, struct ct_error *err)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    struct ct_buf head;

    ct_buf_init(&head, 0);
    int code = ct_st_header(&head, there, count, metadata);
    if (code == 0)
        code = ct_fs_write_all(fd, head.data, head.size);
    ct_buf_deinit(&head);
    for (size_t i = 0; i < count && code == 0; i++)
        code = write_tensor(fd, &there[i], is_transposed(there[i].name), err);
    return code == 0 && fsync(fd) != 0 ? -errno : code;
}

static int replace(const char *path, const struct ct_st_tensor *there, size_t count,
                   struct ct_error *err)
{
    char part[PATH_MAX];

    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return ct_error_set(err, CT_ECANTCREAT, "%.64s...: the path is too long", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return ct_error_set(err, CT_ECANTCREAT, "%s: cannot be created: %s", part, strerror(errno));
    int code = write_all(fd, there, count, err);
    if (close(fd) != 0 && code == 0)
        code = -errno;
    if (code == 0 && rename(part, path) != 0)
        code = -errno;
    if (code == 0)
        code = ct_fs_sync_parent(path);
    if (code == 0)
        return 0;
    (void)unlink(part);
    if (code == CT_ENOMEM)
        return ct_error_set(err, code, "%s: out of memory", path);
    return ct_error_set(err, CT_EIO, "%s: cannot be written: %s", path, ct_strerror(code));
}

/* The first `count` part numbers: a new part where the next tensor would not fit any more. */
static size_t share_out(const struct ct_st_tensor *there, size_t count, uint64_t most_bytes,
                        size_t *part_of)
{
    uint64_t bytes = 0;
    size_t parts = 1;

    for (size_t i = 0; i < count; i++) {
        uint64_t more = ct_st_bytes(&there[i]);
        if (bytes > 0 && bytes + more > most_bytes) {
            parts++;
            bytes = 0;
        }
        bytes += more;
        part_of[i] = parts - 1;
    }
    return parts;
}

/* `name` in the folder; whole paths are short enough (checked before). */
static const char *in_folder(char path[PATH_MAX], const char *folder, const char *name)
{
    (void)snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - CT_WEIGHTS_PART_NAME - 2, folder, name);
    return path;
}

/* The parts, then the index, which makes them the folder's weights; or the one file, and no index.
 */
static int save_parts(const char *folder, const struct ct_st_tensor *there, size_t count,
                      const size_t *part_of, size_t parts, struct ct_error *err)
{
    char path[PATH_MAX], name[CT_WEIGHTS_PART_NAME];
    int code = 0;

    for (size_t first = 0, next = 0; first < count && code == 0; first = next) {
        while (next < count && part_of[next] == part_of[first])
            next++;
        ct_weights_part_name(name, part_of[first], parts);
        code = replace(in_folder(path, folder, parts > 1 ? name : names[0]), &there[first],
                       next - first, err);
    }
    if (code == 0 && parts > 1)
        code = ct_weights_index_write(in_folder(path, folder, names[1]), there, count, part_of,
                                      parts, err);
    (void)in_folder(path, folder, names[parts > 1 ? 0 : 1]);
    if (code == 0 && unlink(path) != 0 && errno != ENOENT)
        code = ct_error_set(err, CT_EIO, "%s: cannot be removed: %s", path, strerror(errno));
    return code;
}

/* What can be said before anything is done. */
static int check_save(const char *folder, enum ct_dtype stored, struct ct_error *err)
{
    if (stored != CT_F32 && stored != CT_BF16 && stored != CT_F16)
        return ct_error_set(err, CT_EUSAGE, "weights are stored as f32, bf16 or f16, not as %s",
                            ct_dtype_name(stored));
    if (strlen(folder) + CT_WEIGHTS_PART_NAME + sizeof ".part" > PATH_MAX)
        return ct_error_set(err, CT_ECANTCREAT, "%.64s...: the path is too long", folder);
    return 0;
}

int ct_weights_save(const char *folder, const struct ct_st_tensor *tensors, size_t count,
                    enum ct_dtype stored, uint64_t most_bytes, struct ct_error *err)
{
    struct ct_st_tensor *there = NULL;
    struct ct_arena arena;
    int code = check_save(folder, stored, err);

    if (code != 0)
        return code;
    size_t *part_of = calloc(count + 1, sizeof *part_of);
    ct_arena_init(&arena, NAME_BYTES);
    if (part_of == NULL || describe(&there, tensors, count, stored, &arena) != 0 || there == NULL) {
        code = ct_error_set(err, CT_ENOMEM, "%s: out of memory for its names", folder);
    } else {
        size_t parts = share_out(there, count, most_bytes > 0 ? most_bytes : UINT64_MAX, part_of);
        code = save_parts(folder, there, count, part_of, parts, err);
    }
    ct_arena_deinit(&arena);
    free(part_of);
    return code;
}
