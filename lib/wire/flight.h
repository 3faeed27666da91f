/* The flight recorder: the last 4,096 calls of a worker, kept where its agent can read them whether
 * the worker runs, hangs, is stopped or is dead: behind its record (worker_record.h), in the same
 * shared memory.
 *
 *      turn % 4096      one entry, 64 bytes
 *      +------+-------+------+--------------+------+--------+---------+-------+
 *      | turn | count | what | number group | site | queued | started | ended |
 *      +------+-------+------+--------------+------+--------+---------+-------+
 *        2 t + 1 while it is written, 2 t after: a reader that finds another value before and
 *        after has no entry. `started` and `ended` come later, as one store each, and carry the
 *        low bits of their turn: a late one never applies to an entry that replaced its own.
 *        Who finds the entry being written by a thread that sleeps meanwhile, or a later turn in
 *        it, leaves it alone: his own call is not kept.
 *
 * A call costs about 25 ns (tests/bench/record.c): a turn, the entry's claim, seven stores, two
 * reads of the processor's clock. Writers: any threads of the worker. Readers trust nothing:
 * whatever the memory contains, their results are well-formed. */
#ifndef CT_WIRE_FLIGHT_H
#define CT_WIRE_FLIGHT_H

#include "base/ticks.h"
#include "wire/signature.h"

#include <stdatomic.h>

enum { CT_FLIGHT_ENTRIES = 4096 };

struct ct_flight_entry {
    _Atomic uint64_t turn, count, what;
    _Atomic uint64_t call; /* number in its group (low half), group (high half) */
    _Atomic uint64_t site; /* return address in the worker */
    _Atomic uint64_t queued, started, ended;
};

struct ct_flight_ring {
    _Alignas(64) _Atomic uint64_t turns; /* calls so far; their turns are 1 to this */
    _Alignas(64) struct ct_flight_entry entries[CT_FLIGHT_ENTRIES];
};

_Static_assert(sizeof(struct ct_flight_entry) == 64, "a line of the cache");

enum ct_flight_state { CT_FLIGHT_QUEUED, CT_FLIGHT_STARTED, CT_FLIGHT_COMPLETED, CT_FLIGHT_FAILED };

/* One call as it was read. Of a send or recv `what` says which of the two, with the other end as
 * peer, and `number` is 0. */
struct ct_flight_call {
    uint64_t turn;
    struct ct_signature what;
    uint32_t number, group; /* the low halves of what the worker's record has of them */
    uint64_t site;
    enum ct_flight_state state;
    uint64_t queued, started, ended; /* ticks; 0: not yet */
};

/* ---- worker ---- */

/* The low bit says that the call failed, the next 16 are those of the turn's lap, the rest is time
 * since it was queued. */
static inline uint64_t ct_flight_stamp(uint64_t turn, uint64_t passed, bool failed)
{
    uint64_t lap = (turn / CT_FLIGHT_ENTRIES + 1) & 0xffff;

    return passed << 17 | lap << 1 | failed;
}

/* Claim the entry of a turn; false: it is not this turn's. */
static inline bool ct_flight_claim(struct ct_flight_entry *entry, uint64_t turn)
{
    uint64_t before = atomic_load_explicit(&entry->turn, memory_order_relaxed);

    return (before & 1) == 0 && before < turn << 1 &&
           atomic_compare_exchange_strong_explicit(&entry->turn, &before, turn << 1 | 1,
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* Open an entry for the call, to be closed by its turn; readers skip it until then. */
static inline uint64_t ct_flight_open(struct ct_flight_ring *ring,
                                      const struct ct_flight_call *call, uint64_t now)
{
    uint64_t turn = atomic_fetch_add_explicit(&ring->turns, 1, memory_order_relaxed) + 1;
    struct ct_flight_entry *entry = &ring->entries[turn % CT_FLIGHT_ENTRIES];

    if (!ct_flight_claim(entry, turn))
        return turn;
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&entry->count, call->what.count, memory_order_relaxed);
    atomic_store_explicit(&entry->what, call->what.rest, memory_order_relaxed);
    atomic_store_explicit(&entry->call, (uint64_t)call->group << 32 | call->number,
                          memory_order_relaxed);
    atomic_store_explicit(&entry->site, call->site, memory_order_relaxed);
    atomic_store_explicit(&entry->queued, now, memory_order_relaxed);
    return turn;
}

static inline void ct_flight_close(struct ct_flight_ring *ring, uint64_t turn)
{
    struct ct_flight_entry *entry = &ring->entries[turn % CT_FLIGHT_ENTRIES];

    if (atomic_load_explicit(&entry->turn, memory_order_relaxed) == (turn << 1 | 1))
        atomic_store_explicit(&entry->turn, turn << 1, memory_order_release);
}

/* The call of `turn`, queued at `queued`, starts; is over. */
static inline void ct_flight_start(struct ct_flight_ring *ring, uint64_t turn, uint64_t passed)
{
    atomic_store_explicit(&ring->entries[turn % CT_FLIGHT_ENTRIES].started,
                          ct_flight_stamp(turn, passed, false), memory_order_relaxed);
}

static inline void ct_flight_end(struct ct_flight_ring *ring, uint64_t turn, uint64_t passed,
                                 bool failed)
{
    atomic_store_explicit(&ring->entries[turn % CT_FLIGHT_ENTRIES].ended,
                          ct_flight_stamp(turn, passed, failed), memory_order_relaxed);
}

/* A call begins at `now` (ct_ticks); its turn. It starts at once or, `waits`, later. */
static inline uint64_t ct_flight_begin(struct ct_flight_ring *ring,
                                       const struct ct_flight_call *call, bool waits, uint64_t now)
{
    uint64_t turn = ct_flight_open(ring, call, now);

    if (!waits)
        ct_flight_start(ring, turn, 0);
    ct_flight_close(ring, turn);
    return turn;
}

/* One that started at once, at `queued`, and is over: all of it in one. */
static inline void ct_flight_whole(struct ct_flight_ring *ring, const struct ct_flight_call *call,
                                   uint64_t queued, uint64_t passed)
{
    uint64_t turn = ct_flight_open(ring, call, queued);

    ct_flight_start(ring, turn, 0);
    ct_flight_end(ring, turn, passed, false);
    ct_flight_close(ring, turn);
}

/* Ask for the line of the next entry, which another core, or a far cache, may have. */
static inline void ct_flight_expect(const struct ct_flight_ring *ring)
{
    uint64_t turn = atomic_load_explicit(&ring->turns, memory_order_relaxed) + 1;

    __builtin_prefetch(&ring->entries[turn % CT_FLIGHT_ENTRIES], 1);
}

/* Change the call site of the newest call of this thread. */
static inline void ct_flight_site(struct ct_flight_ring *ring, uint64_t turn, uint64_t site)
{
    struct ct_flight_entry *entry = &ring->entries[turn % CT_FLIGHT_ENTRIES];

    if (atomic_load_explicit(&entry->turn, memory_order_relaxed) == turn << 1)
        atomic_store_explicit(&entry->site, site, memory_order_relaxed);
}

/* ---- reader ---- */

/* Return the number of calls so far, which is the turn of the newest. */
uint64_t ct_flight_turns(const struct ct_flight_ring *ring);

/* Read the call of `turn`. False: it was overwritten, is being written, or was never complete. */
bool ct_flight_read(const struct ct_flight_ring *ring, uint64_t turn,
                    struct ct_flight_call *ret_call);

/* Return "queued", "started", "completed", "failed". */
const char *ct_flight_state_name(enum ct_flight_state state);

#endif
