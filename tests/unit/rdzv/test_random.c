/* Random schedules of a job core: thousands of events in no sensible order, with the invariants
 * after every one. What a whole cluster does is the simulator's (tests/sim). */
#include "scene.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "chance.h"

#include <criterion/criterion.h>

TestSuite(random, .timeout = 60);

static const char *const hosts[] = {"a", "b", "c", "d", "e", "f", "g"};

static void random_event(struct scene *s, struct ct_rng *rng)
{
    const char *name = hosts[ct_rng_below(rng, CT_COUNT(hosts))];
    struct scene_host *host = scene_host(s, name);
    if (host->link == 0) {
        if (host->released || rng_chance(rng, 300))
            scene_new_self(s, name);
        host->closed = false;
        if (rng_chance(rng, 500))
            scene_join_as(s, name, (uint32_t)ct_rng_below(rng, 3) + 1, -1);
        return;
    }
    switch (ct_rng_below(rng, 16)) {
    case 0:
        scene_cut(s, name);
        break;
    case 1:
        scene_fail(s, name, 1, 0);
        break;
    case 2:
        scene_done(s, name);
        break;
    case 3:
        if (rng_chance(rng, 200))
            scene_leave(s, name, CT_RDZV_LEAVE_DRAIN);
        break;
    case 4:
        scene_disk(s, (enum scene_disk)ct_rng_below(rng, 3));
        break;
    case 5:
    case 6:
    case 7:
        scene_heartbeat(s, name);
        break;
    default:
        if (host->promised > 0)
            scene_prepared(s, name, ct_rng_below(rng, 2) * ct_rdzv_roster(s->job)->generation, 7);
        break;
    }
}

static void run_seed(uint64_t seed, uint64_t *rounds)
{
    struct ct_rng rng;
    struct scene s;
    ct_rng_init(&rng, seed);
    uint32_t max = (uint32_t)ct_rng_below(&rng, 6) + 1;
    uint32_t min = (uint32_t)ct_rng_below(&rng, max) + 1;
    scene_init(&s, min, max, 1000);
    s.quiet = true;
    for (int i = 0; i < 1500 && ct_rdzv_phase(s.job) != CT_RDZV_CLOSED; i++) {
        random_event(&s, &rng);
        if (rng_chance(&rng, 250))
            scene_at(&s, s.now_ms + ct_rng_below(&rng, 2000), rng_chance(&rng, 700));
    }
    *rounds += s.rounds_seen;
    scene_deinit(&s);
}

Test(random, the_invariants_hold_after_every_event_of_any_schedule)
{
    uint64_t rounds = 0;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run_seed(seed, &rounds);
    cr_assert_gt(rounds, 500, "only %lu rounds: the schedules test too little",
                 (unsigned long)rounds);
}
