/* The watch: who hangs is named, who is only slow is not. Ranks and nodes are simulated. */
#include "diagnose/watch.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(watch, .timeout = 60);

enum { RANKS = 64, FLOOR_MS = 30000, HISTORY = 256 };

/* ---- a job of RANKS ranks on nodes that have a watch each ------------------------------------ */

struct rank {
    uint64_t done;       /* steps */
    uint64_t entered;    /* collectives; one a step */
    bool waits;          /* in the newest that it entered */
    uint64_t free_ms;    /* when it has computed */
    uint64_t began_ms;   /* the step */
    uint64_t heartbeats; /* a sign of life of its wait */
    bool frozen;         /* from here on it does nothing */
    bool excused;
    enum ct_record_section section;
    uint32_t durations[HISTORY], duration_count;
};

static struct {
    struct rank ranks[RANKS];
    struct ct_watch nodes[RANKS];
    struct ct_watch_rank counts[RANKS];
    struct ct_watch_sample samples[RANKS];
    uint32_t node_count, per_node;
    uint64_t now_ms, tick_ms, base_ms;
    struct ct_rng dice;
    struct ct_watch_verdict verdict; /* the last one */
    uint32_t verdicts, waits;        /* how many there were */
    uint32_t rank;                   /* whom the last one names */
} job;

/* From once to three times the base. */
static uint64_t duration_ms(void)
{
    return job.base_ms + ct_rng_below(&job.dice, 2 * job.base_ms + 1);
}

static void begin_job(uint32_t nodes, uint64_t base_ms, uint64_t seed)
{
    memset(&job, 0, sizeof job);
    ct_rng_init(&job.dice, seed);
    job.base_ms = base_ms;
    job.node_count = nodes;
    job.per_node = RANKS / nodes;
    job.now_ms = 1000;
    job.tick_ms = 50;
    for (uint32_t i = 0; i < nodes; i++) {
        job.nodes[i].floor_ms = FLOOR_MS;
        ct_watch_begin(&job.nodes[i], &job.counts[i * job.per_node], job.per_node, i * job.per_node,
                       RANKS);
    }
    for (int i = 0; i < RANKS; i++)
        job.ranks[i].free_ms = job.now_ms + 10 * duration_ms();
}

/* Has everybody entered collective `number`? The first who has not, or -1. */
static int find_missing(uint64_t number)
{
    for (int i = 0; i < RANKS; i++)
        if (job.ranks[i].entered < number)
            return i;
    return -1;
}

static void leave(struct rank *rank)
{
    rank->waits = false;
    rank->done++;
    if (rank->section == CT_RECORD_STEP)
        rank->durations[rank->duration_count++ % HISTORY] =
            (uint32_t)(job.now_ms - rank->began_ms) * 1000;
    rank->section = CT_RECORD_STEP;
    rank->began_ms = job.now_ms;
    rank->free_ms = job.now_ms + duration_ms();
}

static void move(void)
{
    for (int i = 0; i < RANKS; i++) {
        struct rank *rank = &job.ranks[i];

        if (!rank->frozen && !rank->waits && job.now_ms >= rank->free_ms) {
            rank->entered++;
            rank->waits = true;
        }
    }
    for (int i = 0; i < RANKS; i++) {
        struct rank *rank = &job.ranks[i];

        if (rank->frozen || !rank->waits)
            continue;
        rank->heartbeats++;
        if (find_missing(rank->entered) < 0)
            leave(rank);
    }
}

