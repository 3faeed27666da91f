/* Randomness, digests and half-precision numbers against published vectors. */
#include "base/number/dtype.h"
#include "base/number/hash.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(rng, .timeout = 30);

Test(rng, philox_gives_the_published_vectors)
{
    /* kat_vectors of the Random123 distribution, philox4x32 10 rounds. */
    static const struct {
        uint64_t key;
        uint32_t counter[4];
        uint32_t words[4];
    } vectors[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822u,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint32_t words[4];
        ct_philox(vectors[i].key, vectors[i].counter, words);
        cr_assert_eq(memcmp(words, vectors[i].words, sizeof words), 0, "vector %zu", i);
    }
}

Test(rng, uniform_lies_in_the_half_open_interval)
{
    cr_assert_eq(ct_uniform_f32(0), 0.0f);
    cr_assert_lt(ct_uniform_f32(UINT32_MAX), 1.0f);
}

Test(rng, below_reaches_every_value_and_never_the_bound)
{
    struct ct_rng rng;
    int seen[7] = {0};

    ct_rng_init(&rng, 1);
    for (int i = 0; i < 7000; i++)
        seen[ct_rng_below(&rng, 7)]++;
    for (int i = 0; i < 7; i++)
        cr_assert(seen[i] > 800 && seen[i] < 1200, "%d: %d", i, seen[i]);
}

Test(rng, one_seed_gives_one_sequence)
{
    struct ct_rng a;
    struct ct_rng b;

    ct_rng_init(&a, 42);
    ct_rng_init(&b, 42);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(ct_rng_next(&a), ct_rng_next(&b));
    ct_rng_init(&b, 43);
    cr_assert_neq(ct_rng_next(&a), ct_rng_next(&b));
}

Test(rng, crc32c_gives_rfc_3720s_values_in_one_piece_or_two)
{
    unsigned char zeros[32] = {0};
    unsigned char rising[32];

    for (int i = 0; i < 32; i++)
        rising[i] = (unsigned char)i;
    cr_assert_eq(ct_crc32c(0, zeros, 32), 0x8a9136aau);
    cr_assert_eq(ct_crc32c(0, rising, 32), 0x46dd794eu);
    cr_assert_eq(ct_crc32c(ct_crc32c(0, rising, 5), rising + 5, 27), 0x46dd794eu);
    cr_assert_eq(ct_crc32c(0, "123456789", 9), 0xe3069283u);
}

Test(rng, crc32c_is_put_together_from_the_shares_of_its_parts)
{
    enum { SIZE = 1000 };
    unsigned char data[SIZE], zeros[SIZE] = {0};

    for (int i = 0; i < SIZE; i++)
        data[i] = (unsigned char)(i * 37 + i / 7);
    uint32_t whole = ct_crc32c(0, data, SIZE);
    cr_assert_eq(ct_crc32c_zeros(SIZE), ct_crc32c(0, zeros, SIZE));
    cr_assert_eq(ct_crc32c_zeros(0), 0);
    for (size_t cut = 0; cut <= SIZE; cut += 41)
        for (size_t end = cut; end <= SIZE; end += 83) {
            uint32_t sum = ct_crc32c_share(data + end, SIZE - end, 0) ^
                           ct_crc32c_share(data, cut, SIZE - cut) ^
                           ct_crc32c_share(data + cut, end - cut, SIZE - end);
            cr_assert_eq(sum ^ ct_crc32c_zeros(SIZE), whole, "cut at %zu and %zu", cut, end);
        }
}

Test(rng, a_digest_sees_one_flipped_bit)
{
    char text[] = "the same text";
    uint64_t before = ct_hash64(text, sizeof text, 0);

    text[3] ^= 1;
    cr_assert_neq(ct_hash64(text, sizeof text, 0), before);
    cr_assert_neq(ct_hash64("x", 1, 0), ct_hash64("x", 1, 1));
    cr_assert_eq(ct_hash_str(""), 0x2d06800538d394c2u, "XXH3 of nothing");
}

Test(rng, every_half_goes_to_float_and_back)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float half = ct_f16_to_f32((uint16_t)bits);
        float brain = ct_bf16_to_f32((uint16_t)bits);
        if (isnan(half))
            cr_assert(isnan(ct_f16_to_f32(ct_f16_from_f32(half))));
        else
            cr_assert_eq(ct_f16_from_f32(half), bits, "f16 %04x", bits);
        if (isnan(brain))
            cr_assert(isnan(ct_bf16_to_f32(ct_bf16_from_f32(brain))));
        else
            cr_assert_eq(ct_bf16_from_f32(brain), bits, "bf16 %04x", bits);
    }
}

Test(rng, halves_round_to_nearest_even)
{
    cr_assert_eq(ct_f16_from_f32(1.0f + 0x1p-11f), 0x3c00, "tie goes to even");
    cr_assert_eq(ct_f16_from_f32(1.0f + 3 * 0x1p-11f), 0x3c02);
    cr_assert_eq(ct_f16_from_f32(65519.0f), 0x7bff);
    cr_assert_eq(ct_f16_from_f32(65520.0f), 0x7c00);
    cr_assert_eq(ct_f16_from_f32(0x1p-25f), 0, "tie below the smallest goes to zero");
    cr_assert_eq(ct_f16_from_f32(0x1.8p-25f), 1);
    cr_assert_eq(ct_bf16_from_f32(1.0f + 0x1p-8f), 0x3f80);
    cr_assert_eq(ct_bf16_from_f32(1.0f + 3 * 0x1p-8f), 0x3f82);
}

Test(rng, types_have_sizes_and_names)
{
    cr_assert_eq(ct_dtype_size(CT_F64), 8);
    cr_assert_eq(ct_dtype_size(CT_BF16), 2);
    cr_assert_eq(ct_dtype_find("bf16"), CT_BF16);
    cr_assert_eq(ct_dtype_find("f8"), -1);
    for (int i = 0; i < CT_DTYPE_COUNT; i++)
        cr_assert_eq(ct_dtype_find(ct_dtype_name((enum ct_dtype)i)), i);
}
