/* safetensors files: named tensors that any tool can open.
 *
 *   u64 LE header size N | JSON header, N bytes, padded with spaces | data
 *   {"__metadata__": {..}, "fc1.weight": {"dtype": "F32", "shape": [64, 64],
 *                                         "data_offsets": [0, 16384]}, ...}
 *
 * Offsets count from the start of the data. The reader refuses all but an exact partition of the
 * data: gaps, overlaps, sizes that disagree with shape and type, names given twice, trailing bytes.
 * Format: https://huggingface.co/docs/safetensors. Tensors lie little-endian, as in memory here. */
#ifndef CT_TRAIN_SAFETENSORS_H
#define CT_TRAIN_SAFETENSORS_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/number/dtype.h"

#define CT_ST_MAX_DIMS 8
#define CT_ST_MAX_TENSORS 65536
#define CT_ST_MAX_NAME 512                  /* bytes of a name, without terminator */
#define CT_ST_MAX_HEADER ((size_t)32 << 20) /* bytes of the JSON header */

/* A tensor's place in memory or in a file. */
struct ct_st_tensor {
    const char *name;
    enum ct_dtype dtype;
    uint32_t dims; /* 0: a scalar */
    uint64_t shape[CT_ST_MAX_DIMS];
    void
        *data; /* in memory: where it lies (writer reads, reader fills); unused in a file's table */
};

/* Return the size in bytes of the tensor's elements, UINT64_MAX when the product overflows. */
uint64_t ct_st_bytes(const struct ct_st_tensor *tensor);

/* Return whether both have the same dimensions. */
bool ct_st_same_shape(const struct ct_st_tensor *a, const struct ct_st_tensor *b);

/* Write "F32 [64, 64]", for messages, cut to `room`. */
void ct_st_describe(const struct ct_st_tensor *tensor, char *text, size_t room);

/* ---- writing ------------------------------------------------------------------------------- */

/* Append the size word and the padded header for `count` tensors, whose data follows back to back
 * in this order, each aligned to its element. `metadata` may be NULL or a "key", "value", ...,
 * NULL list. CT_ENOMEM, or CT_EBUG for a tensor the limits refuse. */
int ct_st_header(struct ct_buf *buf, const struct ct_st_tensor *tensors, size_t count,
                 const char *const *metadata);

/* ---- reading ------------------------------------------------------------------------------- */

/* One entry of a file. */
struct ct_st_entry {
    struct ct_st_tensor tensor; /* name owned by the table, data NULL */
    uint64_t offset;            /* from the start of the file */
};

/* A file's table of contents, sorted by offset. */
struct ct_st_table {
    struct ct_st_entry *entries;
    size_t count;
};

/* Read the table from the first bytes of a file of `file_size` bytes: `head` holds the size word
 * and the header (see ct_st_head_size). `name` is the file's, for messages. CT_EDATA, CT_ELIMIT or
 * CT_ENOMEM. */
int ct_st_parse(struct ct_st_table *ret, const char *name, const struct ct_buf *head,
                uint64_t file_size, struct ct_error *err);

/* Return the bytes of size word and header, from the file's first 8 bytes. 0; CT_EDATA or CT_ELIMIT
 * for an impossible size. */
int ct_st_head_size(size_t *ret, const char *name, const void *first8, uint64_t file_size,
                    struct ct_error *err);

void ct_st_table_deinit(struct ct_st_table *table);

/* Return the entry called `name`, or NULL. */
const struct ct_st_entry *ct_st_find(const struct ct_st_table *table, const char *name);

/* Open a file and read its table; the descriptor is the caller's to close. CT_ENOINPUT too. */
int ct_st_open(int *ret_fd, struct ct_st_table *ret, const char *path, struct ct_error *err);

/* Check that the file holds exactly the wanted tensors with their types and shapes. 0, or CT_EDATA,
 * which names the first difference. */
int ct_st_match(const struct ct_st_table *table, const char *path,
                const struct ct_st_tensor *wanted, size_t count, struct ct_error *err);

/* Read all of `size` bytes at `offset` of the file. CT_ENOINPUT, or CT_EDATA where it ends early.
 */
int ct_st_read(int fd, const char *path, void *to, uint64_t size, uint64_t offset,
               struct ct_error *err);

/* Fill wanted[i].data from the file; every wanted tensor must be there with this type and shape,
 * and the file may hold no other. CT_EDATA names the first difference. */
int ct_st_load(int fd, const struct ct_st_table *table, const char *path,
               const struct ct_st_tensor *wanted, size_t count, struct ct_error *err);

#endif
