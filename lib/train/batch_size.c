/* See batch_size.h. */
#include "train/batch_size.h"

#include "base/assert.h"

#include <stdbool.h>
#include <stdio.h>

/* Two values around the wanted one; 0 where there is none, equal when there is only one. */
struct pair {
    uint32_t below, above;
};

/* The divisors of `number` > 0 next to `wanted` > 0. */
static struct pair nearest_divisors(uint32_t number, uint32_t wanted)
{
    struct pair near = {.below = CT_MIN(wanted, number), .above = wanted};

    while (number % near.below != 0)
        near.below--;
    while (near.above <= number && number % near.above != 0)
        near.above++;
    if (near.above > number)
        near.above = near.below;
    return near;
}

/* "s are 30 or 33", " is 3": what follows the word "value"; or "2 or 4", "2" without a verb. */
static const char *list(struct pair pair, bool with_verb, char text[48])
{
    if (pair.below != 0 && pair.below != pair.above)
        (void)snprintf(text, 48, "%s%u or %u", with_verb ? "s are " : "", pair.below, pair.above);
    else
        (void)snprintf(text, 48, "%s%u", with_verb ? " is " : "", pair.above);
    return text;
}

static int refuse_global(uint32_t global, uint32_t world, struct ct_error *err)
{
    char values[48], worlds[48];
    struct pair near = {.below = global / world * world, .above = (global / world + 1) * world};
    struct pair divisors = nearest_divisors(global, world);

    return ct_error_set(err, CT_ECONFIG,
                        "batch.global %u does not divide into %u workers: the nearest value%s, or "
                        "use %s worker%s",
                        global, world, list(near, true, values), list(divisors, false, worlds),
                        divisors.above > 1 ? "s" : "");
}

static int refuse_micro(uint32_t micro, uint32_t each, uint32_t world, struct ct_error *err)
{
    char values[48];

    return ct_error_set(err, CT_ECONFIG,
                        "batch.micro %u does not divide a worker's share of %u (batch.global %u "
                        "over %u worker%s): the nearest value%s",
                        micro, each, each * world, world, world > 1 ? "s" : "",
                        list(nearest_divisors(each, micro), true, values));
}

int ct_batch_plan(struct ct_batch_plan *ret, uint32_t global, uint32_t micro, uint32_t world,
                  struct ct_error *err)
{
    CT_ASSERT(global > 0 && world > 0);
    if (global % world != 0)
        return refuse_global(global, world, err);
    uint32_t each = global / world;
    if (micro == 0)
        micro = each;
    if (each % micro != 0)
        return refuse_micro(micro, each, world, err);
    *ret = (struct ct_batch_plan){.global = global, .micro = micro, .accumulation = each / micro};
    return 0;
}
