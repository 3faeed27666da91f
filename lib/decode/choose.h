/* Choosing the next token from its logits.
 *
 *     logits / temperature -> [the top_k largest] -> softmax -> [the likeliest of top_p together]
 *                                                                              |
 *     temperature 0: the largest, at once                            one by chance
 *
 * in the order of the hub's `transformers` (Holtzman et al. 2020, 1904.09751, for top_p). Random
 * numbers are philox keyed by the seed and the number of the draw: equal inputs give equal tokens.
 * Of equal logits the lower token counts as the larger one. */
#ifndef CT_DECODE_CHOOSE_H
#define CT_DECODE_CHOOSE_H

#include "base/error.h"

#include <stdint.h>

struct ct_choice {
    double temperature; /* >= 0 */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all; > 0 */
    uint64_t seed;
};

struct ct_chooser;

/* Create a chooser for `count` > 0 logits at a time. 0; CT_EUSAGE, which names the option that is
 * out of range; CT_ENOMEM. */
int ct_chooser_new(struct ct_chooser **ret, const struct ct_choice *choice, int32_t count,
                   struct ct_error *err);
void ct_chooser_free(struct ct_chooser *chooser);

/* Return the token for draw number `draw`: 0 .. count - 1. CT_EDATA when a logit is not a number,
 * or infinite above. */
int ct_chooser_next(struct ct_chooser *chooser, const float *logits, uint64_t draw,
                    int32_t *ret_token, struct ct_error *err);

#endif
