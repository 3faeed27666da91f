/* Reductions: orders, special values, and that every instruction set gives the same bits. */
#include "reduce/reduce.h"

#include "base/assert.h"
#include "reference.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(reduce, .timeout = 30);

enum { COUNT = 203, SOURCES = 11 };

struct inputs {
    char *memory[SOURCES];
    const void *sources[SOURCES];
};

/* Each source starts one element off a cache line. */
static void inputs_new(struct inputs *inputs, enum ct_dtype dtype)
{
    size_t size = ct_dtype_size(dtype);

    for (int i = 0; i < SOURCES; i++) {
        char *memory = malloc((COUNT + 1) * size);

        CT_ASSERT(memory != NULL);
        for (size_t k = 0; k < COUNT; k++)
            reference_input(dtype, i, k, memory + (k + 1) * size);
        inputs->memory[i] = memory;
        inputs->sources[i] = memory + size;
    }
}

static void inputs_free(struct inputs *inputs)
{
    for (int i = 0; i < SOURCES; i++)
        free(inputs->memory[i]);
}

static void check_against_reference(const struct ct_reduce_kernels *kernels,
                                    const struct inputs *inputs, const struct ct_reduction *how,
                                    int sources)
{
    size_t size = ct_dtype_size(how->dtype);
    unsigned char got[COUNT * 8], expected[8];

    ct_reduce_with(kernels, how, got, inputs->sources, sources, COUNT);
    for (size_t k = 0; k < COUNT; k++) {
        reference_reduce(how->dtype, how->reduce, how->order == CT_ORDER_TREE, sources, k,
                         expected);
        cr_assert_arr_eq(got + k * size, expected, size, "%s, %d sources, element %zu",
                         ct_dtype_name(how->dtype), sources, k);
    }
}

static void check_all_sources(const struct ct_reduce_kernels *kernels, struct ct_reduction how)
{
    double factors[SOURCES];
    struct inputs inputs;

    if (kernels == NULL || !reference_supports(how.dtype, how.reduce))
        return;
    inputs_new(&inputs, how.dtype);
    for (int i = 0; i < SOURCES; i++)
        factors[i] = reference_scale(i);
    how.factor = factors;
    for (int sources = 1; sources <= SOURCES; sources++) {
        how.divisor = how.reduce == CT_REDUCE_AVG ? sources : 1;
        check_against_reference(kernels, &inputs, &how, sources);
    }
    inputs_free(&inputs);
}

Test(reduce, every_instruction_set_gives_the_bits_of_the_reference)
{
    for (int isa = 0; isa < CT_REDUCE_ISAS; isa++)
        for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
            for (int reduce = 0; reduce < CT_REDUCE_COUNT; reduce++)
                for (int order = 0; order < CT_ORDER_COUNT; order++)
                    check_all_sources(ct_reduce_isa(isa),
                                      (struct ct_reduction){.dtype = (enum ct_dtype)dtype,
                                                            .reduce = (enum ct_reduce)reduce,
                                                            .order = (enum ct_reduce_order)order});
}

/* All 65536 numbers, each times factors that take it into every range. */
static void check_every_half(const struct ct_reduce_kernels *kernels, double factor)
{
    static uint16_t in[1 << 16], out[1 << 16];
    const void *source = in;
    struct ct_reduction how = {.dtype = CT_F16, .reduce = CT_REDUCE_PREMUL_SUM, .factor = &factor};

    for (int i = 0; i < 1 << 16; i++)
        in[i] = (uint16_t)i;
    ct_reduce_with(kernels, &how, out, &source, 1, 1 << 16);
    for (int i = 0; i < 1 << 16; i++)
        cr_assert_eq(out[i], ct_f16_from_f32(ct_f16_to_f32(in[i]) * (float)factor),
                     "%#x times %g is %#x", i, factor, out[i]);
}

Test(reduce, every_f16_is_widened_and_rounded_as_the_scalar_code_does)
{
    static const double factors[] = {1.0, -1.0, 0.3, 1.0009765625, 700.5, 1e-3, 3e-8, 1e30};

    for (int isa = 0; isa < CT_REDUCE_ISAS && ct_reduce_isa(isa) != NULL; isa++)
        for (size_t i = 0; i < CT_COUNT(factors); i++)
            check_every_half(ct_reduce_isa(isa), factors[i]);
}

