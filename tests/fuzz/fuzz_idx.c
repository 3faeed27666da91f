/* The IDX reader over any pair of files: the first byte tells how many of the others are the
 * labels file. */
#include "data/source.h"

#include "base/assert.h"
#include "memory_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_rows rows = {.limit_bytes = 1 << 20};
    struct ct_data_spec spec = {.classes = 10};
    struct ct_error err = {0};
    struct ct_stream images, labels;

    if (size == 0)
        return 0;
    size_t labels_size = CT_MIN((size_t)data[0], size - 1);
    memory_stream(&labels, "labels", data + 1, labels_size);
    memory_stream(&images, "images", data + 1 + labels_size, size - 1 - labels_size);
    int code = ct_idx_read(&rows, &images, &labels, &spec, &err);
    CT_ASSERT((code == 0) == (err.text[0] == '\0') && (code != 0 || rows.rows > 0));
    for (size_t i = 0; code == 0 && i < rows.rows; i++)
        CT_ASSERT(rows.labels[i] >= 0 && rows.labels[i] < 10);
    ct_rows_deinit(&rows);
    return 0;
}
