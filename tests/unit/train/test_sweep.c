/* Sweeps: which trial next, which to stop; the same whatever ran when. */
#include "train/sweep.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sweep, .timeout = 30);

enum { STEPS = 80, EVERY = 5 };

/* A simulated trial: what it is worth, and how far it is. */
struct life {
    double worth;
    int step, starts;
    bool fails;
};

/* The loss after `step` steps: the better trials are not the better ones from the first on. */
static double loss_of(const struct life *life, int step)
{
    return life->worth + 10.0 / (step + 1);
}

struct world {
    struct ct_sweep sweep;
    struct ct_sweep_trial trials[CT_SWEEP_TRIALS];
    struct ct_sweep_decision decisions[CT_SWEEP_TRIALS];
    struct life lives[CT_SWEEP_TRIALS];
    int most, steps; /* side by side; of all */
};

static void world_init(struct world *w, int trials, int seats, bool halving)
{
    memset(w, 0, sizeof *w);
    w->sweep = (struct ct_sweep){
        .trials = trials, .seats = seats, .rungs = halving ? ct_sweep_rungs(trials) : 0};
    for (int i = 0; i < trials; i++)
        w->lives[i].worth = (double)(i * 5 % trials);
}

/* One evaluation further, or the end. */
static void advance(struct world *w, int i)
{
    struct ct_sweep_trial *trial = &w->trials[i];
    struct life *life = &w->lives[i];

    if (trial->stopping || life->fails) {
        trial->failed = life->fails;
        trial->running = trial->stopping = false;
        return;
    }
    life->step += EVERY;
    w->steps += EVERY;
    ct_sweep_note(&w->sweep, trial, (uint64_t)life->step, STEPS, loss_of(life, life->step));
    trial->finished = life->step >= STEPS;
    trial->running = !trial->finished;
}

/* In an order by chance from `seed`, until nothing is left. */
static void run(struct world *w, unsigned seed)
{
    for (int turns = 0; turns < 100000; turns++) {
        int left = ct_sweep_decide(&w->sweep, w->trials, w->decisions), running = 0;

        for (int i = 0; i < w->sweep.trials; i++) {
            struct ct_sweep_trial *trial = &w->trials[i];
            enum ct_sweep_order order = w->decisions[i].order;

            cr_assert(order != CT_SWEEP_START || (!trial->running && !trial->finished));
            if (order == CT_SWEEP_START) {
                trial->running = true;
                w->lives[i].starts++;
            }
            trial->stopping = trial->stopping || order == CT_SWEEP_PAUSE || order == CT_SWEEP_STOP;
            running += trial->running;
        }
        cr_assert_leq(running, w->sweep.seats);
        w->most = running > w->most ? running : w->most;
        if (running == 0) {
            cr_assert_eq(left, 0, "nothing runs, and %d are left", left);
            return;
        }
        seed = seed * 1664525u + 1013904223u;
        int pick = (int)(seed >> 8) % running;
        for (int i = 0; i < w->sweep.trials; i++)
            if (w->trials[i].running && pick-- == 0) {
                advance(w, i);
                break;
            }
    }
    cr_assert_fail("it does not end");
}

Test(sweep, without_halving_every_trial_runs_to_its_end_once)
{
    struct world *w = malloc(sizeof *w);

    world_init(w, 7, 3, false);
    run(w, 1);
    for (int i = 0; i < 7; i++) {
        cr_expect(w->trials[i].finished);
        cr_expect_eq(w->lives[i].starts, 1);
    }
    cr_assert_eq(w->most, 3);
    free(w);
}

Test(sweep, the_worst_half_is_stopped_at_each_rung_whatever_runs_first)
{
    struct world *w = malloc(sizeof *w);

    for (int seats = 1; seats <= 8; seats++)
        for (unsigned seed = 1; seed <= 200; seed++) {
            static const int outs[] = {-1, 2, 1, 1, 0, 0, 0, 0}; /* by their rank */

            world_init(w, 8, seats, true);
            cr_assert_eq(w->sweep.rungs, 3);
            run(w, seed);
            for (int i = 0; i < 8; i++)
                cr_assert_eq(w->decisions[i].out, outs[(int)w->lives[i].worth],
                             "%d seats, seed %u, trial %d", seats, seed, i);
            cr_assert(w->trials[0].finished, "the best one");
            if (seats == 1) /* nobody trains beyond what is decided by more than an evaluation */
                cr_assert_leq(w->steps, 4 * 10 + 2 * 20 + 40 + 80 + 8 * EVERY);
        }
    free(w);
}

