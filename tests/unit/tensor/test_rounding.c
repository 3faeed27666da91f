/* narrow_stochastic: exact where bf16 is, a neighbour elsewhere, right in the mean, and drawn for
 * an element's number in the whole parameter, whoever holds it. */
#include "kit.h"

#include "base/assert.h"
#include "tensor/cpu/kernel/rounding.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(rounding, .timeout = 30);

enum { HALVES = 1 << 16 };

static struct ct_kernel_args args_of(struct kit *kit, int64_t count)
{
    return (struct ct_kernel_args){.in = {kit_tensor(kit, CT_F32, ct_shape1(count)),
                                          kit_random(kit, CT_F64, ct_shape1(2), 3, 3)},
                                   .out = {kit_tensor(kit, CT_BF16, ct_shape1(count))},
                                   .attr = {.key = 42}};
}

static void round_all(const struct ct_kernel_args *args)
{
    kit_run(CT_CPU_AUTO, 1, CT_OP_NARROW_STOCHASTIC, CT_BF16, args);
}

/* Zeroes, subnormals, infinities and NaN are among them; a NaN may change its payload. */
Test(rounding, values_of_bf16_stay)
{
    struct kit kit;

    kit_init(&kit, 1);
    struct ct_kernel_args args = args_of(&kit, HALVES);
    float *x = args.in[0].data;
    uint16_t *y = args.out[0].data;

    for (uint32_t half = 0; half < HALVES; half++)
        x[half] = f32_from_bits(half << 16);
    round_all(&args);
    for (uint32_t half = 0; half < HALVES; half++)
        if (isnan(x[half]))
            cr_assert(isnan(kit_get(&args.out[0], half)), "%#x", half);
        else
            cr_assert_eq(y[half], half, "%#x became %#x", half, (unsigned)y[half]);
    kit_deinit(&kit);
}

Test(rounding, a_nan_stays_one_whatever_bits_bf16_drops)
{
    for (uint32_t random = 0; random < HALVES; random += 255)
        for (uint32_t low = 1; low < HALVES; low = 2 * low + 1)
            cr_assert(isnan(stochastic_bf16(f32_from_bits(0xff800000u | low), random)) &&
                      isnan(stochastic_bf16(f32_from_bits(0x7fff0000u | low), random)));
}

/* Of the 2^16 numbers as many lead to the larger magnitude as the dropped bits say: the mean over
 * all of them is x itself. */
Test(rounding, the_chance_of_each_neighbour_is_exact)
{
    static const uint32_t numbers[] = {0x3f800001, 0x3f808000, 0xbf80ffff, 0x40490fdb, 0x00000001,
                                       0x807fffff, 0x3f7fabcd, 0x7f7f0001, 0xc2f6e979};

    for (size_t i = 0; i < CT_COUNT(numbers); i++) {
        uint32_t low = numbers[i] & 0xffff0000u, up = 0;

        for (uint32_t random = 0; random < HALVES; random++) {
            uint32_t got = f32_to_bits(stochastic_bf16(f32_from_bits(numbers[i]), random));

            cr_assert(got == low || got == low + HALVES, "%#x became %#x", numbers[i], got);
            up += got != low;
        }
        cr_assert_eq(up, numbers[i] & 0xffffu, "%#x goes up %u times", numbers[i], up);
    }
}

/* x above the largest finite value of bf16: that value or infinity, as the distance says. */
Test(rounding, past_the_largest_value_lies_infinity)
{
    struct kit kit;
    int infinite = 0;

    kit_init(&kit, 2);
    struct ct_kernel_args args = args_of(&kit, 4096);
    for (int i = 0; i < 4096; i++)
        ((float *)args.in[0].data)[i] = f32_from_bits(0xff7f4000u);
    round_all(&args);
    for (int i = 0; i < 4096; i++) {
        uint16_t half = ((const uint16_t *)args.out[0].data)[i];

        cr_assert(half == 0xff7f || half == 0xff80, "%#x", (unsigned)half);
        infinite += half == 0xff80;
    }
    cr_assert(abs(infinite - 1024) < 5 * 28, "%d of 1024", infinite); /* five deviations */
    kit_deinit(&kit);
}

