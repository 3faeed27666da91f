/* The rhythm: a job of a program that keeps no record is called hung when it is, and never before.
 * Ranks are simulated: what of them can be seen from outside. */
#include "diagnose/rhythm.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(rhythm, .timeout = 60);

enum { RANKS = 4, FLOOR_MS = 30000, START_MS = 1000 };

static struct {
    struct ct_rhythm rhythm;
    struct ct_rhythm_rank ranks[RANKS];
    struct ct_rhythm_sample samples[RANKS];
    struct ct_rhythm_verdict verdict;
    uint64_t now_ms;
} job;

static void begin_job(void)
{
    memset(&job, 0, sizeof job);
    job.rhythm.floor_ms = FLOOR_MS;
    job.now_ms = START_MS;
    ct_rhythm_begin(&job.rhythm, job.ranks, RANKS);
    for (int i = 0; i < RANKS; i++)
        job.samples[i] = (struct ct_rhythm_sample){.alive = true, .pid = 100 + i};
}

static bool poll(void)
{
    job.now_ms += CT_RHYTHM_POLL_MS;
    return ct_rhythm_poll(&job.rhythm, job.now_ms, job.samples, &job.verdict);
}

/* What ranks do between two polls. */
enum deed { NOTHING, PRINT, HEARTBEAT, READ, COMPUTE, DISK };

static void act(int rank, enum deed deed)
{
    struct ct_rhythm_sample *sample = &job.samples[rank];

    sample->waiting = deed == DISK;
    sample->output += deed == PRINT;
    sample->heartbeats += deed == HEARTBEAT;
    sample->io += deed == READ ? 4096 : 0;
    sample->cpu_ms += deed == COMPUTE ? CT_RHYTHM_POLL_MS : deed == NOTHING ? 2 : 0;
}

/* One rank does this, the others nothing, for so long. True: there is a verdict. */
static bool pass(int rank, enum deed deed, uint64_t duration_ms)
{
    for (uint64_t t = 0; t < duration_ms; t += CT_RHYTHM_POLL_MS) {
        for (int i = 0; i < RANKS; i++)
            act(i, i == rank ? deed : NOTHING);
        if (poll())
            return true;
    }
    return false;
}

/* Train for a while: all compute, rank 0 prints now and then. */
static void train(uint64_t duration_ms)
{
    for (uint64_t t = 0; t < duration_ms; t += CT_RHYTHM_POLL_MS) {
        for (int i = 0; i < RANKS; i++)
            act(i, COMPUTE);
        if (t % 5000 == 0)
            act(0, PRINT);
        cr_assert(!poll(), "at %llu ms", (unsigned long long)t);
    }
}

Test(rhythm, a_job_that_falls_silent_is_found_after_the_floor)
{
    begin_job();
    train(60000);
    uint64_t from_ms = job.now_ms;
    cr_assert(pass(-1, NOTHING, 2 * FLOOR_MS));
    cr_assert_eq(job.verdict.kind, CT_RHYTHM_SILENT);
    cr_assert_leq(job.now_ms - from_ms, FLOOR_MS + 2u * CT_RHYTHM_POLL_MS);
    cr_assert(ct_rhythm_stands(&job.rhythm, &job.verdict));
    cr_assert(!pass(-1, NOTHING, 5 * FLOOR_MS), "one verdict a round");
}

Test(rhythm, a_rank_that_lives_excuses_those_that_wait_for_it)
{
    static const enum deed deeds[] = {PRINT, HEARTBEAT, READ};

    for (size_t i = 0; i < CT_COUNT(deeds); i++) {
        begin_job();
        train(60000);
        cr_assert(!pass(2, deeds[i], 3600000), "deed %d", (int)deeds[i]);
    }
}

Test(rhythm, an_evaluation_and_a_slow_disk_of_a_minute_are_excused)
{
    begin_job();
    train(600000);
    cr_assert(!pass(0, COMPUTE, 60000));
    train(600000);
    cr_assert(!pass(0, DISK, 60000));
    train(600000);
    cr_assert(!pass(0, COMPUTE, (CT_RHYTHM_BUSY_FACTOR - 1) * FLOOR_MS));
}

Test(rhythm, an_endless_loop_is_found_by_the_longer_patience)
{
    begin_job();
    train(600000);
    uint64_t from_ms = job.now_ms;
    cr_assert(pass(3, COMPUTE, 3600000));
    cr_assert_eq(job.verdict.kind, CT_RHYTHM_BUSY);
    cr_assert_leq(job.now_ms - from_ms, CT_RHYTHM_BUSY_FACTOR * FLOOR_MS + 6000);
    cr_assert_eq(job.ranks[3].silent_ms, 0);
}