/* Every number of both types, in runs of any length; NaN apart, which need only stay one. */
static void check_conversions(const struct ct_reduce_kernels *kernels, enum ct_dtype dtype)
{
    enum { ALL = 1 << 16 };
    static uint16_t in[ALL], out[ALL];
    static float wide[ALL];

    for (int i = 0; i < ALL; i++)
        in[i] = (uint16_t)i;
    for (size_t at = 0, n = 1; at < ALL; at += n, n = n % 77 + 1) {
        n = CT_MIN(n, ALL - at);
        ct_reduce_widen_with(kernels, dtype, wide + at, in + at, n);
        ct_reduce_narrow_with(kernels, dtype, out + at, wide + at, n);
    }
    for (int i = 0; i < ALL; i++) {
        float expected =
            dtype == CT_BF16 ? ct_bf16_to_f32((uint16_t)i) : ct_f16_to_f32((uint16_t)i);

        if (expected != expected)
            cr_assert(wide[i] != wide[i], "%#x", i);
        else
            cr_assert(wide[i] == expected && out[i] == i, "%#x", i);
    }
}

Test(reduce, every_half_goes_to_f32_and_back)
{
    for (int isa = 0; isa < CT_REDUCE_ISAS && ct_reduce_isa(isa) != NULL; isa++) {
        check_conversions(ct_reduce_isa(isa), CT_BF16);
        check_conversions(ct_reduce_isa(isa), CT_F16);
    }
}

Test(reduce, the_result_may_replace_a_source)
{
    float a[COUNT], b[COUNT];
    const void *sources[] = {a, b};
    struct ct_reduction how = {.dtype = CT_F32, .reduce = CT_REDUCE_SUM};

    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)i;
        b[i] = 1.0f;
    }
    ct_reduce_buffers(&how, b, sources, 2, COUNT);
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(b[i], (float)i + 1.0f);
}

/* As in an all_reduce in place: two of the sources are copies of the result as well. */
static void check_copies(const struct ct_reduce_kernels *kernels, struct ct_reduction how)
{
    unsigned char expected[COUNT * 8];
    double factors[SOURCES];
    struct inputs inputs;
    size_t size = ct_dtype_size(how.dtype);

    inputs_new(&inputs, how.dtype);
    for (int i = 0; i < SOURCES; i++)
        factors[i] = reference_scale(i);
    how.factor = factors;
    ct_reduce_with(kernels, &how, expected, inputs.sources, SOURCES, COUNT);
    how.copy = (void *[]){inputs.memory[2] + size, inputs.memory[SOURCES - 1] + size};
    how.copies = 2;
    ct_reduce_with(kernels, &how, inputs.memory[1] + size, inputs.sources, SOURCES, COUNT);
    cr_assert_arr_eq(inputs.memory[1] + size, expected, COUNT * size);
    cr_assert_arr_eq(inputs.memory[2] + size, expected, COUNT * size);
    cr_assert_arr_eq(inputs.memory[SOURCES - 1] + size, expected, COUNT * size);
    inputs_free(&inputs);
}

Test(reduce, copies_get_the_bits_of_the_result_though_they_be_sources)
{
    for (int isa = 0; isa < CT_REDUCE_ISAS && ct_reduce_isa(isa) != NULL; isa++)
        for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
            for (int order = 0; order < CT_ORDER_COUNT; order++)
                check_copies(ct_reduce_isa(isa),
                             (struct ct_reduction){.dtype = (enum ct_dtype)dtype,
                                                   .reduce = CT_REDUCE_SUM,
                                                   .order = (enum ct_reduce_order)order});
}

