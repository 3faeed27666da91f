/* Ops on what one of several ranks holds: all parts together are the whole. */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(part_ops, .timeout = 30);

enum { ROWS = 37, CLASSES = 11, PARTS = 4, EACH = (CLASSES + PARTS - 1) / PARTS };

static struct ct_attr part_attr(int part)
{
    return (struct ct_attr){
        .part = true, .begin = (uint64_t)(part * EACH), .classes = CLASSES, .sequence = 1};
}

/* Columns of part `part`, with rubbish behind the last class. */
static struct ct_tensor columns_of(struct kit *kit, const struct ct_tensor *whole, int part)
{
    struct ct_tensor columns = kit_random(kit, CT_F64, ct_shape2(ROWS, EACH), 5, 9);

    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t j = 0; j < EACH && part * EACH + j < CLASSES; j++)
            kit_set(&columns, row * EACH + j, kit_get(whole, row * CLASSES + part * EACH + j));
    return columns;
}

static void add_to(struct ct_tensor *sum, const struct ct_tensor *part, bool largest)
{
    for (int64_t i = 0; i < ct_shape_elements(sum->shape); i++) {
        double a = kit_get(sum, i), b = kit_get(part, i);
        kit_set(sum, i, largest ? fmax(a, b) : a + b);
    }
}

static struct ct_tensor run1(struct kit *kit, enum ct_op_kind op, struct ct_shape out,
                             const struct ct_kernel_args *with)
{
    struct ct_kernel_args args = *with;

    args.out[0] = kit_tensor(kit, CT_F64, out);
    kit_run(CT_CPU_AUTO, 1, op, CT_F64, &args);
    return args.out[0];
}

/* Logits with ties. */
static struct ct_tensor logits_of(struct kit *kit)
{
    struct ct_tensor logits = kit_random(kit, CT_F64, ct_shape2(ROWS, CLASSES), -3, 3);

    for (int64_t i = 0; i < ROWS * CLASSES; i++)
        kit_set(&logits, i, round(kit_get(&logits, i)));
    return logits;
}

/* Labels of which every other one is a largest logit, not always the first. */
static struct ct_tensor labels_of(struct kit *kit, const struct ct_tensor *logits)
{
    struct ct_tensor labels = kit_labels(kit, ROWS, CLASSES);

    for (int64_t row = 0; row < ROWS; row += 2) {
        int64_t best = 0;
        for (int64_t j = 1; j < CLASSES; j++) {
            double x = kit_get(logits, row * CLASSES + j);
            double most = kit_get(logits, row * CLASSES + best);
            best = x > most || (x == most && row % 4 == 0) ? j : best;
        }
        kit_set(&labels, row, (double)best);
    }
    return labels;
}

