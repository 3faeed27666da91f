#include "tests/unit/exec/exchange.h"

#include "job/thread_world.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <string.h>

/* A world that takes the tensors of `from`, unless that is NULL, and leaves its own in `to`. */
struct exchange {
    const struct run *run;
    const struct tensors *from, *to;
    const double *loss; /* of the values that it begins with; may be NULL */
};

void originals_init(struct originals *originals, const struct run *one)
{
    rig_init(&originals->rig, one, NULL);

    const struct ct_plan *plan = &originals->rig.plan;
    tensors_init(&originals->first, plan);
    tensors_init(&originals->marked, plan);
    tensors_init(&originals->got, plan);
    cr_assert_eq(ct_exec_collect(originals->rig.exec, originals->first.data, NULL), 0);
    for (int i = 0; i < plan->tensor_count; i++) {
        unsigned char *bytes = originals->marked.data[i];
        for (size_t at = 0; at < plan->tensors[i].bytes; at++)
            bytes[at] = (unsigned char)((size_t)i * 31 + at * 7);
    }
}

void originals_deinit(struct originals *originals)
{
    tensors_deinit(&originals->first);
    tensors_deinit(&originals->marked);
    tensors_deinit(&originals->got);
    rig_deinit(&originals->rig);
}

double loss_of(struct rig *rig, const struct run *run)
{
    float x[64];
    int32_t labels[64];
    struct ct_exec_eval args = {.x = x, .labels = labels};
    struct ct_exec_sums sums;

    fill_rows(&run->spec, 0, 1, x, labels);
    cr_assert_eq(ct_exec_eval(rig->exec, &args, &sums, NULL), 0);
    return sums.loss;
}

static int exchange_body(struct ct_job *job, void *context)
{
    const struct exchange *exchange = context;
    struct run run = *exchange->run;
    struct ct_group *group = NULL;
    struct ct_error err = {0};
    struct rig rig;

    cr_assert_eq(ct_group_new(job, NULL, &group, &err), 0, "%s", err.text);
    run.options.rank = ct_group_rank(group);
    bool first = run.options.rank == 0;
    rig_init(&rig, &run, group);
    if (exchange->loss != NULL)
        cr_assert_eq(loss_of(&rig, &run), *exchange->loss);
    if (exchange->from != NULL)
        cr_assert_eq(ct_exec_spread(rig.exec, first ? exchange->from->data : NULL, &err), 0);
    cr_assert_eq(ct_exec_collect(rig.exec, first ? exchange->to->data : NULL, &err), 0);
    rig_deinit(&rig);
    ct_group_free(group);
    return 0;
}

static void run_exchange(struct exchange exchange)
{
    struct ct_thread_world *world;

    cr_assert_eq(ct_thread_world_new(exchange.run->options.world, &world), 0);
    cr_assert_eq(thread_ranks_run(world, exchange_body, &exchange), 0);
    ct_thread_world_free(world);
}

static void assert_same_tensors(const struct ct_plan *plan, const struct tensors *a,
                                const struct tensors *b)
{
    for (int i = 0; i < plan->tensor_count; i++)
        cr_assert_eq(memcmp(a->data[i], b->data[i], plan->tensors[i].bytes), 0, "%s",
                     plan->tensors[i].name);
}

void assert_takes_over(struct originals *originals, const struct run *run, const double *loss)
{
    const struct ct_plan *plan = &originals->rig.plan;

    run_exchange((struct exchange){run, NULL, &originals->got, loss});
    assert_same_tensors(plan, &originals->got, &originals->first);
    run_exchange((struct exchange){run, &originals->marked, &originals->got, NULL});
    assert_same_tensors(plan, &originals->got, &originals->marked);
}
