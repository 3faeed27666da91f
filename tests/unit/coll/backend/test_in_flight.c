/* In-flight windows: ranks in a drawn order, each with all moves of its window listed, done queues
 * that hold what was sent; no data moves. */
#include "backend/message/in_flight.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "chance.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(in_flight, .timeout = 30);

enum { WORLD_MAX = 19, LISTED = 1024 };

struct end {
    struct ct_pipelined pipelined;
    struct ct_in_flight window;
    struct ct_pipelined_move moves[2][WORLD_MAX]
                                  [LISTED]; /* [out][peer], in the order of the listing */
    int listed[2][WORLD_MAX], done[2][WORLD_MAX];
    struct ct_call call;
};

static void list_steps(struct end *end)
{
    struct ct_pipelined_move move;
    size_t at;

    while (ct_in_flight_next_step(&end->window, &at))
        for (int step = 0; ct_pipelined_next_move(&end->pipelined, &end->call, at, &step, &move);) {
            int *count = &end->listed[move.out][move.peer];

            cr_assert_lt(*count, LISTED);
            end->moves[move.out][move.peer][(*count)++] = move;
            ct_in_flight_add_move(&end->window, move.work);
        }
}

/* One move of this rank, if one can be made: sends always have room, what is received must have
 * been sent, in the work that both expect. */
static bool make_move(struct end *ends, int rank, bool out, int peer)
{
    struct end *end = &ends[rank];
    int at = end->done[out][peer];
    const struct ct_pipelined_move *move = &end->moves[out][peer][at];

    if (at == end->listed[out][peer] || !ct_in_flight_may_start(&end->window, move->work) ||
        (!out && ends[peer].done[1][rank] <= at))
        return false;
    if (!out) {
        const struct ct_pipelined_move *sent = &ends[peer].moves[1][rank][at];

        cr_assert_eq(sent->work.chunk, move->work.chunk);
        cr_assert_eq(sent->work.phase, move->work.phase);
        cr_assert_eq(sent->bytes, move->bytes);
    }
    end->done[out][peer]++;
    ct_in_flight_move_done(&end->window, move->work);
    return true;
}

static bool advance(struct end *ends, int rank, int world, struct ct_rng *rng)
{
    struct ct_chunk_phase work;
    bool moved = false;

    for (int k = 0; k < 2 * world; k++) {
        int peer = (int)ct_rng_below(rng, (uint64_t)world);

        moved |= make_move(ends, rank, ct_rng_below(rng, 2) != 0, peer);
    }
    for (int peer = 0; peer < world; peer++)
        for (int out = 0; out < 2 && !moved; out++)
            moved = make_move(ends, rank, out != 0, peer);
    while (ct_in_flight_next_ready(&ends[rank].window, &work))
        moved = true;
    list_steps(&ends[rank]);
    return moved;
}