static void sample(uint32_t i)
{
    const struct rank *rank = &job.ranks[i];
    struct ct_watch_sample *to = &job.samples[i];
    struct ct_record_call *call = &to->view.groups[0];

    *to = (struct ct_watch_sample){
        .alive = true,
        .pid = 100 + (int)i,
        .excused = rank->excused,
        .view = {.opened = true,
                 .section = rank->section,
                 .step = rank->done,
                 .progress = rank->entered * 2 + rank->waits + (uint64_t)rank->section * 1000,
                 .group_count = 1},
        .durations_us = rank->durations,
        .duration_count = CT_MIN(rank->duration_count, (uint32_t)HISTORY),
    };
    to->view.signs = to->view.progress * 1000000 + rank->heartbeats;
    *call = (struct ct_record_call){.id = 7,
                                    .entered = rank->entered,
                                    .completed = rank->entered - rank->waits,
                                    .waiting = rank->waits ? rank->entered : 0,
                                    .awaited = rank->waits ? find_missing(rank->entered) : -1,
                                    .name = "world/1"};
    if (rank->waits && rank->heartbeats % 7 != 0) /* it may not have come so far */
        (void)snprintf(call->text, sizeof call->text, "all_reduce of 650 F32");
}

static void check(void)
{
    for (uint32_t i = 0; i < job.node_count; i++) {
        struct ct_watch_verdict verdict;

        for (uint32_t k = 0; k < job.per_node; k++)
            sample(i * job.per_node + k);
        if (!ct_watch_poll(&job.nodes[i], job.now_ms, &job.samples[i * job.per_node], &verdict))
            continue;
        if (verdict.kind == CT_WATCH_WAITS) {
            job.waits++;
            continue;
        }
        job.verdicts++;
        job.verdict = verdict;
        job.rank = i * job.per_node + verdict.worker;
    }
}

/* Let `ms` pass, or less: until there is a verdict. */
static void run(uint64_t ms)
{
    uint64_t end = job.now_ms + ms;

    while (job.now_ms < end && job.verdicts == 0) {
        job.now_ms += job.tick_ms;
        move();
        if (job.now_ms % CT_WATCH_POLL_MS == 0)
            check();
    }
}

/* Let everything run until `rank` has done `steps` and is (not) in a collective; then it freezes.
 */
static void freeze(uint32_t index, uint64_t steps, bool in_collective)
{
    struct rank *rank = &job.ranks[index];

    for (int i = 0; rank->done < steps || rank->waits != in_collective; i++) {
        cr_assert_lt(i, 100000);
        run(job.tick_ms);
    }
    cr_assert_eq(job.verdicts, 0u, "nobody hangs yet");
    rank->frozen = true;
}

/* ---- hangs ----------------------------------------------------------------------------------- */

Test(watch, twenty_of_twenty_planted_hangs_on_64_ranks_are_named_in_time)
{
    static const uint32_t layouts[] = {1, 8, 64, 4};

    for (uint32_t i = 0; i < 20; i++) {
        begin_job(layouts[i % CT_COUNT(layouts)], 300, i + 1);
        uint32_t victim = (uint32_t)ct_rng_below(&job.dice, RANKS);
        bool in_collective = i % 2 == 0;

        freeze(victim, 2 + i * 5, in_collective);
        uint64_t since_ms = job.now_ms;
        run(FLOOR_MS + 2000);
        cr_assert_eq(job.verdicts, 1u, "hang %u", i);
        cr_assert_eq(job.rank, victim, "hang %u: rank %u instead of %u", i, job.rank, victim);
        cr_assert_geq(job.now_ms - since_ms, FLOOR_MS - CT_WATCH_POLL_MS);
        if (in_collective)
            cr_assert_eq(job.verdict.kind, CT_WATCH_STUCK);
        else if (job.per_node > 1)
            cr_assert_eq(job.verdict.kind, CT_WATCH_MISSING);
        else
            cr_assert_eq(job.verdict.kind, CT_WATCH_NOT_IN_COLLECTIVE);
        run(FLOOR_MS * 4);
        cr_assert_eq(job.verdicts, 1u, "one verdict a round, on one node");
    }
}

Test(watch, three_times_jitter_over_ten_thousand_steps_makes_nobody_guilty)
{
    begin_job(8, 1000, 5);
    job.tick_ms = 250;
    for (int i = 0; i < 8; i++)
        job.nodes[i].floor_ms = 1; /* below any step: only the 99th percentile speaks */
    while (job.ranks[0].done < 10000 && job.verdicts == 0)
        run(100000);
    cr_assert_eq(job.verdicts, 0u, "rank %u after %llu steps", job.rank,
                 (unsigned long long)job.ranks[0].done);
}