Test(part_ops, cross_entropy_over_parts_of_the_classes_is_that_of_all)
{
    struct kit kit;
    struct ct_tensor max = {0}, sums = {0};

    kit_init(&kit, 1);
    struct ct_tensor logits = logits_of(&kit), labels = labels_of(&kit, &logits);
    struct ct_tensor columns[PARTS];
    for (int part = 0; part < PARTS; part++) {
        columns[part] = columns_of(&kit, &logits, part);
        const struct ct_kernel_args args = {.in = {columns[part], labels}, .attr = part_attr(part)};
        struct ct_tensor own = run1(&kit, CT_OP_VOCAB_MAX, ct_shape1(ROWS), &args);
        if (part == 0)
            max = own;
        add_to(&max, &own, true);
    }
    sums = kit_tensor(&kit, CT_F64, ct_shape2(ROWS, 3));
    for (int part = 0; part < PARTS; part++) {
        const struct ct_kernel_args args = {.in = {columns[part], labels, max},
                                            .attr = part_attr(part)};
        struct ct_tensor own = run1(&kit, CT_OP_VOCAB_SUMS, ct_shape2(ROWS, 3), &args);
        add_to(&sums, &own, false);
    }
    struct ct_kernel_args whole = {
        .in = {logits, labels},
        .out = {kit_scalar(&kit, 0), kit_tensor(&kit, CT_F64, ct_shape2(ROWS, 2))}};
    struct ct_kernel_args loss = {
        .in = {sums, labels, max, columns[0]},
        .out = {kit_scalar(&kit, 0), kit_tensor(&kit, CT_F64, ct_shape2(ROWS, 2))},
        .attr = part_attr(0)};
    struct ct_kernel_args count = {.in = {logits, labels}, .out = {kit_scalar(&kit, 0)}};
    struct ct_kernel_args counted = {.in = {sums, labels}, .out = {kit_scalar(&kit, 0)}};
    kit_run(CT_CPU_AUTO, 1, CT_OP_CROSS_ENTROPY, CT_F64, &whole);
    kit_run(CT_CPU_AUTO, 1, CT_OP_VOCAB_LOSS, CT_F64, &loss);
    kit_run(CT_CPU_AUTO, 1, CT_OP_CORRECT, CT_F64, &count);
    kit_run(CT_CPU_AUTO, 1, CT_OP_VOCAB_CORRECT, CT_F64, &counted);
    kit_near(&loss.out[0], &whole.out[0], 1e-12, "loss");
    kit_near(&loss.out[1], &whole.out[1], 1e-12, "stats");
    cr_assert_gt(kit_get(&count.out[0], 0), 0);
    cr_assert_eq(kit_get(&counted.out[0], 0), kit_get(&count.out[0], 0));

    struct ct_kernel_args back = {.in = {logits, labels, whole.out[1], kit_scalar(&kit, 0.5)}};
    struct ct_tensor want = run1(&kit, CT_OP_CROSS_ENTROPY_BW, ct_shape2(ROWS, CLASSES), &back);
    for (int part = 0; part < PARTS; part++) {
        const struct ct_kernel_args args = {.in = {columns[part], labels, loss.out[1], back.in[3]},
                                            .attr = part_attr(part)};
        struct ct_tensor got = run1(&kit, CT_OP_CROSS_ENTROPY_BW, ct_shape2(ROWS, EACH), &args);
        for (int64_t row = 0; row < ROWS; row++)
            for (int64_t j = 0; j < EACH; j++) {
                int64_t column = part * EACH + j;
                double there = column < CLASSES ? kit_get(&want, row * CLASSES + column) : 0;
                cr_assert_float_eq(kit_get(&got, row * EACH + j), there, 1e-12);
            }
    }
    kit_deinit(&kit);
}

Test(part_ops, embeddings_of_parts_of_the_rows_add_up)
{
    enum { WIDTH = 6 };
    struct kit kit;

    kit_init(&kit, 2);
    struct ct_tensor ids = kit_labels(&kit, ROWS, CLASSES);
    struct ct_tensor table = kit_random(&kit, CT_F64, ct_shape2(PARTS * EACH, WIDTH), -1, 1);
    struct ct_tensor dy = kit_random(&kit, CT_F64, ct_shape2(ROWS, WIDTH), -1, 1);
    const struct ct_kernel_args all = {.in = {ids, table}, .attr = {.sequence = 1}};
    const struct ct_kernel_args all_dw = {.in = {ids, dy}};
    struct ct_tensor want = run1(&kit, CT_OP_EMBEDDING, ct_shape2(ROWS, WIDTH), &all);
    struct ct_tensor want_dw =
        run1(&kit, CT_OP_EMBEDDING_DW, ct_shape2(PARTS * EACH, WIDTH), &all_dw);
    struct ct_tensor sum = kit_tensor(&kit, CT_F64, ct_shape2(ROWS, WIDTH));
    for (int part = 0; part < PARTS; part++) {
        struct ct_tensor rows = ct_tensor_slice(&table, part * EACH, EACH);
        const struct ct_kernel_args some = {.in = {ids, rows}, .attr = part_attr(part)};
        const struct ct_kernel_args some_dw = {.in = {ids, dy}, .attr = part_attr(part)};
        struct ct_tensor own = run1(&kit, CT_OP_EMBEDDING, ct_shape2(ROWS, WIDTH), &some);
        struct ct_tensor dw = run1(&kit, CT_OP_EMBEDDING_DW, ct_shape2(EACH, WIDTH), &some_dw);
        struct ct_tensor there = ct_tensor_slice(&want_dw, part * EACH, EACH);
        add_to(&sum, &own, false);
        kit_same_bytes(&dw, &there, "embedding_dw");
    }
    kit_same_bytes(&sum, &want, "embedding");
    kit_deinit(&kit);
}

