/* Signatures: what counts as the same call, and how a difference is told. */
#include "algorithm/call.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(call, .timeout = 10);

static const struct ct_call base = {.kind = CT_CALL_ALL_REDUCE,
                                    .dtype = CT_F32,
                                    .reduce = CT_REDUCE_AVG,
                                    .mode = CT_MODE_INVARIANT,
                                    .tag = 7,
                                    .count = 1000};

static bool same(const struct ct_call *a, const struct ct_call *b)
{
    return ct_signature_equal(ct_call_signature(a), ct_call_signature(b));
}

Test(call, each_thing_that_must_agree_changes_the_signature)
{
    struct ct_call other[6];

    for (int i = 0; i < 6; i++)
        other[i] = base;
    other[0].kind = CT_CALL_REDUCE_SCATTER;
    other[1].dtype = CT_I32;
    other[2].reduce = CT_REDUCE_MAX;
    other[3].mode = CT_MODE_FAST;
    other[4].tag = 8;
    other[5].count = 1001;
    for (int i = 0; i < 6; i++)
        cr_assert_not(same(&base, &other[i]), "change %d", i);
}

Test(call, what_does_not_matter_does_not_count)
{
    struct ct_call a = {.kind = CT_CALL_ALL_GATHER, .dtype = CT_F32, .count = 5};
    struct ct_call b = a;

    b.mode = CT_MODE_INVARIANT;
    b.peer = 3;
    cr_assert(same(&a, &b));
    a.kind = b.kind = CT_CALL_BROADCAST;
    cr_assert_not(same(&a, &b));
}

Test(call, the_counts_of_a_v_form_count_and_its_offsets_do_not)
{
    size_t counts[] = {1, 2, 3}, others[] = {1, 2, 4}, here[] = {0, 1, 3}, there[] = {7, 5, 0};
    struct ct_call a = {.kind = CT_CALL_ALL_GATHER, .size = 3, .uneven = true, .count = 1};
    struct ct_call b = a;

    a.out = (struct ct_parts){counts, here};
    b.out = (struct ct_parts){counts, there};
    cr_assert(same(&a, &b));
    b.count = 2; /* another rank's own */
    cr_assert(same(&a, &b));
    b.out.counts = others;
    cr_assert_not(same(&a, &b));
}

Test(call, two_members_compare_what_goes_between_them)
{
    size_t sent[] = {1, 2, 3}, received[] = {9, 8, 7}, offsets[] = {0, 0, 0};
    struct ct_call here = {.kind = CT_CALL_ALL_TO_ALL, .size = 3, .uneven = true, .rank = 0};
    struct ct_call there = here;
    struct ct_signature out, in;

    here.in = (struct ct_parts){sent, offsets};
    there.rank = 2;
    there.out = (struct ct_parts){received, offsets};
    cr_assert(same(&here, &there));
    out = ct_call_signature_with(&here, ct_call_signature(&here), 2, true);
    in = ct_call_signature_with(&there, ct_call_signature(&there), 0, false);
    cr_assert_eq(out.count, 3);
    cr_assert_eq(in.count, 9);
    cr_assert_not(ct_signature_equal(out, in));
}

Test(call, the_two_ends_of_a_message_are_one_call)
{
    struct ct_call send = {.kind = CT_CALL_SEND, .dtype = CT_F32, .count = 5, .peer = 1};
    struct ct_call recv = {.kind = CT_CALL_RECV, .dtype = CT_F32, .count = 5, .peer = 0};

    cr_assert(same(&send, &recv));
}

Test(call, a_mismatch_names_both_sides)
{
    struct ct_call other = {.kind = CT_CALL_BROADCAST, .dtype = CT_BF16, .count = 4, .peer = 2};
    struct ct_error err = {0};

    cr_assert_eq(
        ct_signature_mismatch(ct_call_signature(&base), 0, ct_call_signature(&other), 3, &err),
        CT_EMISMATCH);
    cr_assert_str_eq(err.text, "rank 0 called all_reduce of 1000 F32, AVG, INVARIANT, tag 7, rank "
                               "3 called broadcast of 4 BF16, root 2: each member must make the "
                               "same calls in the same order");
}

Test(call, a_signature_from_a_stranger_prints_as_something)
{
    char text[64];

    ct_signature_print((struct ct_signature){~0ull, ~0ull}, text, sizeof text);
    cr_assert_str_eq(text, "something else");
}
