/* What befalls the cluster, and what each replica believes. */
#include "world.h"

#include "rendezvous/replica/replica_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Does a majority of the voters live without `index`, in whatever any replica believes? */
static bool may_die(struct world *world, size_t index)
{
    for (size_t i = 0; i < world->node_count; i++) {
        struct ct_replica_server server;
        uint32_t voters = 0, living = 0;

        if (!world->nodes[i].replica)
            continue;
        for (size_t k = 0; ct_replica_server(world->nodes[i].replica, k, &server); k++) {
            struct node *node = world_node_of(world, server.id);

            voters++;
            living += node && node != &world->nodes[index];
        }
        if (voters && 2 * living <= voters)
            return false;
    }
    return true;
}

void world_end_faults(struct world *world)
{
    memset(world->cut, 0, sizeof world->cut);
    world->loss = 0;
    world->repeat = 0;
    world->slow_ms = 0;
    world->vote_kills = 0;
    for (size_t i = 0; i < world->node_count; i++) {
        world->nodes[i].stopped_until_ms = 0;
        world->disks[i].is_full = false;
        world->disks[i].cut_after = 0;
        if (!world->nodes[i].replica)
            world_restart(world, i);
    }
}

/* Each node is on one side of the cut. */
static void cut_in_two(struct world *world)
{
    bool side[WORLD_NODES];

    for (size_t i = 0; i < world->node_count; i++)
        side[i] = ct_rng_below(&world->rng, 2);
    for (size_t i = 0; i < world->node_count; i++)
        for (size_t k = 0; k < world->node_count; k++)
            world->cut[i][k] = side[i] != side[k];
}

static void trace(struct world *world, const char *what, size_t index)
{
    if (getenv("CTRUN_REPLICA_TRACE")) {
        printf("%llu ms: %s %zu\n", (unsigned long long)world->now_ms, what, index);
        world_print(world);
    }
}

void world_fault(struct world *world)
{
    size_t index = ct_rng_below(&world->rng, world->node_count);
    int leader = world_leader(world);

    if (leader >= 0 && ct_rng_below(&world->rng, 2))
        index = (size_t)leader;
    switch (ct_rng_below(&world->rng, world->has_disks ? 13 : 8)) {
    case 0:
    case 1:
        if (world->nodes[index].replica && (world->has_disks || may_die(world, index))) {
            trace(world, "kill", index);
            world_kill(world, index, ct_rng_below(&world->rng, 2));
        }
        break;
    case 2:
        cut_in_two(world);
        break;
    case 3: /* one direction */
        world->cut[index][ct_rng_below(&world->rng, world->node_count)] = true;
        break;
    case 4:
        world->nodes[index].stopped_until_ms = world->now_ms + ct_rng_below(&world->rng, 5000);
        break;
    case 5:
        world->nodes[index].clock_ms += (int64_t)ct_rng_below(&world->rng, 3000);
        break;
    case 6:
        world->loss = (uint32_t)ct_rng_below(&world->rng, 300);
        world->repeat = (uint32_t)ct_rng_below(&world->rng, 300);
        break;
    case 8:
        world->disks[index].is_full = !world->disks[index].is_full;
        break;
    case 9:
        world->disks[index].cut_after = 1 + (uint32_t)ct_rng_below(&world->rng, 4);
        break;
    case 10:
        world_power_cut(world);
        break;
    case 11:
        world->slow_ms = (uint32_t)ct_rng_below(&world->rng, 800);
        break;
    case 12:
        world->vote_kills = (uint32_t)ct_rng_below(&world->rng, 700);
        break;
    default:
        world_end_faults(world);
        break;
    }
}

void world_print(struct world *world)
{
    for (size_t i = 0; i < world->node_count; i++) {
        struct node *node = &world->nodes[i];
        struct ct_replica_server server;

        if (!node->replica) {
            printf("node %zu: dead\n", i);
            continue;
        }
        printf("node %zu: id %llu term %llu leader %llu leads %d clock %lld, voters", i,
               (unsigned long long)node->id, (unsigned long long)ct_replica_term(node->replica),
               (unsigned long long)ct_replica_leader(node->replica), node->leads,
               (long long)node->clock_ms);
        for (size_t k = 0; ct_replica_server(node->replica, k, &server); k++) {
            printf(" %llu%s", (unsigned long long)server.id,
                   world_node_of(world, server.id) ? "" : "(dead)");
        }
        for (uint64_t k = node->replica->log.base_index + 1, term = 0;
             k <= replica_log_last(&node->replica->log); k++) {
            if (replica_log_term(&node->replica->log, k) != term) {
                term = replica_log_term(&node->replica->log, k);
                printf(" [%llu:%llu]", (unsigned long long)k, (unsigned long long)term);
            }
        }
        printf(" last %llu committed %llu\n",
               (unsigned long long)replica_log_last(&node->replica->log),
               (unsigned long long)node->replica->committed);
    }
}