Test(sweep, one_that_fails_or_has_no_number_is_the_worst_and_holds_nobody_up)
{
    struct world *w = malloc(sizeof *w);

    for (unsigned seed = 1; seed <= 100; seed++) {
        world_init(w, 5, 2, true); /* worth 0, 0, 0, 0, 0 */
        for (int i = 0; i < 5; i++)
            w->lives[i].worth = i == 1 ? (double)NAN : (double)i;
        w->lives[0].fails = true;
        run(w, seed);
        cr_assert(w->trials[0].failed);
        cr_assert(w->trials[2].finished);
        cr_assert_eq(w->decisions[2].out, -1);
        cr_assert_eq(w->decisions[0].out, 0);
        cr_assert_eq(w->decisions[1].out, 0);
    }
    free(w);
}

/* The decisions follow from the values alone: another process, which knows nothing else. */
Test(sweep, one_that_is_started_again_goes_on_with_what_is_left)
{
    struct world *w = malloc(sizeof *w);

    for (unsigned seed = 1; seed <= 100; seed++) {
        world_init(w, 8, 2, true);
        for (int turn = 0; turn < (int)(seed % 40); turn++) {
            (void)ct_sweep_decide(&w->sweep, w->trials, w->decisions);
            for (int i = 0; i < 8; i++) {
                if (w->decisions[i].order == CT_SWEEP_START)
                    w->trials[i].running = true;
                if (w->decisions[i].order > CT_SWEEP_START)
                    w->trials[i].stopping = true;
                if (w->trials[i].running)
                    advance(w, i);
            }
        }
        for (int i = 0; i < 8; i++) /* killed: all processes are gone */
            w->trials[i].running = w->trials[i].stopping = false;
        run(w, seed);
        cr_assert(w->trials[0].finished);
        int finished = 0;
        for (int i = 0; i < 8; i++)
            finished += w->decisions[i].out < 0;
        cr_assert_eq(finished, 1);
    }
    free(w);
}

Test(sweep, a_grid_has_each_combination_once_and_commas_can_be_written)
{
    struct ct_sweep_axis axes[3];

    cr_assert_null(ct_sweep_axis_parse(&axes[0], "optim.lr=1e-3,3e-4"));
    cr_assert_null(ct_sweep_axis_parse(&axes[1], "optim.betas=0.9,,0.95,0.9,,0.99"));
    cr_assert_null(ct_sweep_axis_parse(&axes[2], "seed=1"));
    cr_assert_eq(ct_sweep_grid_size(axes, 3), 4);
    cr_assert_str_eq(ct_sweep_grid_value(axes, 3, 0, 0), "1e-3");
    cr_assert_str_eq(ct_sweep_grid_value(axes, 3, 1, 0), "1e-3");
    cr_assert_str_eq(ct_sweep_grid_value(axes, 3, 1, 1), "0.9,0.99");
    cr_assert_str_eq(ct_sweep_grid_value(axes, 3, 2, 0), "3e-4");
    cr_assert_str_eq(ct_sweep_grid_value(axes, 3, 2, 1), "0.9,0.95");
    cr_assert_str_eq(ct_sweep_grid_value(axes, 3, 3, 2), "1");
    cr_assert_not_null(ct_sweep_axis_parse(&axes[0], "optim.lr"));
    cr_assert_not_null(ct_sweep_axis_parse(&axes[0], "=1"));
    cr_assert_not_null(ct_sweep_axis_parse(&axes[0], "optim.lr="));
    cr_assert_not_null(ct_sweep_axis_parse(&axes[0], "optim.lr=1,"));
}