/* Rank 5 stops for good in `section`, after `steps` steps, where the longest start took `start_ms`:
 * it is found after `patience_ms`. */
static void assert_patience(enum ct_record_section section, uint32_t steps, uint64_t start_ms,
                            uint64_t patience_ms)
{
    begin_job(1, 300, 9);
    freeze(5, 3, false);
    job.nodes[0].start_ms = start_ms;
    job.ranks[5].section = section;
    job.ranks[5].duration_count = steps;
    uint64_t since_ms = job.now_ms;
    run(patience_ms - 1000);
    cr_assert_eq(job.verdicts, 0u, "section %d", (int)section);
    run(3000);
    cr_assert_eq(job.verdicts, 1u, "section %d", (int)section);
    cr_assert_eq(job.rank, 5u);
    cr_assert_leq(job.now_ms - since_ms, patience_ms + 2000);
}

Test(watch, the_first_start_of_all_and_who_uses_a_disk_have_half_an_hour)
{
    assert_patience(CT_RECORD_START, 0, 0, CT_WATCH_LONG_MS);
    assert_patience(CT_RECORD_EVALUATE, 0, 0, CT_WATCH_LONG_MS);
    assert_patience(CT_RECORD_CHECKPOINT, 3, 1000, CT_WATCH_LONG_MS);
}

Test(watch, a_process_that_has_trained_has_no_more_time_for_the_next_round_than_for_a_step)
{
    assert_patience(CT_RECORD_AWAY, 3, 0,
                    FLOOR_MS); /* it was told of the round, and is not there */
    assert_patience(CT_RECORD_START, 3, 0, FLOOR_MS);
    assert_patience(CT_RECORD_EVALUATE, 3, 0, FLOOR_MS);
    assert_patience(CT_RECORD_PUBLISH, 3, 0, FLOOR_MS);
}

Test(watch, a_new_process_may_take_five_times_the_longest_start_of_those_before)
{
    assert_patience(CT_RECORD_START, 0, 100, FLOOR_MS);
    assert_patience(CT_RECORD_START, 0, FLOOR_MS, 5 * FLOOR_MS);
}

Test(watch, a_start_is_timed_from_process_to_first_step_whatever_rounds_begin_meanwhile)
{
    struct ct_watch_rank rank = {0};
    struct ct_watch watch = {.floor_ms = 1000};
    struct ct_watch_sample one = {.alive = true, .pid = 7, .view.opened = true};
    struct ct_watch_verdict verdict;
    uint64_t now_ms = 500;

    ct_watch_begin(&watch, &rank, 1, 0, 1);
    for (int looks = 0; looks < 11; looks++, now_ms += 500)
        (void)ct_watch_poll(&watch, now_ms, &one, &verdict);
    ct_watch_begin(&watch, &rank, 1, 0, 1);
    for (int looks = 0; looks < 11; looks++, now_ms += 500)
        (void)ct_watch_poll(&watch, now_ms, &one, &verdict);
    cr_assert_eq(watch.start_ms, 0u, "it has not come to its first step");
    one.duration_count = 1;
    one.durations_us = &(uint32_t){1000};
    (void)ct_watch_poll(&watch, now_ms, &one, &verdict);
    cr_assert_eq(watch.start_ms, 10000u);
    one.pid = 8; /* the next one is quicker */
    one.duration_count = 0;
    (void)ct_watch_poll(&watch, now_ms += 500, &one, &verdict);
    (void)ct_watch_poll(&watch, now_ms += 500, &one, &verdict);
    one.duration_count = 1;
    (void)ct_watch_poll(&watch, now_ms += 500, &one, &verdict);
    cr_assert_eq(watch.start_ms, 10000u);
}

