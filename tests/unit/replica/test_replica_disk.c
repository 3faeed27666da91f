/* The record with disks: what a process may forget, and what it may not. */
#include "world.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct world *world;

static void set_up(void)
{
    world = malloc(sizeof *world);
}

static void tear_down(void)
{
    world_deinit(world);
    free(world);
}

TestSuite(replica_disk, .init = set_up, .fini = tear_down, .timeout = 120);

static void begin(uint64_t seed, uint32_t voters)
{
    world_init(world, seed, voters);
    world_begin(world);
}

static void run_ms(uint64_t ms)
{
    world_run(world, world->now_ms + ms);
    cr_assert_eq(world->broken[0], '\0', "%s", world->broken);
}

static void restart_all(void)
{
    for (size_t i = 0; i < world->node_count; i++)
        if (!world->nodes[i].replica)
            world_restart(world, i);
}

static void expect_puts(void)
{
    uint64_t confirmed = world->puts_confirmed;

    run_ms(4000);
    cr_assert_gt(world->puts_confirmed, confirmed);
}

Test(replica_disk, peers_with_empty_disks_elect_one)
{
    begin(1, 3);
    run_ms(3000);
    cr_assert_geq(world_leader(world), 0);
    expect_puts();
}

Test(replica_disk, one_alone_leads_nobody)
{
    begin(2, 3);
    world_kill(world, 1, false);
    world_kill(world, 2, false);
    run_ms(10000);
    cr_assert_lt(world_leader(world), 0);
}

Test(replica_disk, all_killed_at_once_know_what_was_confirmed)
{
    begin(3, 3);
    for (int i = 0; i < 20; i++) {
        run_ms(3000);
        world_power_cut(world);
        restart_all();
    }
    expect_puts();
    world->quiet = true;
    run_ms(1000);
    cr_assert(world_agrees(world), "%s", world->broken);
}

Test(replica_disk, a_leader_leads_in_a_higher_term_after_its_restart)
{
    begin(4, 3);
    run_ms(3000);
    int leader = world_leader(world);
    uint64_t term = ct_replica_term(world->nodes[leader].replica);

    world_power_cut(world);
    restart_all();
    run_ms(3000);
    leader = world_leader(world);
    cr_assert_geq(leader, 0);
    cr_assert_gt(ct_replica_term(world->nodes[leader].replica), term);
}

Test(replica_disk, a_leader_whose_disk_is_full_gives_way_to_another)
{
    begin(5, 3);
    run_ms(3000);
    int leader = world_leader(world);

    world->disks[leader].is_full = true;
    run_ms(4000);
    cr_assert(ct_replica_is_mute(world->nodes[leader].replica));
    cr_assert_geq(world_leader(world), 0);
    cr_assert_neq(world_leader(world), leader);
    expect_puts();
    world->disks[leader].is_full = false;
    run_ms(3000);
    world->quiet = true;
    run_ms(1000);
    cr_assert(!ct_replica_is_mute(world->nodes[leader].replica));
    cr_assert(world_agrees(world), "%s", world->broken);
}

Test(replica_disk, with_two_full_disks_of_three_nothing_is_confirmed_until_there_is_room)
{
    begin(6, 3);
    run_ms(3000);
    world->disks[0].is_full = world->disks[1].is_full = true;
    run_ms(3000);
    uint64_t confirmed = world->puts_confirmed;
    run_ms(10000);
    cr_assert_eq(world->puts_confirmed, confirmed);
    world->disks[0].is_full = world->disks[1].is_full = false;
    run_ms(3000);
    expect_puts();
}

Test(replica_disk, files_are_replaced_as_they_grow)
{
    begin(7, 3);
    run_ms(60000);
    for (size_t i = 0; i < world->node_count; i++) {
        cr_assert_gt(world->disks[i].replacements, 5);
        cr_assert_lt(world->disks[i].bytes.size, 1 << 16);
    }
}

