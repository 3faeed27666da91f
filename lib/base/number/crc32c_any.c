/* See crc32c.h: no instruction for it is known. */
#include "base/number/crc32c.h"

uint32_t ct_crc32c_continue(uint32_t crc, const void *data, size_t size)
{
    return ct_crc32c_portable(crc, data, size);
}