Test(watch, who_waits_for_its_agent_is_never_guilty)
{
    begin_job(1, 300, 9);
    freeze(5, 3, false);
    job.ranks[5].excused = true; /* its output is held up, or it has left the round */
    run(CT_WATCH_LONG_MS * 2);
    cr_assert_eq(job.verdicts, 0u);
    job.ranks[5].excused = false;
    run(FLOOR_MS + 2000);
    cr_assert_eq(job.verdicts, 1u, "from then on it counts");
}

Test(watch, time_in_which_the_agent_was_away_itself_does_not_count)
{
    begin_job(1, 300, 9);
    freeze(5, 3, false);
    run(10000);
    job.now_ms += 3600 * 1000; /* a suspended machine */
    run(FLOOR_MS - 10000 - 2000);
    cr_assert_eq(job.verdicts, 0u);
    run(4000);
    cr_assert_eq(job.verdicts, 1u);
}

Test(watch, the_floor_0_watches_nobody)
{
    begin_job(1, 300, 9);
    job.nodes[0].floor_ms = 0;
    freeze(5, 3, false);
    run(CT_WATCH_LONG_MS * 2);
    cr_assert_eq(job.verdicts, 0u);
}

Test(watch, a_deadlock_in_which_all_wait_names_the_one_that_most_wait_for)
{
    begin_job(1, 300, 9);
    freeze(40, 3, true);
    job.ranks[40].entered--; /* lost: it waits in a call that nobody else is in */
    for (uint64_t i = 0; i < FLOOR_MS + 4000 && job.verdicts == 0; i += 50) {
        job.ranks[40].heartbeats++;
        run(50);
    }
    cr_assert_eq(job.verdicts, 1u);
    cr_assert_eq(job.rank, 40u);
    cr_assert_eq(job.verdict.kind, CT_WATCH_STUCK);
    cr_assert(job.verdict.all_wait);
    cr_assert_eq(job.verdict.waiting, RANKS - 1u);
}

Test(watch, nodes_that_only_wait_say_so_once_and_blame_nobody_of_theirs)
{
    begin_job(8, 300, 9);
    freeze(40, 3, false);
    job.nodes[40 / 8].floor_ms = 0; /* its own agent does not look */
    run(FLOOR_MS * 5);
    cr_assert_eq(job.verdicts, 0u);
    cr_assert_eq(job.waits, 7u, "each other node, once");
}

/* It waits for another node's, in vain, and is stopped: by then its call has not got on for longer
 * than it is silent. */
Test(watch, who_is_silent_in_its_call_does_not_wait_but_hangs)
{
    struct ct_watch_rank ranks[1] = {{0}};
    struct ct_watch watch = {.floor_ms = 3000, .start_ms = 1};
    struct ct_watch_sample sample = {
        .alive = true,
        .view = {.opened = true, .section = CT_RECORD_STEP, .group_count = 1, .signs = 1}};
    struct ct_watch_verdict verdict = {.kind = CT_WATCH_NOTHING};

    sample.view.groups[0] =
        (struct ct_record_call){.id = 1, .entered = 7, .completed = 6, .waiting = 7, .awaited = 1};
    ct_watch_begin(&watch, ranks, 1, 0, 2);
    for (uint64_t now = 500; now < 10000 && verdict.kind == CT_WATCH_NOTHING; now += 500) {
        sample.view.signs += now < 2000;
        (void)ct_watch_poll(&watch, now, &sample, &verdict);
    }
    cr_assert_eq(verdict.kind, CT_WATCH_STUCK);
    cr_assert_not(verdict.all_wait);
    cr_assert_gt(verdict.silent_ms, 3000u);
}

Test(watch, a_worker_that_has_ended_is_none_that_hangs)
{
    struct ct_watch_rank ranks[2];
    struct ct_watch watch = {.floor_ms = 1000};
    struct ct_watch_sample samples[2] = {
        {.alive = false, .view = {.opened = true, .section = CT_RECORD_STEP}},
        {.alive = true, .view = {.opened = false, .section = CT_RECORD_STEP}}}; /* not native */
    struct ct_watch_verdict verdict;

    ct_watch_begin(&watch, ranks, 2, 0, 2);
    for (uint64_t now = 500; now < 100000; now += 500)
        cr_assert_not(ct_watch_poll(&watch, now, samples, &verdict));
}

