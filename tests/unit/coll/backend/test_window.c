/* Windows of waves: ranks in a drawn order, each with all moves of its window listed, over queues
 * that hold what was sent; no data moves. */
#include "backend/message/in_flight.h"

#include "base/assert.h"
#include "base/rng.h"
#include "chance.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(window, .timeout = 30);

enum { WORLD_MAX = 9, LISTED = 2048 };

struct end {
    struct ct_wave wave;
    struct ct_window window;
    struct ct_wave_move moves[2][WORLD_MAX][LISTED]; /* [out][peer], in the order of the listing */
    int listed[2][WORLD_MAX], over[2][WORLD_MAX];
    struct ct_call call;
};

static void list_waves(struct end *end)
{
    struct ct_wave_move move;
    size_t at;

    while (ct_window_list(&end->window, &at))
        for (int step = 0; ct_wave_next_move(&end->wave, &end->call, at, &step, &move);) {
            int *count = &end->listed[move.out][move.peer];

            cr_assert_lt(*count, LISTED);
            end->moves[move.out][move.peer][(*count)++] = move;
            ct_window_add(&end->window, move.turn);
        }
}

/* One move of this rank, if one can be made: sends always have room, what is received must have
 * been sent, in the turn that both expect. */
static bool make_move(struct end *ends, int rank, bool out, int peer)
{
    struct end *end = &ends[rank];
    int at = end->over[out][peer];
    const struct ct_wave_move *move = &end->moves[out][peer][at];

    if (at == end->listed[out][peer] || !ct_window_may_start(&end->window, move->turn) ||
        (!out && ends[peer].over[1][rank] <= at))
        return false;
    if (!out) {
        const struct ct_wave_move *sent = &ends[peer].moves[1][rank][at];

        cr_assert_eq(sent->turn.chunk, move->turn.chunk);
        cr_assert_eq(sent->turn.phase, move->turn.phase);
        cr_assert_eq(sent->bytes, move->bytes);
    }
    end->over[out][peer]++;
    ct_window_over(&end->window, move->turn);
    return true;
}

static bool advance(struct end *ends, int rank, int world, struct ct_rng *rng)
{
    struct ct_wave_turn turn;
    bool moved = false;

    for (int k = 0; k < 2 * world; k++) {
        int peer = (int)ct_rng_below(rng, (uint64_t)world);

        moved |= make_move(ends, rank, ct_rng_below(rng, 2) != 0, peer);
    }
    for (int peer = 0; peer < world; peer++)
        for (int out = 0; out < 2 && !moved; out++)
            moved = make_move(ends, rank, out != 0, peer);
    while (ct_window_next_due(&ends[rank].window, &turn))
        moved = true;
    list_waves(&ends[rank]);
    return moved;
}

static void run(const struct ct_call *call, int world, int direct_world, uint64_t seed)
{
    static struct end ends[WORLD_MAX];
    struct ct_rng rng;
    int through = 0, idle = 0;

    ct_rng_init(&rng, seed);
    memset(ends, 0, sizeof ends);
    for (int i = 0; i < world; i++) {
        struct ct_setup setup = {.rank = i,
                                 .size = world,
                                 .tuning = {.tcp_block_bytes = 64,
                                            .tcp_flat_bytes = 64,
                                            .tcp_chain_bytes = 128,
                                            .tcp_direct_world = (size_t)direct_world}};

        ends[i].call = *call;
        ends[i].call.rank = i;
        ends[i].call.size = world;
        CT_ASSERT(ct_call_complete(&ends[i].call));
        cr_assert_eq(ct_wave_init(&ends[i].wave, &setup), 0);
        cr_assert_eq(ct_window_init(&ends[i].window, &ends[i].wave), 0);
        ct_wave_begin(&ends[i].wave, &ends[i].call);
        ct_window_begin(&ends[i].window);
        list_waves(&ends[i]);
    }
    for (int turn = 0; through < world; turn = (turn + 1) % world) {
        int rank = rng_chance(&rng, 300) ? (int)ct_rng_below(&rng, (uint64_t)world) : turn;
        bool before = ct_window_is_through(&ends[rank].window);

        idle = advance(ends, rank, world, &rng) ? 0 : idle + 1;
        cr_assert_lt(idle, 100 * world, "nobody can go on");
        through += !before && ct_window_is_through(&ends[rank].window);
    }
    for (int i = 0; i < world; i++) {
        ct_window_deinit(&ends[i].window);
        ct_wave_deinit(&ends[i].wave);
    }
}

Test(window, ranks_in_any_order_finish_every_collective_move_for_move)
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
                               .dtype = CT_U8,
                               .reduce = CT_REDUCE_MAX,
                               .peer = (int)ct_rng_below(&rng, (uint64_t)world),
                               .count = ct_rng_below(&rng, 2000),
                               .send = in,
                               .recv = out};

        run(&call, world, rng_chance(&rng, 500) ? 1 : WORLD_MAX, seed);
    }
}

Test(window, a_chunk_takes_over_slots_once_their_last_chunk_is_two_phases_ahead)
{
    struct ct_wave wave = {.chunks = CT_WAVE_SETS + 1, .schedule = {.phases = 3, .capacity = 64}};
    struct ct_window window;
    size_t at;

    cr_assert_eq(ct_window_init(&window, &wave), 0);
    ct_window_begin(&window);
    window.base = CT_WAVE_SETS - 3; /* the waves before are through, but for chunk 0's: none */
    window.end = window.base;
    while (ct_window_list(&window, &at))
        ;
    cr_assert_eq(window.end, window.base + CT_WINDOW_WAVES);
    cr_assert(ct_window_may_start(&window, (struct ct_wave_turn){CT_WAVE_SETS - 1, 0}));
    cr_assert_not(ct_window_may_start(&window, (struct ct_wave_turn){CT_WAVE_SETS, 0}));
    ct_window_deinit(&window);
}
