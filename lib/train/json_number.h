/* Numbers in JSON that are read: sizes, counts, steps. */
#ifndef CT_TRAIN_JSON_NUMBER_H
#define CT_TRAIN_JSON_NUMBER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A whole number from 0 on; false, and *ret is as it was, when `value` (may be NULL) is none. */
static inline bool ct_json_whole(const json_t *value, uint64_t *ret)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

#endif
