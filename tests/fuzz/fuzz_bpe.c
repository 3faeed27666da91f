/* The file of merges, then a text encoded by what it made: both from the input, cut at the first
 * zero byte. What is encoded comes back. */
#include "base/assert.h"
#include "data/tokenizer.h"
#include "memory_stream.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size == 0 ? NULL : memchr(data, 0, size);
    size_t head = cut == NULL ? size : (size_t)(cut - data);
    const char *text = (const char *)data + head;
    struct ct_tokenizer *tokenizer = NULL;
    struct ct_token_list ids = {0};
    struct ct_stream merges;
    struct ct_buf back;

    memory_stream(&merges, "merges", data, head);
    if (ct_tokenizer_gpt2_new(&tokenizer, &merges, NULL) != 0)
        return 0;
    ct_buf_init(&back, 0);
    if (ct_tokenizer_encode(tokenizer, text, size - head, &ids, NULL) == 0) {
        CT_ASSERT(ct_tokenizer_decode(tokenizer, ids.ids, ids.count, &back, NULL) == 0);
        CT_ASSERT(back.size == size - head && memcmp(ct_buf_str(&back), text, back.size) == 0);
    }
    ct_buf_deinit(&back);
    ct_token_list_deinit(&ids);
    ct_tokenizer_free(tokenizer);
    return 0;
}
