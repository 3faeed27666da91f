/* Choosing a token: what each option leaves to choose from, and how often each is chosen. */
#include "decode/choose.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(choose, .timeout = 20);

enum { COUNT = 6, DRAWS = 20000 };

/* Probabilities 0.4, 0.05, 0.3, 0.05, 0.15, 0.05 at temperature 1. */
static const double shares[COUNT] = {0.4, 0.05, 0.3, 0.05, 0.15, 0.05};

static void logits_of(float logits[COUNT])
{
    for (int i = 0; i < COUNT; i++)
        logits[i] = (float)log(shares[i]) + 3;
}

/* How often each token is chosen in DRAWS draws. */
static void draw(struct ct_choice choice, int counts[COUNT])
{
    struct ct_chooser *chooser;
    float logits[COUNT];

    logits_of(logits);
    memset(counts, 0, COUNT * sizeof *counts);
    cr_assert_eq(ct_chooser_new(&chooser, &choice, COUNT, NULL), 0);
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t token = -1;

        cr_assert_eq(ct_chooser_next(chooser, logits, i, &token, NULL), 0);
        cr_assert(token >= 0 && token < COUNT);
        counts[token]++;
    }
    ct_chooser_free(chooser);
}

/* The draws are fixed by the seed: five standard deviations are far from chance. */
static void expect_shares(struct ct_choice choice, const double wanted[COUNT])
{
    int counts[COUNT];

    draw(choice, counts);
    for (int i = 0; i < COUNT; i++) {
        double mean = wanted[i] * DRAWS, spread = sqrt(DRAWS * wanted[i] * (1 - wanted[i]));
        cr_assert_leq(fabs(counts[i] - mean), 5 * spread, "token %d: %d of %d, not %g", i,
                      counts[i], DRAWS, mean);
    }
}

Test(choose, tokens_come_as_often_as_their_softmax_says)
{
    expect_shares((struct ct_choice){.temperature = 1, .top_p = 1, .seed = 1}, shares);
}

Test(choose, temperature_sharpens_and_flattens)
{
    double squares[COUNT], roots[COUNT], square = 0, root = 0;

    for (int i = 0; i < COUNT; i++) {
        square += squares[i] = shares[i] * shares[i];
        root += roots[i] = sqrt(shares[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        squares[i] /= square;
        roots[i] /= root;
    }
    expect_shares((struct ct_choice){.temperature = 0.5, .top_p = 1, .seed = 2}, squares);
    expect_shares((struct ct_choice){.temperature = 2, .top_p = 1, .seed = 3}, roots);
}

Test(choose, only_the_largest_or_the_likeliest_stay)
{
    static const double two[COUNT] = {0.4 / 0.7, 0, 0.3 / 0.7};
    static const double three[COUNT] = {0.4 / 0.85, 0, 0.3 / 0.85, 0, 0.15 / 0.85};
    static const double one[COUNT] = {1};
    static const double lower[COUNT] = {0.4 / 0.9, 0.05 / 0.9, 0.3 / 0.9, 0, 0.15 / 0.9};

    expect_shares((struct ct_choice){.temperature = 1, .top_k = 2, .top_p = 1, .seed = 4}, two);
    expect_shares((struct ct_choice){.temperature = 1, .top_p = 0.6, .seed = 5}, two);
    expect_shares((struct ct_choice){.temperature = 1, .top_p = 0.75, .seed = 6}, three);
    expect_shares((struct ct_choice){.temperature = 1, .top_p = 1e-9, .seed = 7}, one);
    expect_shares((struct ct_choice){.temperature = 1, .top_k = 1, .top_p = 1, .seed = 8}, one);
    /* Of equals the lower stays. */
    expect_shares((struct ct_choice){.temperature = 1, .top_k = 4, .top_p = 1, .seed = 9}, lower);
    expect_shares((struct ct_choice){.temperature = 1, .top_k = 99, .top_p = 1, .seed = 9}, shares);
    /* top_p is of what top_k left: 0.4 is 0.57 of 0.7. */
    expect_shares((struct ct_choice){.temperature = 1, .top_k = 2, .top_p = 0.5, .seed = 9}, one);
}

Test(choose, without_a_temperature_the_first_largest_is_chosen)
{
    static const float logits[] = {-1, 2, -INFINITY, 2, 0};
    struct ct_chooser *chooser;
    int32_t token = -1;

    cr_assert_eq(ct_chooser_new(&chooser, &(struct ct_choice){.top_p = 1}, CT_COUNT(logits), NULL),
                 0);
    for (uint64_t i = 0; i < 5; i++) {
        cr_assert_eq(ct_chooser_next(chooser, logits, i, &token, NULL), 0);
        cr_assert_eq(token, 1);
    }
    ct_chooser_free(chooser);
}

Test(choose, the_seed_and_the_number_of_the_draw_decide)
{
    int first[COUNT], again[COUNT], other[COUNT];

    draw((struct ct_choice){.temperature = 1, .top_p = 1, .seed = 11}, first);
    draw((struct ct_choice){.temperature = 1, .top_p = 1, .seed = 11}, again);
    draw((struct ct_choice){.temperature = 1, .top_p = 1, .seed = 12}, other);
    cr_assert_eq(memcmp(first, again, sizeof first), 0);
    cr_assert_neq(memcmp(first, other, sizeof first), 0);
}

Test(choose, what_makes_no_sense_is_refused)
{
    static const struct {
        struct ct_choice choice;
        const char *expected;
    } rows[] = {
        {{.temperature = -1, .top_p = 1}, "--temperature -1: it is 0 or more"},
        {{.temperature = NAN, .top_p = 1}, "--temperature nan: it is 0 or more"},
        {{.top_k = -2, .top_p = 1}, "--top_k -2: it is 0 (all tokens) or more"},
        {{.top_p = 0}, "--top_p 0: it is above 0 and at most 1"},
        {{.top_p = 1.5}, "--top_p 1.5: it is above 0 and at most 1"},
    };
    static const float bad[] = {1, NAN}, endless[] = {INFINITY, 1};
    struct ct_chooser *chooser = NULL;
    struct ct_error err = {0};
    int32_t token = 7;

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        cr_assert_eq(ct_chooser_new(&chooser, &rows[i].choice, 2, &err), CT_EUSAGE);
        cr_assert_str_eq(err.text, rows[i].expected);
    }
    cr_assert_eq(ct_chooser_new(&chooser, &(struct ct_choice){1, 0, 1, 0}, 2, NULL), 0);
    cr_assert_eq(ct_chooser_next(chooser, bad, 0, &token, &err), CT_EDATA);
    cr_assert_str_eq(err.text, "the model's logit of token 1 is nan");
    cr_assert_eq(ct_chooser_next(chooser, endless, 0, &token, &err), CT_EDATA);
    cr_assert_eq(token, 7);
    ct_chooser_free(chooser);
}
