/* The CSV reader over any bytes: it reads them or refuses them with a sentence. The first byte
 * picks the label's column and the header. */
#include "data/source.h"

#include "base/assert.h"
#include "memory_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_rows rows = {.limit_bytes = 1 << 20};
    struct ct_data_spec spec = {.label = -1, .classes = 10};
    struct ct_error err = {0};
    struct ct_stream stream;

    if (size == 0)
        return 0;
    spec.label = data[0] % 8 - 4;
    spec.header = data[0] >= 128;
    memory_stream(&stream, "fuzz.csv", data + 1, size - 1);
    int code = ct_csv_read(&rows, &stream, &spec, &err);
    CT_ASSERT((code == 0) == (err.text[0] == '\0') && (code != 0 || rows.rows > 0));
    for (size_t i = 0; code == 0 && i < rows.rows; i++)
        CT_ASSERT(rows.labels[i] >= 0 && rows.labels[i] < 10);
    ct_rows_deinit(&rows);
    return 0;
}