/* ---- patience and words ---------------------------------------------------------------------- */

Test(watch, patience_is_five_times_the_99th_percentile_of_the_last_steps)
{
    static uint32_t us[CT_WATCH_STEPS];
    struct ct_watch watch = {.floor_ms = 1000};
    struct ct_watch_sample one = {
        .alive = true, .view = {.opened = true, .section = CT_RECORD_STEP}, .durations_us = us};

    cr_assert_eq(ct_watch_patience_ms(&watch, &one), CT_WATCH_LONG_MS, "no step is known");
    for (uint32_t i = 0; i < CT_WATCH_STEPS; i++)
        us[i] = 1000 * (i * 73 % CT_WATCH_STEPS + 1); /* 1 .. 200 ms in disorder */
    one.duration_count = CT_WATCH_STEPS;
    cr_assert_eq(ct_watch_patience_ms(&watch, &one), 1000u, "5 x 198 ms is less");
    watch.floor_ms = 1;
    cr_assert_eq(ct_watch_patience_ms(&watch, &one), 5 * 198u);
    one.duration_count = 1;
    cr_assert_eq(ct_watch_patience_ms(&watch, &one), 5 * 1u);
}

Test(watch, a_verdict_reads_as_one_sentence)
{
    const struct ct_record_call call = {
        .id = 7, .name = "world/1", .text = "all_reduce of 650 F32"};
    const struct {
        struct ct_watch_verdict verdict;
        enum ct_record_section section;
        const char *text;
    } rows[] = {
        {{.kind = CT_WATCH_MISSING, .call = call, .number = 9, .waiting = 2, .silent_ms = 31240},
         CT_RECORD_STEP,
         "rank 3 (host b, pid 4711) hangs: it has not entered all_reduce of 650 F32 (number 9 of "
         "group world/1), where 2 ranks of this node wait for it; no sign of life for 31.2 s, in "
         "step 18"},
        {{.kind = CT_WATCH_NOT_IN_COLLECTIVE, .silent_ms = 30000},
         CT_RECORD_CHECKPOINT,
         "rank 3 (host b, pid 4711) hangs outside any collective; no sign of life for 30.0 s, in "
         "the checkpoint of step 17"},
        {{.kind = CT_WATCH_STUCK, .call = call, .number = CT_RECORD_TRANSFER, .silent_ms = 30000},
         CT_RECORD_EVALUATE,
         "rank 3 (host b, pid 4711) hangs in all_reduce of 650 F32 (in group world/1); no sign of "
         "life for 30.0 s, in the evaluation after step 17"},
        {{.kind = CT_WATCH_STUCK, .call = call, .number = 9, .all_wait = true, .silent_ms = 30000},
         CT_RECORD_START,
         "rank 3 (host b, pid 4711) hangs in all_reduce of 650 F32 (number 9 of group world/1); "
         "every rank waits in one, and none gets on for 30.0 s, before its first step of the "
         "round"},
        {{.kind = CT_WATCH_WAITS, .call = call, .number = 9, .awaited = 5, .silent_ms = 30000},
         CT_RECORD_STEP,
         "all ranks of this node wait in all_reduce of 650 F32 (number 9 of group world/1) for "
         "rank 5 (host c), for 30.0 s now, in step 18"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const struct ct_watch_names names = {.rank = 3,
                                             .host = "b",
                                             .pid = 4711,
                                             .section = rows[i].section,
                                             .step = 17,
                                             .awaited_host = "c"};
        struct ct_buf text;

        ct_buf_init(&text, 0);
        ct_watch_print(&rows[i].verdict, &names, &text);
        cr_assert_str_eq(ct_buf_str(&text), rows[i].text, "%s", ct_buf_str(&text));
        ct_buf_deinit(&text);
    }
}