Test(part_ops, rows_know_their_place_in_the_whole)
{
    enum { WIDTH = 5, SEQUENCE = 6, ALL = 4 * SEQUENCE, SOME = ALL / 3 };
    struct kit kit;

    kit_init(&kit, 3);
    struct ct_tensor x = kit_random(&kit, CT_F64, ct_shape2(ALL, WIDTH), -1, 1);
    struct ct_tensor places = kit_random(&kit, CT_F64, ct_shape2(SEQUENCE + 1, WIDTH), -1, 1);
    const struct ct_kernel_args all = {.in = {x, places}, .attr = {.sequence = SEQUENCE}};
    const struct ct_kernel_args all_dp = {.in = {x}, .attr = {.sequence = SEQUENCE}};
    struct ct_tensor want = run1(&kit, CT_OP_ADD_ROWS, ct_shape2(ALL, WIDTH), &all);
    struct ct_tensor want_dp = run1(&kit, CT_OP_EMBEDDING_DP, places.shape, &all_dp);
    struct ct_tensor dp = kit_tensor(&kit, CT_F64, places.shape);
    for (int64_t row = 0; row < ALL; row++)
        for (int64_t j = 0; j < WIDTH; j++)
            cr_assert_eq(kit_get(&want, row * WIDTH + j),
                         kit_get(&x, row * WIDTH + j) +
                             kit_get(&places, row % SEQUENCE * WIDTH + j));
    for (int64_t first = 0; first < ALL; first += SOME) {
        struct ct_tensor some = ct_tensor_slice(&x, first, SOME);
        struct ct_tensor there = ct_tensor_slice(&want, first, SOME);
        const struct ct_attr attr = {.part = true, .begin = (uint64_t)first, .sequence = SEQUENCE};
        const struct ct_kernel_args add = {.in = {some, places}, .attr = attr};
        const struct ct_kernel_args back = {.in = {some}, .attr = attr};
        struct ct_tensor own = run1(&kit, CT_OP_ADD_ROWS, some.shape, &add);
        struct ct_tensor own_dp = run1(&kit, CT_OP_EMBEDDING_DP, places.shape, &back);
        kit_same_bytes(&own, &there, "add_rows");
        add_to(&dp, &own_dp, false);
    }
    kit_near(&dp, &want_dp, 1e-12, "embedding_dp");
    kit_deinit(&kit);
}

Test(part_ops, runs_of_a_tensor_are_drawn_as_in_the_whole)
{
    enum { HIGH = 13, WIDE = 21, RUN = 7 };
    static const enum ct_op_kind ops[] = {CT_OP_UNIFORM, CT_OP_NORMAL};
    struct kit kit;

    kit_init(&kit, 4);
    for (size_t i = 0; i < CT_COUNT(ops); i++)
        for (int part = 0; part < WIDE / RUN; part++) {
            struct ct_attr attr = {.low = -1, .high = 1, .std = 2, .key = 42};
            const struct ct_kernel_args all = {.attr = attr};
            attr.first = (uint64_t)(part * RUN);
            attr.run = RUN;
            attr.stride = WIDE;
            const struct ct_kernel_args some = {.attr = attr};
            struct ct_tensor want = run1(&kit, ops[i], ct_shape2(HIGH, WIDE), &all);
            struct ct_tensor got = run1(&kit, ops[i], ct_shape2(HIGH, RUN), &some);
            for (int64_t row = 0; row < HIGH; row++)
                for (int64_t j = 0; j < RUN; j++)
                    cr_assert_eq(kit_get(&got, row * RUN + j),
                                 kit_get(&want, row * WIDE + part * RUN + j));
        }
    kit_deinit(&kit);
}
