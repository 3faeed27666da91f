/* See choose.h. */
#include "decode/choose.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/number/rng.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct candidate {
    double weight; /* the logit over the temperature, then e to it */
    int32_t token;
};

struct ct_chooser {
    struct ct_choice choice;
    int32_t count;
    struct candidate candidates[]; /* [count] */
};

int ct_chooser_new(struct ct_chooser **ret, const struct ct_choice *choice, int32_t count,
                   struct ct_error *err)
{
    CT_ASSERT(count > 0);
    if (!(choice->temperature >= 0 && isfinite(choice->temperature)))
        return ct_error_set(err, CT_EUSAGE, "--temperature %g: it is 0 or more",
                            choice->temperature);
    if (choice->top_k < 0)
        return ct_error_set(err, CT_EUSAGE, "--top_k %lld: it is 0 (all tokens) or more",
                            (long long)choice->top_k);
    if (!(choice->top_p > 0 && choice->top_p <= 1))
        return ct_error_set(err, CT_EUSAGE, "--top_p %g: it is above 0 and at most 1",
                            choice->top_p);
    struct ct_chooser *chooser =
        malloc(sizeof *chooser + (size_t)count * sizeof chooser->candidates[0]);
    if (chooser == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d tokens to choose from", count);
    chooser->choice = *choice;
    chooser->count = count;
    *ret = chooser;
    return 0;
}

void ct_chooser_free(struct ct_chooser *chooser)
{
    free(chooser);
}

static bool is_bad(float logit)
{
    return isnan(logit) || (isinf(logit) && logit > 0);
}

static int by_weight(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;

    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* In [0, 1). */
static double chance(uint64_t seed, uint64_t draw)
{
    const uint32_t counter[4] = {(uint32_t)draw, (uint32_t)(draw >> 32), 0, 0};
    uint32_t words[4];

    ct_philox(ct_mix64(seed) ^ ct_hash_str("sample"), counter, words);
    return ((double)(words[0] >> 5) * 67108864.0 + (double)(words[1] >> 6)) / 9007199254740992.0;
}

/* Weights become e^(weight - largest); returns their sum. */
static double exponentials(struct candidate *candidates, int32_t count)
{
    double largest = -INFINITY, total = 0;

    for (int32_t i = 0; i < count; i++)
        largest = fmax(largest, candidates[i].weight);
    for (int32_t i = 0; i < count; i++) {
        candidates[i].weight = isinf(largest) ? 1 : exp(candidates[i].weight - largest);
        total += candidates[i].weight;
    }
    return total;
}

/* How many of the sorted candidates make up top_p of `total`, and their sum. */
static int32_t likeliest(const struct candidate *candidates, int32_t count, double share,
                         double *total)
{
    double sum = 0, wanted = share * *total;
    int32_t kept = 0;

    while (kept < count && (kept == 0 || sum < wanted))
        sum += candidates[kept++].weight;
    *total = sum;
    return kept;
}

int ct_chooser_next(struct ct_chooser *chooser, const float *logits, uint64_t draw,
                    int32_t *ret_token, struct ct_error *err)
{
    const struct ct_choice *choice = &chooser->choice;
    struct candidate *candidates = chooser->candidates;
    int32_t count = chooser->count, largest = 0;

    for (int32_t i = 0; i < count; i++) {
        if (is_bad(logits[i]))
            return ct_error_set(err, CT_EDATA, "the model's logit of token %d is %g", i,
                                (double)logits[i]);
        if (logits[i] > logits[largest])
            largest = i;
        candidates[i] = (struct candidate){(double)logits[i] / choice->temperature, i};
    }
    *ret_token = largest;
    if (choice->temperature == 0)
        return 0;
    bool some = choice->top_k > 0 || choice->top_p < 1;
    if (some)
        qsort(candidates, (size_t)count, sizeof candidates[0], by_weight);
    if (choice->top_k > 0)
        count = (int32_t)CT_MIN(choice->top_k, (int64_t)count);
    double total = exponentials(candidates, count);
    if (some)
        count = likeliest(candidates, count, choice->top_p, &total);
    double left = chance(choice->seed, draw) * total;
    int32_t at = 0;

    while (at < count - 1 && left >= candidates[at].weight)
        left -= candidates[at++].weight;
    *ret_token = candidates[at].token;
    return 0;
}
