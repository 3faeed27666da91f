/* See sum.h. */
#include "sum.h"

#include "backend/nccl/nccl_types.h"
#include "base/number/dtype.h"

#include <stdlib.h>
#include <string.h>

size_t fake_width(int type)
{
    static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return widths[type];
}

static float get_float(int type, const char *at)
{
    uint16_t half;
    float value;

    if (type == CT_NCCL_FLOAT32) {
        memcpy(&value, at, sizeof value);
        return value;
    }
    memcpy(&half, at, sizeof half);
    return type == CT_NCCL_BFLOAT16 ? ct_bf16_to_f32(half) : ct_f16_to_f32(half);
}

static void put_float(int type, char *at, float value)
{
    uint16_t half;

    if (type == CT_NCCL_FLOAT32) {
        memcpy(at, &value, sizeof value);
        return;
    }
    half = type == CT_NCCL_BFLOAT16 ? ct_bf16_from_f32(value) : ct_f16_from_f32(value);
    memcpy(at, &half, sizeof half);
}

/* The smaller types in f32, rounded once, as the host's sums are. */
static void sum_floats(int type, int reduction, char *to, char *const *slots, int size,
                       size_t count)
{
    size_t width = fake_width(type);

    for (size_t k = 0; k < count; k++) {
        float sum = get_float(type, slots[0] + k * width);

        for (int i = 1; i < size; i++) {
            float next = get_float(type, slots[i] + k * width);

            sum = reduction == CT_NCCL_PROD ? sum * next : sum + next;
        }
        put_float(type, to + k * width, reduction == CT_NCCL_AVG ? sum / (float)size : sum);
    }
}

static void sum_doubles(int reduction, char *to, char *const *slots, int size, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        double sum, next;

        memcpy(&sum, slots[0] + k * sizeof sum, sizeof sum);
        for (int i = 1; i < size; i++) {
            memcpy(&next, slots[i] + k * sizeof next, sizeof next);
            sum = reduction == CT_NCCL_PROD ? sum * next : sum + next;
        }
        sum = reduction == CT_NCCL_AVG ? sum / size : sum;
        memcpy(to + k * sizeof sum, &sum, sizeof sum);
    }
}

static int64_t get_integer(int type, const char *at)
{
    int64_t wide = 0;
    int32_t word;

    switch (type) {
    case CT_NCCL_INT8:
        return (signed char)*at;
    case CT_NCCL_UINT8:
        return (unsigned char)*at;
    case CT_NCCL_INT32:
        memcpy(&word, at, sizeof word);
        return word;
    default:
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
}

static void sum_integers(int type, int reduction, char *to, char *const *slots, int size,
                         size_t count)
{
    size_t width = fake_width(type);

    for (size_t k = 0; k < count; k++) {
        uint64_t sum = (uint64_t)get_integer(type, slots[0] + k * width);

        for (int i = 1; i < size; i++) {
            int64_t next = get_integer(type, slots[i] + k * width), now = (int64_t)sum;

            if (reduction == CT_NCCL_MAX || reduction == CT_NCCL_MIN)
                sum = (uint64_t)((reduction == CT_NCCL_MAX) == (next > now) ? next : now);
            else
                sum = reduction == CT_NCCL_PROD ? sum * (uint64_t)next : sum + (uint64_t)next;
        }
        memcpy(to + k * width, &sum, width); /* little-endian */
    }
}

void fake_sum(int type, int reduction, void *to, char *const *slots, int size, size_t count)
{
    switch (type) {
    case CT_NCCL_FLOAT32:
    case CT_NCCL_BFLOAT16:
    case CT_NCCL_FLOAT16:
        sum_floats(type, reduction, to, slots, size, count);
        break;
    case CT_NCCL_FLOAT64:
        sum_doubles(reduction, to, slots, size, count);
        break;
    case CT_NCCL_INT8:
    case CT_NCCL_UINT8:
    case CT_NCCL_INT32:
    case CT_NCCL_INT64:
        sum_integers(type, reduction, to, slots, size, count);
        break;
    default:
        abort();
    }
}