/* ---- a disk that is replaced ---- */

static void replace_disk(size_t node)
{
    world_kill(world, node, false);
    disk_deinit(&world->disks[node]);
    memset(world->vote_of[node], 0, sizeof world->vote_of[node]);
    world_restart(world, node);
}

Test(replica_disk, a_new_disk_gets_the_record_from_the_one_that_leads)
{
    begin(9, 3);
    run_ms(10000);
    int leader = world_leader(world);
    size_t other = ((size_t)leader + 1) % 3;

    replace_disk(other);
    cr_assert(ct_replica_is_new(world->nodes[other].replica));
    run_ms(3000);
    cr_assert_eq(world_leader(world), leader);
    cr_assert(!ct_replica_is_new(world->nodes[other].replica));
    world->quiet = true;
    run_ms(1000);
    cr_assert(world_agrees(world), "%s", world->broken);
}

Test(replica_disk, with_a_new_disk_nobody_is_elected_who_may_lack_what_was_confirmed)
{
    begin(10, 3);
    run_ms(5000);
    size_t leader = (size_t)world_leader(world), with = (leader + 1) % 3,
           without = (leader + 2) % 3;

    world_kill(world, without, false); /* it lacks what follows */
    expect_puts();
    world_kill(world, leader, false);
    replace_disk(with);
    world_restart(world, without);
    run_ms(20000);
    cr_assert_lt(world_leader(world), 0, "it leads without what was confirmed");
    world_restart(world, leader);
    run_ms(5000);
    cr_assert_eq(world_leader(world), (int)leader);
    expect_puts();
    world->quiet = true;
    run_ms(1000);
    cr_assert(world_agrees(world), "%s", world->broken);
}

/* ---- what is read ---- */

static const struct ct_replica_server peers[] = {{11, "a:1"}, {12, "b:1"}, {13, "c:1"}};

static void send_nothing(void *context, uint64_t to, const char *address,
                         const struct ct_message *message)
{
    (void)context, (void)to, (void)address, (void)message;
}

static struct ct_replica *new_replica(uint64_t id, uint64_t era)
{
    static const struct ct_replica_io io = {.send = send_nothing};
    const struct ct_replica_options options = {
        .id = id, .era = era, .address = "a:1", .io = &io, .voters = peers, .voter_count = 3};

    return ct_replica_new(&options);
}

static int append(void *context, const void *record, size_t size)
{
    struct ct_buf *to = context;
    unsigned char head[4];

    ct_put_le32(head, (uint32_t)size);
    (void)ct_buf_append(to, head, sizeof head);
    return ct_buf_append(to, record, size);
}

static int restore(struct ct_replica *replica, const struct ct_buf *from, struct ct_error *err)
{
    int code = 0;

    for (size_t at = 0; code == 0 && at < from->size;) {
        size_t size = ct_get_le32(from->data + at);

        code = ct_replica_restore(replica, from->data + at + 4, size, err);
        at += 4 + size;
    }
    return code;
}

Test(replica_disk, a_record_that_is_read_twice_changes_nothing)
{
    struct ct_buf once, again;
    struct ct_error err = {0};

    begin(8, 3);
    run_ms(3000);
    ct_buf_init(&once, 0);
    ct_buf_init(&again, 0);
    const struct ct_replica *from = world->nodes[world_leader(world)].replica;
    struct ct_replica_options options = {.id = world->nodes[world_leader(world)].id,
                                         .era = world->era,
                                         .address = "n0",
                                         .io = &world->nodes[0].io,
                                         .voters = peers,
                                         .voter_count = 3};
    cr_assert_eq(ct_replica_emit(from, append, &once), 0);
    cr_assert_eq(ct_replica_emit(from, append, &again), 0);
    (void)ct_buf_append(&again, once.data, once.size);
    struct ct_replica *anew = ct_replica_new(&options);
    cr_assert_eq(restore(anew, &again, &err), 0, "%s", err.text);
    ct_buf_clear(&again);
    cr_assert_eq(ct_replica_emit(anew, append, &again), 0);
    cr_assert_eq(again.size, once.size);
    cr_assert_eq(memcmp(again.data, once.data, once.size), 0);
    ct_replica_free(anew);
    ct_buf_deinit(&once);
    ct_buf_deinit(&again);
}

