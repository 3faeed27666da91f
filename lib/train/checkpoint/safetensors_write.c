/* Writing the header of a safetensors file; see safetensors.h. */
#include "train/checkpoint/safetensors.h"

#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint64_t ct_st_bytes(const struct ct_st_tensor *tensor)
{
    uint64_t bytes = ct_dtype_size(tensor->dtype);

    for (uint32_t i = 0; i < tensor->dims; i++)
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes))
            return UINT64_MAX;
    return bytes;
}

void ct_st_describe(const struct ct_st_tensor *tensor, char *text, size_t room)
{
    struct ct_buf buf;

    ct_buf_init(&buf, 256);
    (void)ct_buf_printf(&buf, "%s [", ct_dtype_name(tensor->dtype));
    for (uint32_t i = 0; i < tensor->dims; i++)
        (void)ct_buf_printf(&buf, "%s%" PRIu64, i > 0 ? ", " : "", tensor->shape[i]);
    (void)ct_buf_puts(&buf, "]");
    (void)snprintf(text, room, "%s", ct_buf_str(&buf));
    ct_buf_deinit(&buf);
}

static void put_metadata(struct ct_buf *buf, const char *const *metadata)
{
    (void)ct_buf_puts(buf, "\"__metadata__\":{");
    for (size_t i = 0; metadata[i] != NULL; i += 2) {
        if (i > 0)
            (void)ct_buf_puts(buf, ",");
        ct_json_string(buf, metadata[i]);
        (void)ct_buf_puts(buf, ":");
        ct_json_string(buf, metadata[i + 1]);
    }
    (void)ct_buf_puts(buf, "}");
}

static void put_tensor(struct ct_buf *buf, const struct ct_st_tensor *tensor, uint64_t offset)
{
    ct_json_string(buf, tensor->name);
    (void)ct_buf_printf(buf, ":{\"dtype\":\"%s\",\"shape\":[", ct_dtype_name(tensor->dtype));
    for (uint32_t i = 0; i < tensor->dims; i++)
        (void)ct_buf_printf(buf, "%s%" PRIu64, i > 0 ? "," : "", tensor->shape[i]);
    (void)ct_buf_printf(buf, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset,
                        offset + ct_st_bytes(tensor));
}

int ct_st_header(struct ct_buf *buf, const struct ct_st_tensor *tensors, size_t count,
                 const char *const *metadata)
{
    size_t start = buf->size;
    uint64_t offset = 0;
    char zeros[8] = {0};

    if (count > CT_ST_MAX_TENSORS)
        return CT_EBUG;
    (void)ct_buf_append(buf, zeros, sizeof zeros);
    (void)ct_buf_puts(buf, "{");
    if (metadata != NULL)
        put_metadata(buf, metadata);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = ct_st_bytes(&tensors[i]);
        if (tensors[i].dims > CT_ST_MAX_DIMS || strlen(tensors[i].name) > CT_ST_MAX_NAME ||
            bytes > UINT64_MAX / 2 - offset)
            return CT_EBUG;
        if (i > 0 || metadata != NULL)
            (void)ct_buf_puts(buf, ",");
        put_tensor(buf, &tensors[i], offset);
        offset += bytes;
    }
    (void)ct_buf_puts(buf, "}");
    while ((buf->size - start) % 8 != 0 && !buf->failed)
        (void)ct_buf_puts(buf, " ");
    if (buf->failed)
        return CT_ENOMEM;
    ct_put_le64(buf->data + start, buf->size - start - 8);
    return 0;
}
