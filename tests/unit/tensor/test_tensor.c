/* Tensors are views: sizes, rows, slices, and what a shape looks like in words. */
#include "tensor/tensor.h"

#include <criterion/criterion.h>

TestSuite(tensor, .timeout = 30);

Test(tensor, a_shape_counts_elements_rows_and_columns)
{
    struct ct_shape shape = {3, {2, 3, 4, 0}}, scalar = {0, {0}};

    cr_assert_eq(ct_shape_elements(shape), 24);
    cr_assert_eq(ct_shape_rows(shape), 6);
    cr_assert_eq(ct_shape_columns(shape), 4);
    cr_assert_eq(ct_shape_elements(scalar), 1);
    cr_assert_eq(ct_shape_rows(scalar), 1);
    cr_assert_eq(ct_shape_columns(scalar), 1);
    cr_assert_eq(ct_shape_rows(ct_shape1(5)), 1);
    cr_assert_eq(ct_shape_elements(ct_shape2(0, 7)), 0);
}

Test(tensor, shapes_are_equal_when_every_size_is)
{
    cr_assert(ct_shape_equal(ct_shape2(2, 3), ct_shape2(2, 3)));
    cr_assert_not(ct_shape_equal(ct_shape2(2, 3), ct_shape2(3, 2)));
    cr_assert_not(ct_shape_equal(ct_shape1(6), ct_shape2(1, 6)));
}

Test(tensor, a_shape_prints_as_a_list_and_is_cut_to_the_room)
{
    char text[32], small[6];

    cr_assert_str_eq(ct_shape_print(ct_shape2(32, 64), text, sizeof text), "[32, 64]");
    cr_assert_str_eq(ct_shape_print((struct ct_shape){0}, text, sizeof text), "[]");
    cr_assert_str_eq(ct_shape_print(ct_shape2(123, 456), small, sizeof small), "[123,");
}

Test(tensor, slices_and_ranges_are_views_of_the_same_memory)
{
    float x[24] = {0};
    struct ct_tensor t = {CT_F32, {3, {4, 2, 3, 0}}, x};
    struct ct_tensor slice = ct_tensor_slice(&t, 1, 2), range = ct_tensor_range(&t, 5, 7);

    cr_assert_eq(slice.data, &x[6]);
    cr_assert_eq(ct_shape_elements(slice.shape), 12);
    cr_assert_eq(slice.shape.dims, 3);
    cr_assert_eq(range.data, &x[5]);
    cr_assert_eq(ct_tensor_bytes(&range), 7 * sizeof(float));
    slice = ct_tensor_slice(&t, 4, 0);
    cr_assert_eq(ct_tensor_bytes(&slice), 0);
}