Test(rhythm, a_program_that_never_printed_while_it_computed_may_compute_for_ever)
{
    begin_job();
    cr_assert(!pass(0, PRINT, 10000), "what it says at its start is no rhythm");
    cr_assert(!pass(1, COMPUTE, 10 * 3600000));
    cr_assert(pass(-1, NOTHING, 2 * FLOOR_MS), "but it may not do nothing");
}

Test(rhythm, one_heartbeat_makes_a_program_known)
{
    begin_job();
    cr_assert(!pass(0, HEARTBEAT, CT_RHYTHM_POLL_MS * 2));
    cr_assert(pass(1, COMPUTE, (CT_RHYTHM_BUSY_FACTOR + 1) * FLOOR_MS));
    cr_assert_eq(job.verdict.kind, CT_RHYTHM_BUSY);
}

Test(rhythm, pauses_of_before_raise_the_patience)
{
    begin_job();
    for (int i = 0; i < 20; i++) {
        train(60000);
        cr_assert(!pass(-1, NOTHING, 20000), "round %d", i);
    }
    cr_assert_eq(ct_rhythm_silent_ms(&job.rhythm), CT_RHYTHM_FACTOR * 20000);
    train(60000);
    cr_assert(!pass(-1, NOTHING, 90000));
    cr_assert(pass(-1, NOTHING, 20000));
}

Test(rhythm, silence_of_ranks_that_wait_for_a_living_one_teaches_nothing)
{
    begin_job();
    train(60000);
    cr_assert(!pass(0, READ, 600000));
    train(60000);
    cr_assert_eq(ct_rhythm_silent_ms(&job.rhythm), FLOOR_MS);
}

Test(rhythm, a_stopped_rank_is_found_while_others_live)
{
    begin_job();
    train(60000);
    job.samples[2].stopped = true;
    cr_assert(pass(0, PRINT, FLOOR_MS + 2000));
    cr_assert_eq(job.verdict.kind, CT_RHYTHM_STOPPED);
    cr_assert_eq(job.verdict.worker, 2);
    job.samples[2].stopped = false;
    (void)poll();
    cr_assert(!ct_rhythm_stands(&job.rhythm, &job.verdict), "it goes on");
}

Test(rhythm, time_in_which_the_agent_was_away_does_not_count)
{
    begin_job();
    train(60000);
    for (int i = 0; i < 10; i++) {
        job.now_ms += 3600000;
        cr_assert(!poll());
    }
}

Test(rhythm, excused_ended_and_new_processes_are_not_silent)
{
    begin_job();
    train(60000);
    job.samples[1].excused = true;
    cr_assert(!pass(-1, NOTHING, 10 * FLOOR_MS));
    job.samples[1].excused = false;
    cr_assert(!pass(-1, NOTHING, FLOOR_MS - 2000));
    job.samples[1].pid = 500; /* another process has its place */
    cr_assert(!pass(-1, NOTHING, FLOOR_MS - 2000));
    for (int i = 0; i < RANKS; i++)
        job.samples[i].alive = false;
    cr_assert(!pass(-1, NOTHING, 10 * FLOOR_MS));
}

Test(rhythm, descendants_that_come_and_go_are_work)
{
    begin_job();
    train(60000);
    for (int i = 0; i < 200; i++) {
        job.samples[0].family++;
        cr_assert(!poll());
    }
}

/* 10,000 steps whose time is drawn from once to three times the base, an evaluation and a
 * checkpoint of a minute each 500: nothing is called a hang. */
Test(rhythm, ten_thousand_steps_of_three_times_the_base_give_no_false_verdict)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct ct_rng dice;

        begin_job();
        ct_rng_init(&dice, seed);
        for (int step = 0; step < 10000; step++) {
            uint64_t base_ms = seed * 2000;
            int slowest = (int)ct_rng_below(&dice, RANKS);
            uint64_t step_ms = base_ms + ct_rng_below(&dice, 2 * base_ms + 1);

            cr_assert(!pass(slowest, COMPUTE, step_ms), "seed %d, step %d", (int)seed, step);
            if (step % 10 == 0)
                cr_assert(!pass(0, PRINT, CT_RHYTHM_POLL_MS));
            if (step % 500 == 499) {
                cr_assert(!pass(0, COMPUTE, 60000), "an evaluation after step %d", step);
                cr_assert(!pass(0, (step / 500) % 2 == 0 ? DISK : READ, 60000), "a checkpoint");
            }
        }
        cr_assert(pass(-1, NOTHING, 2 * FLOOR_MS), "and a hang is still found");
    }
}
