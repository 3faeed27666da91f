/* Random numbers of parts_body.h: initial values, dropout and rounding. All are philox's for a key
 * and a counter that names the logical element, so every layout of the work draws the same. */
#include "tensor/cpu/kernel/normal.h"
#include "tensor/cpu/kernel/rounding.h"

/* ---- initialisation: element e uses word e % 4 of the philox block e / 4 -------------------- */

static void block_words(uint64_t key, uint64_t element, uint32_t words[4])
{
    uint64_t block = element / 4;

    ct_philox(key, (const uint32_t[4]){(uint32_t)block, (uint32_t)(block >> 32), 0, 0}, words);
}

/* The logical index of element `i`. */
static uint64_t element_at(const struct ct_attr *attr, uint64_t i)
{
    return attr->run == 0 ? attr->first + i
                          : attr->first + i / attr->run * attr->stride + i % attr->run;
}

static void uniform(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    T *y = OUT(0, first, 1), low = (T)args->attr.low, range = (T)(args->attr.high - args->attr.low);
    uint64_t before = 0;
    uint32_t words[4];

    for (int64_t i = 0; i < count; i++) {
        uint64_t element = element_at(&args->attr, (uint64_t)(first + i));

        if (i == 0 || element % 4 == 0 || element != before + 1)
            block_words(args->attr.key, element, words);
        before = element;
        y[i] = low + range * (T)ct_uniform_f32(words[element % 4]);
    }
}

static void normal(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    T *y = OUT(0, first, 1), mean = (T)args->attr.mean, std = (T)args->attr.std;
    uint64_t before = 0;
    uint32_t words[4];
    float pairs[4];

    for (int64_t i = 0; i < count; i++) {
        uint64_t element = element_at(&args->attr, (uint64_t)(first + i));

        if (i == 0 || element % 4 == 0 || element != before + 1) {
            block_words(args->attr.key, element, words);
            normal_pair(words[0], words[1], pairs);
            normal_pair(words[2], words[3], pairs + 2);
        }
        before = element;
        y[i] = mean + std * (T)pairs[element % 4];
    }
}

/* ---- dropout and rounding: LANES blocks of philox side by side ------------------------------ */

/* ct_philox (base/rng.h) for the blocks first, first + 1, ..., with the counters (block, step). */
static void philox_lanes(uint64_t key, uint64_t first, uint64_t step, uint32_t word[4][LANES])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    EACH(l, LANES)
    {
        word[0][l] = (uint32_t)(first + (uint64_t)l);
        word[1][l] = (uint32_t)((first + (uint64_t)l) >> 32);
        word[2][l] = (uint32_t)step;
        word[3][l] = (uint32_t)(step >> 32);
    }
    for (int round = 0; round < 10; round++) {
        EACH(l, LANES)
        {
            uint64_t p0 = (uint64_t)0xD2511F53u * word[0][l];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * word[2][l];

            word[0][l] = (uint32_t)(p1 >> 32) ^ word[1][l] ^ k0;
            word[2][l] = (uint32_t)(p0 >> 32) ^ word[3][l] ^ k1;
            word[1][l] = (uint32_t)p1;
            word[3][l] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Element e = block * 4 + w of the batch uses word w of its block. */
static void dropout(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const double *at = args->in[1].data;
    const T *x = IN(0, first, 1);
    T *y = OUT(0, first, 1), scale_up = (T)(1 / (1 - args->attr.rate));
    float rate = (float)args->attr.rate;
    uint64_t step = (uint64_t)at[0];
    uint64_t start = (uint64_t)at[1] * args->attr.unit + args->attr.first +
                     (uint64_t)first; /* element of x[0] */
    uint32_t word[4][LANES], flat[4 * LANES];

    for (int64_t i = -(int64_t)(start % 4); i < count; i += 4 * LANES) {
        int64_t from = CT_MAX(i, 0), end = CT_MIN(i + 4 * LANES, count);

        philox_lanes(args->attr.key, (start + (uint64_t)i) / 4, step, word);
        for (int l = 0; l < LANES; l++)
            for (int w = 0; w < 4; w++)
                flat[4 * l + w] = word[w][l];
        EACH(k, end - from)
        {
            float number = (float)(int32_t)(flat[from - i + k] >> 8) * 0x1p-24f;

            y[from + k] = number >= rate ? x[from + k] * scale_up : 0;
        }
    }
}

/* Elements that follow one another in the parameter, from number `start` on: element e = block * 8
 * + h uses half h of its block, the low half of a word first. */
static void round_run(const T *x, T *y, int64_t count, uint64_t key, uint64_t step, uint64_t start)
{
    uint32_t word[4][LANES];
    uint16_t half[8 * LANES];

    for (int64_t i = -(int64_t)(start % 8); i < count; i += 8 * LANES) {
        int64_t from = CT_MAX(i, 0), end = CT_MIN(i + 8 * LANES, count);

        philox_lanes(key, (start + (uint64_t)i) / 8, step, word);
        for (int l = 0; l < LANES; l++)
            for (int h = 0; h < 8; h++)
                half[8 * l + h] = (uint16_t)(word[h / 2][l] >> 16 * (h % 2));
        EACH(k, end - from)
        {
            y[from + k] = (T)stochastic_bf16((float)x[from + k], half[from - i + k]);
        }
    }
}

static void narrow_stochastic(const struct ct_kernel_args *args, int64_t first, int64_t count)
{
    const struct ct_attr *attr = &args->attr;
    uint64_t step = (uint64_t) * (const double *)args->in[1].data;

    for (int64_t end = first + count, next; first < end; first = next) {
        uint64_t place = attr->first + (uint64_t)first, number = place;

        next = end;
        if (attr->run != 0) {
            uint64_t in_run = place % attr->run;

            number = attr->begin + place / attr->run * attr->stride + in_run;
            next = (int64_t)CT_MIN((uint64_t)end, (uint64_t)first + attr->run - in_run);
        }
        round_run(IN(0, first, 1), OUT(0, first, 1), next - first, attr->key, step, number);
    }
}