static void run(const struct ct_call *call, int world, int direct_world, uint64_t seed)
{
    static struct end ends[WORLD_MAX];
    struct ct_rng rng;
    int complete = 0, idle = 0;

    size_t sizes[4];

    ct_rng_init(&rng, seed);
    for (size_t i = 0; i < CT_COUNT(sizes); i++)
        sizes[i] = 1u << ct_rng_below(&rng, 12);
    memset(ends, 0, sizeof ends);
    for (int i = 0; i < world; i++) {
        struct ct_setup setup = {.rank = i,
                                 .size = world,
                                 .tuning = {.tcp_block_bytes = 64,
                                            .tcp_flat_bytes = 64,
                                            .tcp_message_bytes = 64,
                                            .tcp_doubling_bytes = sizes[0],
                                            .tcp_tree_bytes = sizes[1],
                                            .tcp_binomial_bytes = sizes[1],
                                            .tcp_halving_bytes = sizes[2],
                                            .tcp_chain_reduce_bytes = sizes[3],
                                            .tcp_bruck_bytes = 640,
                                            .tcp_gather_bytes = 640,
                                            .tcp_chain_bytes = 128,
                                            .tcp_direct_world = (size_t)direct_world}};

        ends[i].call = *call;
        ends[i].call.rank = i;
        ends[i].call.size = world;
        CT_ASSERT(ct_call_complete(&ends[i].call));
        cr_assert_eq(ct_pipelined_init(&ends[i].pipelined, &setup), 0);
        cr_assert_eq(ct_in_flight_init(&ends[i].window, &ends[i].pipelined), 0);
        ct_pipelined_begin(&ends[i].pipelined, &ends[i].call);
        ct_in_flight_begin(&ends[i].window);
        list_steps(&ends[i]);
    }
    for (int work = 0; complete < world; work = (work + 1) % world) {
        int rank = rng_chance(&rng, 300) ? (int)ct_rng_below(&rng, (uint64_t)world) : work;
        bool before = ct_in_flight_is_complete(&ends[rank].window);

        idle = advance(ends, rank, world, &rng) ? 0 : idle + 1;
        cr_assert_lt(idle, 100 * world, "no rank can advance");
        complete += !before && ct_in_flight_is_complete(&ends[rank].window);
    }
    for (int i = 0; i < world; i++) {
        ct_in_flight_deinit(&ends[i].window);
        ct_pipelined_deinit(&ends[i].pipelined);
    }
}

Test(in_flight, ranks_in_any_order_finish_every_collective_move_for_move)
{
    static const enum ct_call_kind kinds[] = {
        CT_CALL_BARRIER,        CT_CALL_BROADCAST,  CT_CALL_ALL_GATHER,
        CT_CALL_REDUCE_SCATTER, CT_CALL_ALL_REDUCE, CT_CALL_REDUCE,
        CT_CALL_GATHER,         CT_CALL_SCATTER,    CT_CALL_ALL_TO_ALL};
    static char in[1 << 16], out[1 << 16];
    struct ct_rng rng;

    ct_rng_init(&rng, 7);
    for (uint64_t seed = 1; seed <= 600; seed++) {
        int world = 2 + (int)ct_rng_below(&rng, WORLD_MAX - 1);
        struct ct_call call = {.kind = kinds[ct_rng_below(&rng, CT_COUNT(kinds))],
                               .dtype = rng_chance(&rng, 500) ? CT_U8 : CT_F32,
                               .reduce = CT_REDUCE_MAX,
                               .mode = (enum ct_reduce_mode)ct_rng_below(&rng, 3),
                               .peer = (int)ct_rng_below(&rng, (uint64_t)world),
                               .count = ct_rng_below(&rng, 800),
                               .send = in,
                               .recv = out};

        run(&call, world, rng_chance(&rng, 500) ? 1 : WORLD_MAX, seed);
    }
}

Test(in_flight, a_chunk_takes_over_slots_once_their_last_chunk_is_two_phases_ahead)
{
    struct ct_pipelined pipelined = {.chunks = CT_PIPELINED_SLOT_SETS + 1,
                                     .spacing = 1,
                                     .schedule = {.phases = 3, .held = 1, .capacity = 64}};
    struct ct_in_flight window;
    size_t at;

    cr_assert_eq(ct_in_flight_init(&window, &pipelined), 0);
    ct_in_flight_begin(&window);
    window.base =
        CT_PIPELINED_SLOT_SETS - 3; /* the waves before are complete, but for chunk 0's: none */
    window.end = window.base;
    while (ct_in_flight_next_step(&window, &at))
        ;
    cr_assert_eq(window.end, window.base + CT_IN_FLIGHT_STEPS);
    cr_assert(
        ct_in_flight_may_start(&window, (struct ct_chunk_phase){CT_PIPELINED_SLOT_SETS - 1, 0}));
    cr_assert_not(
        ct_in_flight_may_start(&window, (struct ct_chunk_phase){CT_PIPELINED_SLOT_SETS, 0}));
    ct_in_flight_deinit(&window);
}