/* Into copies that begin `off` elements behind a line, one of which is a source. */
static void check_streams(const struct ct_reduce_kernels *kernels, enum ct_dtype dtype, size_t off)
{
    static _Alignas(64) unsigned char a[COUNT * 8 + 64], b[COUNT * 8 + 64], c[COUNT * 8 + 64];
    static unsigned char expected[COUNT * 8], got[COUNT * 8];
    size_t size = ct_dtype_size(dtype), at = off * size;
    const void *sources[] = {a, b + at};
    struct ct_reduction how = {.dtype = dtype, .reduce = CT_REDUCE_SUM};

    for (size_t k = 0; k < COUNT; k++) {
        reference_input(dtype, 0, k, a + k * size);
        reference_input(dtype, 1, k, b + at + k * size);
    }
    memset(c, 0x5a, sizeof c);
    ct_reduce_with(kernels, &how, expected, sources, 2, COUNT);
    how.copy = (void *[]){b + at, c + at};
    how.copies = 2;
    how.stream = true;
    ct_reduce_with(kernels, &how, got, sources, 2, COUNT);
    cr_assert_arr_eq(got, expected, COUNT * size, "%s", ct_dtype_name(dtype));
    cr_assert_arr_eq(b + at, expected, COUNT * size, "%s", ct_dtype_name(dtype));
    cr_assert_arr_eq(c + at, expected, COUNT * size, "%s", ct_dtype_name(dtype));
    cr_assert_eq(c[at + COUNT * size], 0x5a);
}

Test(reduce, streamed_copies_get_the_bits_of_the_result_wherever_they_begin)
{
    for (int isa = 0; isa < CT_REDUCE_ISAS && ct_reduce_isa(isa) != NULL; isa++)
        for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
            for (size_t off = 0; off < 2; off++)
                check_streams(ct_reduce_isa(isa), (enum ct_dtype)dtype, off);
}

Test(reduce, an_extreme_with_nan_is_nan_wherever_it_stands)
{
    for (int place = 0; place < 3; place++)
        for (int low = 0; low < 2; low++) {
            double x[3] = {1.0, 3.0, 2.0}, result;
            const void *sources[] = {&x[0], &x[1], &x[2]};
            struct ct_reduction how = {.dtype = CT_F64,
                                       .reduce = low != 0 ? CT_REDUCE_MIN : CT_REDUCE_MAX};

            ct_reduce_buffers(&how, &result, sources, 3, 1);
            cr_assert_eq(result, low != 0 ? 1.0 : 3.0);
            x[place] = NAN;
            ct_reduce_buffers(&how, &result, sources, 3, 1);
            cr_assert(isnan(result));
        }
}

/* 256 + 1 + 1: bf16 has 8 bits, so adding with a rounding each time would stay at 256. */
Test(reduce, bf16_is_rounded_once)
{
    uint16_t x[3] = {ct_bf16_from_f32(256.0f), ct_bf16_from_f32(1.0f), ct_bf16_from_f32(1.0f)};
    const void *sources[] = {&x[0], &x[1], &x[2]};
    struct ct_reduction how = {.dtype = CT_BF16, .reduce = CT_REDUCE_SUM};
    uint16_t result;

    ct_reduce_buffers(&how, &result, sources, 3, 1);
    cr_assert_eq(ct_bf16_to_f32(result), 258.0f);
}

Test(reduce, integers_wrap_and_averages_go_towards_zero)
{
    int64_t big[2] = {INT64_MAX, 1}, small[2] = {-4, -3}, result;
    const void *wrap[] = {&big[0], &big[1]}, *divide[] = {&small[0], &small[1]};
    struct ct_reduction how = {.dtype = CT_I64, .reduce = CT_REDUCE_SUM};

    ct_reduce_buffers(&how, &result, wrap, 2, 1);
    cr_assert_eq(result, INT64_MIN);
    how.reduce = CT_REDUCE_AVG;
    how.divisor = 2;
    ct_reduce_buffers(&how, &result, divide, 2, 1);
    cr_assert_eq(result, -3);
}

/* Four leaves a rank on two ranks, two on four, one on eight: the same tree over all eight. */
Test(reduce, trees_over_aligned_blocks_make_one_tree)
{
    struct ct_reduction how = {.dtype = CT_F32, .reduce = CT_REDUCE_SUM, .order = CT_ORDER_TREE};
    float leaves[8], whole;
    const void *sources[8];

    for (int i = 0; i < 8; i++) {
        reference_input(CT_F32, i, 5, &leaves[i]);
        sources[i] = &leaves[i];
    }
    ct_reduce_buffers(&how, &whole, sources, 8, 1);
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        float partial[4], total;
        const void *partials[4];

        for (int r = 0; r < ranks; r++) {
            ct_reduce_buffers(&how, &partial[r], sources + r * (8 / ranks), 8 / ranks, 1);
            partials[r] = &partial[r];
        }
        ct_reduce_buffers(&how, &total, partials, ranks, 1);
        cr_assert_arr_eq(&total, &whole, sizeof whole);
    }
}

