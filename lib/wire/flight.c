/* See flight.h. */
#include "wire/flight.h"

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)

uint64_t ct_flight_turns(const struct ct_flight_ring *ring)
{
    uint64_t turns = atomic_load_explicit(&ring->turns, memory_order_acquire);

    return turns > UINT64_MAX / 4 ? 0 : turns; /* no worker has made so many */
}

/* When the stamp is this turn's: true, how long after its begin, and whether it failed. */
static bool read_stamp(uint64_t stamp, uint64_t turn, uint64_t *ret_passed, bool *ret_failed)
{
    if (stamp >> 1 == 0 || (stamp & 0x1fffe) != ct_flight_stamp(turn, 0, false))
        return false;
    *ret_passed = stamp >> 17;
    *ret_failed = (stamp & 1) != 0;
    return true;
}

static void read_times(const struct ct_flight_entry *entry, struct ct_flight_call *call)
{
    uint64_t passed;
    bool failed;

    call->queued = GET(entry->queued);
    call->state = CT_FLIGHT_QUEUED;
    if (read_stamp(GET(entry->started), call->turn, &passed, &failed)) {
        call->started = call->queued + passed;
        call->state = CT_FLIGHT_STARTED;
    }
    if (read_stamp(GET(entry->ended), call->turn, &passed, &failed)) {
        call->ended = call->queued + passed;
        call->state = failed ? CT_FLIGHT_FAILED : CT_FLIGHT_COMPLETED;
    }
}

bool ct_flight_read(const struct ct_flight_ring *ring, uint64_t turn,
                    struct ct_flight_call *ret_call)
{
    const struct ct_flight_entry *entry = &ring->entries[turn % CT_FLIGHT_ENTRIES];
    struct ct_signature_fields fields;

    if (turn == 0 || turn > UINT64_MAX / 4 ||
        atomic_load_explicit(&entry->turn, memory_order_acquire) != turn << 1)
        return false;
    uint64_t number_group = GET(entry->call);
    struct ct_flight_call call = {
        .turn = turn,
        .what = {GET(entry->count), GET(entry->what)},
        .number = (uint32_t)number_group,
        .group = (uint32_t)(number_group >> 32),
        .site = GET(entry->site),
    };
    read_times(entry, &call);
    atomic_thread_fence(memory_order_acquire);
    if (GET(entry->turn) != turn << 1 || !ct_signature_unpack(call.what.rest, &fields))
        return false;
    *ret_call = call;
    return true;
}

const char *ct_flight_state_name(enum ct_flight_state state)
{
    static const char *const names[] = {
        [CT_FLIGHT_QUEUED] = "queued",
        [CT_FLIGHT_STARTED] = "started",
        [CT_FLIGHT_COMPLETED] = "completed",
        [CT_FLIGHT_FAILED] = "failed",
    };

    return names[state];
}