/* One x, keys and updates counted up: so often does it go up. */
Test(rounding, the_mean_over_keys_and_steps_is_the_number)
{
    enum { KEYS = 64, COUNT = 129 };
    static const uint32_t dropped[] = {0x0001, 0x1000, 0x8000, 0xc0de, 0xffff};
    struct kit kit;

    kit_init(&kit, 3);
    struct ct_kernel_args args = args_of(&kit, COUNT);
    for (size_t d = 0; d < CT_COUNT(dropped); d++) {
        double chance = dropped[d] / 65536.0, all = (double)KEYS * COUNT;
        int up = 0;

        for (int i = 0; i < COUNT; i++)
            ((float *)args.in[0].data)[i] = f32_from_bits(0x3f800000u + dropped[d]);
        for (int key = 0; key < KEYS; key++) {
            args.attr.key = ct_mix64((uint64_t)key);
            kit_set(&args.in[1], 0, key % 7);
            round_all(&args);
            for (int i = 0; i < COUNT; i++)
                up += kit_get(&args.out[0], i) > 1;
        }
        double deviation = sqrt(all * chance * (1 - chance));
        cr_assert_leq(fabs(up - all * chance), 5 * deviation + 1, "%d, not %g", up, all * chance);
    }
    kit_deinit(&kit);
}

Test(rounding, element_e_uses_half_e_mod_8_of_block_e_div_8)
{
    struct kit kit;

    kit_init(&kit, 4);
    struct ct_kernel_args args = args_of(&kit, 40);
    args.attr.key = 9;
    args.attr.first = ((uint64_t)5 << 34) + 3;
    for (int i = 0; i < 40; i++)
        kit_set(&args.in[0], i, 1.001 + i);
    round_all(&args);
    for (int i = 0; i < 40; i++) {
        uint64_t element = args.attr.first + (uint64_t)i, block = element / 8;
        uint32_t words[4], half = (uint32_t)(element % 8);

        ct_philox(9, (const uint32_t[4]){(uint32_t)block, (uint32_t)(block >> 32), 3, 0}, words);
        uint32_t random = words[half / 2] >> 16 * (half % 2) & 0xffffu;
        cr_assert_eq(kit_get(&args.out[0], i),
                     (double)stochastic_bf16((float)kit_get(&args.in[0], i), random));
    }
    kit_deinit(&kit);
}

Test(rounding, keys_steps_and_elements_draw_other_numbers)
{
    struct kit kit;

    kit_init(&kit, 5);
    for (int what = 0; what < 3; what++) {
        struct ct_kernel_args args = args_of(&kit, 4096), other = args_of(&kit, 4096);
        int same = 0;

        for (int i = 0; i < 4096; i++)
            ((float *)args.in[0].data)[i] = ((float *)other.in[0].data)[i] =
                f32_from_bits(0x3f808000u);
        other.attr.key += what == 0;
        kit_set(&other.in[1], 0, what == 1 ? 4 : 3);
        other.attr.first = what == 2 ? (uint64_t)1 << 35 : 0;
        round_all(&args);
        round_all(&other);
        for (int i = 0; i < 4096; i++)
            same += kit_get(&args.out[0], i) == kit_get(&other.out[0], i);
        cr_assert(abs(same - 2048) < 5 * 32, "%d: %d of 4096 alike", what, same);
    }
    kit_deinit(&kit);
}

/* What rank `slice` of three holds of [ROWS, SIZE] is columns, EACH of them; then a shard of that.
 */
Test(rounding, a_shard_of_a_slice_has_the_bits_of_the_whole)
{
    enum { ROWS = 37, SIZE = 57, EACH = 19, HELD = ROWS * EACH };
    struct kit kit;

    kit_init(&kit, 6);
    struct ct_kernel_args whole = args_of(&kit, (int64_t)ROWS * SIZE);
    for (int i = 0; i < ROWS * SIZE; i++)
        kit_set(&whole.in[0], i, kit_uniform(&kit, -2, 2));
    round_all(&whole);
    for (int slice = 0; slice < 3; slice++)
        for (int first = 0; first < HELD; first += 101) {
            int count = CT_MIN(101, HELD - first);
            struct ct_kernel_args part = args_of(&kit, count);

            part.attr.first = (uint64_t)first;
            part.attr.begin = (uint64_t)slice * EACH;
            part.attr.run = EACH;
            part.attr.stride = SIZE;
            for (int i = 0; i < count; i++) {
                int at = (first + i) / EACH * SIZE + slice * EACH + (first + i) % EACH;
                kit_set(&part.in[0], i, kit_get(&whole.in[0], at));
            }
            round_all(&part);
            for (int i = 0; i < count; i++) {
                int at = (first + i) / EACH * SIZE + slice * EACH + (first + i) % EACH;
                cr_assert_eq(kit_get(&part.out[0], i), kit_get(&whole.out[0], at),
                             "slice %d, element %d", slice, first + i);
            }
        }
    kit_deinit(&kit);
}