/* x[i] += x[i + d] for d = 1, 2, 4, ..., as reduce.h has it. */
static float sum_by_tree(float *x, int n)
{
    for (int d = 1; d < n; d *= 2)
        for (int i = 0; i + d < n; i += 2 * d)
            x[i] += x[i + d];
    return x[0];
}

static void check_many(const struct ct_reduce_kernels *kernels, int sources)
{
    struct ct_reduction how = {.dtype = CT_F32, .reduce = CT_REDUCE_SUM, .order = CT_ORDER_TREE};
    float *leaves = calloc((size_t)sources, sizeof *leaves), in_order = 0, got, ordered;
    const void **source = calloc((size_t)sources, sizeof *source);

    CT_ASSERT(leaves != NULL && source != NULL);
    for (int i = 0; i < sources; i++) {
        reference_input(CT_F32, i, 5, &leaves[i]);
        source[i] = &leaves[i];
        in_order += leaves[i];
    }
    ct_reduce_with(kernels, &how, &got, source, sources, 1);
    how.order = CT_ORDER_RANK;
    ct_reduce_with(kernels, &how, &ordered, source, sources, 1);
    cr_assert_arr_eq(&ordered, &in_order, sizeof ordered, "%d sources in order", sources);
    float by_tree = sum_by_tree(leaves, sources);
    cr_assert_arr_eq(&got, &by_tree, sizeof got, "%d sources by the tree", sources);
    free(leaves);
    free(source);
}

Test(reduce, as_many_sources_as_a_group_may_have_ranks)
{
    static const int numbers[] = {4096, 4097, 10007, 65535, CT_REDUCE_SOURCES_MAX};

    for (int isa = 0; isa < CT_REDUCE_ISAS && ct_reduce_isa(isa) != NULL; isa++)
        for (size_t i = 0; i < CT_COUNT(numbers); i++)
            check_many(ct_reduce_isa(isa), numbers[i]);
}

Test(reduce, the_average_of_small_integers_does_not_wrap_on_its_way)
{
    int8_t x[3] = {100, 100, 101}, result;
    const void *sources[] = {&x[0], &x[1], &x[2]};
    struct ct_reduction how = {.dtype = CT_I8, .reduce = CT_REDUCE_AVG, .divisor = 3};

    ct_reduce_buffers(&how, &result, sources, 3, 1);
    cr_assert_eq(result, 100);
}

Test(reduce, operations_without_a_meaning_are_known)
{
    for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
        for (int reduce = 0; reduce < CT_REDUCE_COUNT; reduce++)
            cr_assert_eq(ct_reduce_supports((enum ct_dtype)dtype, (enum ct_reduce)reduce),
                         reference_supports((enum ct_dtype)dtype, (enum ct_reduce)reduce),
                         "type %d, operation %d", dtype, reduce);
    cr_assert_not(ct_reduce_supports(CT_F32, (enum ct_reduce)CT_REDUCE_COUNT));
    cr_assert_not(ct_reduce_supports((enum ct_dtype)CT_DTYPE_COUNT, CT_REDUCE_SUM));
}

Test(reduce, what_may_not_be_rounded_twice_is_not_reduced_in_steps)
{
    static const enum ct_dtype once[] = {CT_BF16, CT_F16, CT_I16, CT_I8, CT_U8};

    for (size_t i = 0; i < CT_COUNT(once); i++)
        cr_assert_not(ct_reduce_in_steps(once[i], CT_REDUCE_SUM));
    cr_assert(ct_reduce_in_steps(CT_F32, CT_REDUCE_SUM));
    cr_assert_not(ct_reduce_in_steps(CT_F32, CT_REDUCE_PREMUL_SUM), "a factor counts once");
}
