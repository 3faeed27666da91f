/* What the worker's record costs a call: nanoseconds, the best of many batches.
 *
 *   at once      the peers are there: entered, completed
 *   waits        it also has to wait: since when, one beat, over (the clock is read anyway)
 *   says what    a wait longer than 100 us also says which call it is, once a doze of 10 ms
 *   recorded     the peers are there, and the call goes into the flight recorder: an entry, started
 *                at once, over; two looks at the processor's clock
 *   queued       the same of a call that starts later: three looks
 *   step         a step begins: section, number, duration, with the clock */
#include "base/assert.h"
#include "base/clock.h"
#include "wire/worker_record.h"

#include <stdio.h>
#include <unistd.h>

enum { BATCHES = 200, CALLS = 20000 };

static struct ct_worker_record *record;
static struct ct_record_group *group;

static void at_once(uint64_t i)
{
    ct_worker_record_entered(group, i);
    ct_worker_record_completed(group, i);
}

static void waits(uint64_t i)
{
    ct_worker_record_entered(group, i);
    ct_worker_record_wait(group, i, i);
    ct_worker_record_heartbeat(group, i, i, 1);
    ct_worker_record_woke(group);
    ct_worker_record_completed(group, i);
}

static void says_what(uint64_t i)
{
    waits(i);
    ct_worker_record_text(group, "all_reduce of 1000000 F32, SUM, INVARIANT");
}

static const struct ct_flight_call call = {
    .what = {1000, 4}, .number = 7, .group = 3, .site = 0x401000};

static void recorded(uint64_t i)
{
    uint64_t began = ct_ticks(), turn = ct_flight_begin(&record->flight, &call, false, began);

    at_once(i);
    ct_flight_end(&record->flight, turn, ct_ticks_since(began), false);
}

static void queued(uint64_t i)
{
    uint64_t began = ct_ticks(), turn = ct_flight_begin(&record->flight, &call, true, began);

    ct_flight_start(&record->flight, turn, ct_ticks_since(began));
    at_once(i);
    ct_flight_end(&record->flight, turn, ct_ticks_since(began), false);
}

static void step(uint64_t i)
{
    ct_worker_record_at(record, CT_RECORD_STEP, i, ct_clock_mono_ns(&ct_clock_system));
}

static const struct {
    const char *name;
    void (*run)(uint64_t i);
} rows[] = {{"at once", at_once},   {"waits", waits},   {"says what", says_what},
            {"recorded", recorded}, {"queued", queued}, {"step", step}};

int main(void)
{
    const struct ct_worker_record *seen;
    struct ct_error err = {0};
    int fd;

    if (ct_worker_record_new(&seen, &fd, &err) != 0 ||
        ct_worker_record_open(fd, &record, &err) != 0) {
        (void)fprintf(stderr, "record: %s\n", err.text);
        return 1;
    }
    group = ct_worker_record_group_new(record, "world/1", 0, 1);
    for (size_t row = 0; row < CT_COUNT(rows); row++) {
        double best = 1e9;

        for (int batch = 0; batch < BATCHES; batch++) {
            uint64_t start = ct_clock_mono_ns(&ct_clock_system);
            for (uint64_t i = 1; i <= CALLS; i++)
                rows[row].run(i);
            double ns = (double)(ct_clock_mono_ns(&ct_clock_system) - start) / CALLS;
            best = CT_MIN(best, ns);
        }
        (void)printf("%-10s %6.1f ns\n", rows[row].name, best);
    }
    ct_worker_record_unmap(record);
    ct_worker_record_unmap(seen);
    (void)close(fd);
    return 0;
}
