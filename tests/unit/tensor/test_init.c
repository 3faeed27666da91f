/* Initialisation: element i depends on (key, index) alone, and the numbers are distributed right.
 */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(init, .timeout = 30);

enum { N = 4099 };

static struct ct_tensor drawn(struct kit *kit, enum ct_op_kind op, uint64_t key, uint64_t first,
                              int64_t count)
{
    struct ct_kernel_args args = {
        .out = {kit_tensor(kit, CT_F32, ct_shape1(count))},
        .attr = {.low = -0.5, .high = 1.5, .mean = 0.25, .std = 2, .key = key, .first = first}};

    kit_run(CT_CPU_AUTO, 1, op, CT_F32, &args);
    return args.out[0];
}

static const enum ct_op_kind ops[] = {CT_OP_UNIFORM, CT_OP_NORMAL};

Test(init, a_shard_draws_what_the_whole_draws_there)
{
    struct kit kit;

    kit_init(&kit, 1);
    for (size_t o = 0; o < CT_COUNT(ops); o++) {
        struct ct_tensor whole = drawn(&kit, ops[o], 42, 0, N);

        for (int64_t first = 1; first < N - 300; first += 301) {
            struct ct_tensor part = drawn(&kit, ops[o], 42, (uint64_t)first, 300);
            struct ct_tensor want = ct_tensor_range(&whole, first, 300);

            kit_same_bytes(&part, &want, ct_op_info(ops[o])->name);
        }
    }
    kit_deinit(&kit);
}

Test(init, keys_and_far_indices_give_other_numbers)
{
    struct kit kit;

    kit_init(&kit, 2);
    for (size_t o = 0; o < CT_COUNT(ops); o++) {
        struct ct_tensor a = drawn(&kit, ops[o], 1, 0, N), b = drawn(&kit, ops[o], 2, 0, N);
        struct ct_tensor far = drawn(&kit, ops[o], 1, (uint64_t)1 << 34, N);
        int same = 0;

        for (int i = 0; i < N; i++)
            same += kit_get(&a, i) == kit_get(&b, i) || kit_get(&a, i) == kit_get(&far, i);
        cr_assert_lt(same, 5);
    }
    kit_deinit(&kit);
}

Test(init, mean_deviation_and_range_are_right)
{
    static const double deviation[] = {0.57735, 2}; /* 2 / sqrt(12) for the uniform */
    static const double mean[] = {0.5, 0.25};
    struct kit kit;

    kit_init(&kit, 3);
    for (size_t o = 0; o < CT_COUNT(ops); o++) {
        struct ct_tensor x = drawn(&kit, ops[o], 7, 5, 100000);
        double sum = 0, squares = 0;

        for (int i = 0; i < 100000; i++) {
            double value = kit_get(&x, i);

            sum += value;
            squares += value * value;
            if (ops[o] == CT_OP_UNIFORM)
                cr_assert(value >= -0.5 && value <= 1.5);
        }
        sum /= 100000;
        cr_assert_float_eq(sum, mean[o], 4 * deviation[o] / sqrt(100000));
        cr_assert_float_eq(sqrt(squares / 100000 - sum * sum), deviation[o], 0.01 * deviation[o]);
    }
    kit_deinit(&kit);
}

Test(init, element_e_uses_word_e_mod_4_of_block_e_div_4)
{
    struct kit kit;

    kit_init(&kit, 4);
    struct ct_tensor x = drawn(&kit, CT_OP_UNIFORM, 9, 0, 8);
    uint32_t words[4];

    ct_philox(9, (const uint32_t[4]){1, 0, 0, 0}, words);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(((float *)x.data)[4 + i], -0.5f + 2 * ct_uniform_f32(words[i]));
    kit_deinit(&kit);
}
