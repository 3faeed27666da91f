/* See shuffle.h. */
#include "shuffle.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <string.h>

void shuffle_transfers(struct ct_transfer *list, int count, uint64_t seed)
{
    struct ct_transfer mixed[SHUFFLE_MAX];
    bool taken[SHUFFLE_MAX] = {false};
    struct ct_rng rng;

    CT_ASSERT(count <= SHUFFLE_MAX);
    ct_rng_init(&rng, seed);
    memcpy(mixed, list, (size_t)count * sizeof *list);
    for (int i = count - 1; i > 0; i--) {
        int j = (int)ct_rng_below(&rng, (uint64_t)i + 1);
        struct ct_transfer swap = mixed[i];

        mixed[i] = mixed[j];
        mixed[j] = swap;
    }
    for (int i = 0; i < count; i++) {
        int from = 0;

        while (taken[from] || list[from].peer != mixed[i].peer ||
               list[from].direction != mixed[i].direction)
            from++;
        taken[from] = true;
        mixed[i] = list[from];
    }
    memcpy(list, mixed, (size_t)count * sizeof *list);
}
