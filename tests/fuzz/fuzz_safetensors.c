/* The safetensors header over any bytes: what is accepted tiles the data exactly. */
#include "train/checkpoint/safetensors.h"

#include "base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_st_table table = {0};
    struct ct_error err = {0};
    struct ct_buf head;
    size_t head_size = 0;

    if (ct_st_head_size(&head_size, "fuzz", data, size, &err) != 0)
        return 0;
    ct_buf_init(&head, 0);
    CT_ASSERT(ct_buf_append(&head, data, head_size) == 0);
    int code = ct_st_parse(&table, "fuzz", &head, size, &err);
    CT_ASSERT((code == 0) == (err.text[0] == '\0'));
    uint64_t at = head_size;
    for (size_t i = 0; i < table.count; i++) {
        CT_ASSERT(table.entries[i].offset == at);
        at += ct_st_bytes(&table.entries[i].tensor);
        CT_ASSERT(ct_st_find(&table, table.entries[i].tensor.name) != NULL);
    }
    CT_ASSERT(code != 0 || at == size);
    ct_st_table_deinit(&table);
    ct_buf_deinit(&head);
    return 0;
}
