/* The rounds of a job, as transcripts of virtual time. */
#include "scene.h"

#include <criterion/criterion.h>

TestSuite(core, .timeout = 30);

Test(core, a_static_job_starts_at_once_when_all_nodes_are_here)
{
    struct scene s;
    scene_init(&s, 2, 2, 0);
    scene_join(&s, "b");
    scene_at(&s, 100, false);
    scene_join(&s, "a");
    scene_prepared(&s, "b", 0, 0);
    scene_at(&s, 120, false);
    scene_prepared(&s, "a", 0, 0);
    scene_at(&s, 900, true);
    scene_done(&s, "a");
    scene_done(&s, "b");
    scene_expect(&s, "[    0] > b JOIN slots=2\n"
                     "[  100] > a JOIN slots=2\n"
                     "[  100] < all PREPARE g1 (first round)\n"
                     "[  100] > b PREPARED g1 lineage=0 step=0\n"
                     "[  120] > a PREPARED g1 lineage=0 step=0\n"
                     "[  120] < all ROUND g1 world=4 [a:0 b:2]\n"
                     "[  900] > a DONE g1\n"
                     "[  900] > b DONE g1\n"
                     "[  900] < all CLOSE status=0\n");
    cr_assert_eq(ct_rdzv_phase(s.job), CT_RDZV_CLOSED);
    scene_deinit(&s);
}

Test(core, an_elastic_job_waits_for_the_last_call_after_the_last_newcomer)
{
    struct scene s;
    scene_init(&s, 2, 4, 0);
    scene_join(&s, "a");
    scene_at(&s, 1000, false);
    scene_join(&s, "b");
    scene_at(&s, 1200, false);
    scene_join(&s, "c");
    scene_at(&s, 2000, false);
    scene_expect(&s, "[    0] > a JOIN slots=2\n"
                     "[ 1000] > b JOIN slots=2\n"
                     "[ 1200] > c JOIN slots=2\n"
                     "[ 1500] < all PREPARE g1 (first round)\n");
    scene_deinit(&s);
}
