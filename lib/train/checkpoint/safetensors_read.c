/* Reading safetensors files; see safetensors.h. Nothing in the file is believed: the header's size
 * before it is read, then each entry, then that the entries tile the data exactly. */
#include "train/checkpoint/safetensors.h"

#include "base/assert.h"
#include "train/json_number.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE_WORD = 8 };

int ct_st_head_size(size_t *ret, const char *name, const void *first8, uint64_t file_size,
                    struct ct_error *err)
{
    if (file_size < SIZE_WORD)
        return ct_error_set(err, CT_EDATA, "%s: truncated: %" PRIu64 " bytes hold no header", name,
                            file_size);
    uint64_t size = ct_get_le64(first8);
    if (size > CT_ST_MAX_HEADER)
        return ct_error_set(err, CT_ELIMIT,
                            "%s: not a safetensors file: its header would be %" PRIu64
                            " bytes, the limit is %zu",
                            name, size, CT_ST_MAX_HEADER);
    if (size > file_size - SIZE_WORD)
        return ct_error_set(err, CT_EDATA,
                            "%s: truncated: a header of %" PRIu64
                            " bytes, but the file has %" PRIu64,
                            name, size, file_size);
    *ret = SIZE_WORD + (size_t)size;
    return 0;
}

/* One entry's type, shape and place; returns what is wrong, or NULL. */
static const char *parse_entry(struct ct_st_entry *entry, const json_t *value, uint64_t data_size)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    struct ct_st_tensor *tensor = &entry->tensor;
    uint64_t end = 0;

    if (json_object_size(value) != 3 || dtype == NULL || !json_is_array(shape) ||
        json_array_size(offsets) != 2)
        return "has not exactly a dtype, a shape and two data_offsets";
    int found = ct_dtype_find(dtype);
    if (found < 0 || strcmp(ct_dtype_name((enum ct_dtype)found), dtype) != 0)
        return "has an unknown dtype";
    tensor->dtype = (enum ct_dtype)found;
    if (json_array_size(shape) > CT_ST_MAX_DIMS)
        return "has too many dimensions";
    tensor->dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->dims; i++)
        if (!ct_json_whole(json_array_get(shape, i), &tensor->shape[i]))
            return "has a shape that is no list of sizes";
    if (!ct_json_whole(json_array_get(offsets, 0), &entry->offset) ||
        !ct_json_whole(json_array_get(offsets, 1), &end) || entry->offset > end)
        return "has data_offsets that are no range";
    if (end > data_size)
        return "lies behind the end of the file (is it truncated?)";
    if (ct_st_bytes(tensor) != end - entry->offset)
        return "has data_offsets that disagree with its shape and dtype";
    return NULL;
}

static bool metadata_is_valid(json_t *value)
{
    const char *key;
    json_t *text;

    if (!json_is_object(value))
        return false;
    json_object_foreach(value, key, text) if (!json_is_string(text)) return false;
    return true;
}

static int fill_table(struct ct_st_table *table, const char *name, json_t *root, uint64_t data_size,
                      struct ct_error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            if (!metadata_is_valid(value))
                return ct_error_set(err, CT_EDATA, "%s: __metadata__ is no map of strings", name);
            continue;
        }
        struct ct_st_entry *entry = &table->entries[table->count];
        if (strlen(key) > CT_ST_MAX_NAME)
            return ct_error_set(err, CT_ELIMIT, "%s: a tensor's name is longer than %d bytes", name,
                                CT_ST_MAX_NAME);
        const char *wrong = parse_entry(entry, value, data_size);
        if (wrong != NULL)
            return ct_error_set(err, CT_EDATA, "%s: tensor \"%s\" %s", name, key, wrong);
        entry->tensor.name = strdup(key);
        if (entry->tensor.name == NULL)
            return ct_error_set(err, CT_ENOMEM, "%s: out of memory", name);
        table->count++;
    }
    return 0;
}

/* By offset; an empty tensor before the one that starts where it lies. */
static int compare_entries(const void *a, const void *b)
{
    const struct ct_st_entry *x = a, *y = b;
    uint64_t x_bytes = ct_st_bytes(&x->tensor), y_bytes = ct_st_bytes(&y->tensor);

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x_bytes > y_bytes) - (x_bytes < y_bytes);
}

/* The entries lie back to back and fill the data; then turn their offsets into file offsets. */
static int check_tiling(struct ct_st_table *table, const char *name, uint64_t head_size,
                        uint64_t data_size, struct ct_error *err)
{
    uint64_t at = 0;

    if (table->count > 0)
        qsort(table->entries, table->count, sizeof table->entries[0], compare_entries);
    for (size_t i = 0; i < table->count; i++) {
        struct ct_st_entry *entry = &table->entries[i];
        if (entry->offset != at)
            return ct_error_set(err, CT_EDATA, "%s: tensor \"%s\" %s", name, entry->tensor.name,
                                entry->offset < at ? "overlaps another" : "leaves a gap before it");
        at += ct_st_bytes(&entry->tensor);
        entry->offset += head_size;
    }
    if (at != data_size)
        return ct_error_set(err, CT_EDATA, "%s: %" PRIu64 " bytes behind the last tensor", name,
                            data_size - at);
    return 0;
}