Test(replica_disk, the_record_of_another_peer_or_of_none_is_refused_with_a_sentence)
{
    struct ct_replica *own = new_replica(11, 5), *other = new_replica(12, 5);
    struct ct_error err = {0};
    struct ct_buf bytes;

    world_init(world, 1, 1);
    ct_buf_init(&bytes, 0);
    cr_assert_eq(ct_replica_emit(own, append, &bytes), 0);
    cr_assert_eq(restore(own, &bytes, &err), 0);
    cr_assert_eq(restore(other, &bytes, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "a:1,b:1,c:1"), "%s", err.text);
    cr_assert_eq(ct_replica_restore(own, "\1\0\0", 3, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "folder of its own"), "%s", err.text);
    for (size_t size = 1; size < bytes.size - 4; size++) /* cut short: an error, no crash */
        cr_assert(ct_replica_restore(own, bytes.data + 4, size, &err) != 0 || size > 60);
    ct_replica_free(own);
    ct_replica_free(other);
    ct_buf_deinit(&bytes);
}

/* ---- seeds ---- */

/* Faults, then peace: somebody leads, all agree, puts are confirmed again. */
static void seed_holds(uint64_t seed)
{
    uint64_t confirmed;

    begin(seed, seed % 3 == 0 ? 5 : 3);
    world_run(world, 2000);
    for (int i = 0; i < 100 && !world->broken[0]; i++) {
        world_fault(world);
        world_run(world, world->now_ms + ct_rng_below(&world->rng, 2500));
        for (size_t k = 0; k < world->node_count; k++)
            if (!world->nodes[k].replica && ct_rng_below(&world->rng, 2) == 0)
                world_restart(world, k);
    }
    world_end_faults(world);
    world_run(world, world->now_ms + 10000);
    confirmed = world->puts_confirmed;
    world_run(world, world->now_ms + 5000);
    if (!world->broken[0] && world->puts_confirmed == confirmed)
        snprintf(world->broken, sizeof world->broken, "seed %llu: nothing is confirmed any more",
                 (unsigned long long)seed);
    world->quiet = true;
    world_run(world, world->now_ms + 2000);
    if (!world->broken[0])
        world_agrees(world);
}

Test(replica_disk, faults_never_break_the_record)
{
    const char *seeds = getenv("CTRUN_REPLICA_SEEDS"), *first = getenv("CTRUN_REPLICA_FIRST");
    uint64_t begin_at = first ? strtoull(first, NULL, 10) : 1;
    uint64_t count = seeds ? strtoull(seeds, NULL, 10) : 60;
    uint64_t elections = 0, kills = 0, confirmed = 0, torn = 0, replaced = 0;

    for (uint64_t seed = begin_at; seed < begin_at + count; seed++) {
        seed_holds(seed);
        if (world->broken[0])
            world_print(world);
        cr_expect_eq(world->broken[0], '\0', "%s", world->broken);
        elections += world->elections;
        kills += world->kills;
        confirmed += world->puts_confirmed;
        for (size_t i = 0; i < world->node_count; i++) {
            torn += world->disks[i].torn;
            replaced += world->disks[i].replacements;
        }
        world_deinit(world);
    }
    world_init(world, 1, 1);
    cr_log_info("%llu seeds: %llu elections, %llu kills, %llu puts, %llu torn writes, %llu files",
                (unsigned long long)count, (unsigned long long)elections, (unsigned long long)kills,
                (unsigned long long)confirmed, (unsigned long long)torn,
                (unsigned long long)replaced);
}
