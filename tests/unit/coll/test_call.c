/* Signatures: what counts as the same call, and how a difference is told. */
#include "call.h"

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