int ct_st_parse(struct ct_st_table *ret, const char *name, const struct ct_buf *head,
                uint64_t file_size, struct ct_error *err)
{
    struct ct_st_table table = {0};
    json_error_t problem;
    int code;

    CT_ASSERT(head->size >= SIZE_WORD && head->size <= file_size);
    json_t *root = json_loadb(head->data + SIZE_WORD, head->size - SIZE_WORD,
                              JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(root)) {
        code = ct_error_set(err, CT_EDATA, "%s: its header is no JSON object%s%s", name,
                            root == NULL ? ": " : "", root == NULL ? problem.text : "");
        json_decref(root);
        return code;
    }
    if (json_object_size(root) > CT_ST_MAX_TENSORS) {
        json_decref(root);
        return ct_error_set(err, CT_ELIMIT, "%s: more than %d tensors", name, CT_ST_MAX_TENSORS);
    }
    table.entries = calloc(json_object_size(root) + 1, sizeof table.entries[0]);
    code = table.entries != NULL ? fill_table(&table, name, root, file_size - head->size, err)
                                 : ct_error_set(err, CT_ENOMEM, "%s: out of memory", name);
    json_decref(root);
    if (code == 0)
        code = check_tiling(&table, name, head->size, file_size - head->size, err);
    if (code != 0)
        ct_st_table_deinit(&table);
    else
        *ret = table;
    return code;
}

void ct_st_table_deinit(struct ct_st_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < table->count; i++)
        free((void *)(uintptr_t)table->entries[i].tensor.name);
    free(table->entries);
    *table = (struct ct_st_table){0};
}

const struct ct_st_entry *ct_st_find(const struct ct_st_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->entries[i].tensor.name, name) == 0)
            return &table->entries[i];
    return NULL;
}

int ct_st_read(int fd, const char *path, void *to, uint64_t size, uint64_t offset,
               struct ct_error *err)
{
    for (uint64_t have = 0; have < size;) {
        ssize_t got = pread(fd, (char *)to + have, (size_t)CT_MIN(size - have, (uint64_t)1 << 30),
                            (off_t)(offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ct_error_set(err, CT_ENOINPUT, "%s: cannot be read: %s", path, strerror(errno));
        if (got == 0)
            return ct_error_set(err, CT_EDATA, "%s: truncated at byte %" PRIu64, path,
                                offset + have);
        have += (uint64_t)got;
    }
    return 0;
}

static int read_table(int fd, struct ct_st_table *ret, const char *path, struct ct_error *err)
{
    struct stat info;
    struct ct_buf head;
    char first8[SIZE_WORD] = {0};
    size_t head_size = 0;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return ct_error_set(err, CT_ENOINPUT, "%s: is not a file", path);
    uint64_t file_size = (uint64_t)info.st_size;
    int code = ct_st_read(fd, path, first8, CT_MIN(file_size, (uint64_t)SIZE_WORD), 0, err);
    if (code == 0)
        code = ct_st_head_size(&head_size, path, first8, file_size, err);
    if (code != 0)
        return code;
    ct_buf_init(&head, 0);
    char *at = ct_buf_reserve(&head, head_size);
    code = at != NULL ? ct_st_read(fd, path, at, head_size, 0, err)
                      : ct_error_set(err, CT_ENOMEM, "%s: out of memory", path);
    if (code == 0) {
        head.size = head_size;
        code = ct_st_parse(ret, path, &head, file_size, err);
    }
    ct_buf_deinit(&head);
    return code;
}

int ct_st_open(int *ret_fd, struct ct_st_table *ret, const char *path, struct ct_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return ct_error_set(err, CT_ENOINPUT, "%s: cannot be opened: %s", path, strerror(errno));
    int code = read_table(fd, ret, path, err);
    if (code != 0)
        (void)close(fd);
    else
        *ret_fd = fd;
    return code;
}

bool ct_st_same_shape(const struct ct_st_tensor *a, const struct ct_st_tensor *b)
{
    bool same = a->dims == b->dims;

    for (uint32_t i = 0; same && i < a->dims; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

int ct_st_match(const struct ct_st_table *table, const char *path,
                const struct ct_st_tensor *wanted, size_t count, struct ct_error *err)
{
    char have[128], want[128];

    for (size_t i = 0; i < count; i++) {
        const struct ct_st_entry *entry = ct_st_find(table, wanted[i].name);
        ct_st_describe(&wanted[i], want, sizeof want);
        if (entry == NULL)
            return ct_error_set(
                err, CT_EDATA,
                "%s: of another model or optimizer: it has no tensor \"%s\", which is %s here",
                path, wanted[i].name, want);
        ct_st_describe(&entry->tensor, have, sizeof have);
        if (entry->tensor.dtype != wanted[i].dtype || !ct_st_same_shape(&entry->tensor, &wanted[i]))
            return ct_error_set(err, CT_EDATA,
                                "%s: of another model: tensor \"%s\" is %s, but %s here", path,
                                wanted[i].name, have, want);
    }
    for (size_t i = 0; i < table->count; i++) {
        bool known = false;
        for (size_t j = 0; !known && j < count; j++)
            known = strcmp(table->entries[i].tensor.name, wanted[j].name) == 0;
        if (!known)
            return ct_error_set(
                err, CT_EDATA,
                "%s: of another model or optimizer: its tensor \"%s\" does not exist here", path,
                table->entries[i].tensor.name);
    }
    return 0;
}

int ct_st_load(int fd, const struct ct_st_table *table, const char *path,
               const struct ct_st_tensor *wanted, size_t count, struct ct_error *err)
{
    int code = ct_st_match(table, path, wanted, count, err);

    for (size_t i = 0; code == 0 && i < count; i++) {
        const struct ct_st_entry *entry = ct_st_find(table, wanted[i].name);
        code = ct_st_read(fd, path, wanted[i].data, ct_st_bytes(&wanted[i]), entry->offset, err);
    }
    return code;
}
