/* Parts of a ROUND become a struct ct_round; its strings lie in the assembly's arena. */
#include "rendezvous/core/assembly.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 32 << 20 };

struct ct_assembly *ct_assembly_new(void)
{
    struct ct_assembly *assembly = calloc(1, sizeof(*assembly));
    if (assembly != NULL)
        ct_arena_init(&assembly->arena, ARENA_BYTES);
    return assembly;
}

void ct_assembly_free(struct ct_assembly *assembly)
{
    if (assembly == NULL)
        return;
    ct_arena_deinit(&assembly->arena);
    free(assembly);
}

/* Begin with the first part, with room for `room` nodes; false without memory. */
static bool begin(struct ct_assembly *assembly, const struct ct_msg_round *part, uint32_t room)
{
    ct_arena_deinit(&assembly->arena);
    ct_arena_init(&assembly->arena, ARENA_BYTES);
    assembly->received = 0;
    assembly->round = (struct ct_round){
        .generation = part->generation,
        .epoch = part->epoch,
        .restarts = part->restart_count,
        .lineage = part->lineage,
        .base_step = part->base_step,
        .base_digest = part->base_digest,
        .base_node = part->base_node,
        .published_generation = part->published_generation,
        .published_step = part->published_step,
        .node_count = part->node_count,
        .world = part->world,
    };
    assembly->nodes = ct_arena_array(&assembly->arena, room, sizeof(*assembly->nodes));
    return assembly->nodes != NULL;
}

static bool add_node(struct ct_assembly *assembly, const struct ct_wire_node *node, uint32_t index,
                     struct ct_offer self)
{
    struct ct_arena *arena = &assembly->arena;
    struct ct_round_node *to = &assembly->nodes[assembly->received++];
    *to = (struct ct_round_node){
        .index = index,
        .id = node->incarnation,
        .host = ct_arena_strdup(arena, node->host),
        .address = ct_arena_strdup(arena, node->address),
        .role = ct_arena_strdup(arena, node->role),
        .slots = node->slots,
        .first_rank = node->first_rank,
        .port = node->port,
        .survivor = node->survivor != 0,
    };
    if (ct_id_equal(node->incarnation, self.id))
        assembly->round.own = to;
    return to->host != NULL && to->address != NULL && to->role != NULL;
}

/* A daemon that counts otherwise than this node: whose ranks are whose would not be known. */
static int contradiction(const struct ct_round *round, struct ct_error *err)
{
    return ct_error_set(err, CT_EPROTOCOL,
                        "the ranks of round %" PRIu64 " do not fit its nodes: install the same "
                        "version of ctrun on all nodes",
                        round->generation);
}

/* Is each node where the runs have it? And this one has what it offered. Nodes that are all there
 * come in their order, and the runs are made from them. */
static bool is_sound(const struct ct_assembly *assembly, struct ct_offer self)
{
    const struct ct_round *round = &assembly->round;
    uint32_t first = 0;

    if (!ct_node_runs_fit(round->runs, round->node_count, round->world))
        return false;
    for (uint32_t i = 0; i < assembly->received; i++) {
        const struct ct_round_node *node = &assembly->nodes[i];
        if (round->nodes == NULL &&
            (node->index >= round->node_count ||
             ct_node_runs_find(round->runs, node->index, &first)->slots != node->slots))
            return false;
        if (node->first_rank != first)
            return false;
        first += node->slots;
    }
    return round->own->slots == self.slots;
}

/* All parts are there: 1, or the error. */
static int complete(struct ct_assembly *assembly, struct ct_offer self, struct ct_error *err)
{
    struct ct_round *round = &assembly->round;
    for (uint32_t i = 0; i < assembly->received; i++) {
        const struct ct_round_node *node = &assembly->nodes[i];
        if (node->index == 0)
            round->head = node;
        if (round->base_node >= 0 && node->index == (uint32_t)round->base_node)
            round->base = node;
    }
    if (round->own == NULL || round->head == NULL)
        return ct_error_set(err, CT_EPROTOCOL, "round %" PRIu64 " does not list this node",
                            round->generation);
    round->self = round->own->index;
    bool has_base = round->base_node == -1 || round->base != NULL;
    bool has_names = round->nodes != NULL || round->self != 0;
    return has_base && has_names && is_sound(assembly, self) ? 1 : contradiction(round, err);
}

static bool copy_runs(struct ct_assembly *assembly, const struct ct_msg_round *m)
{
    struct ct_wire_run *runs = ct_arena_array(&assembly->arena, m->runs.count, sizeof(*runs));
    for (uint32_t i = 0; i < m->runs.count && runs != NULL; i++) {
        runs[i] = m->runs.data[i];
        runs[i].role = ct_arena_strdup(&assembly->arena, m->runs.data[i].role);
        if (runs[i].role == NULL)
            return false;
    }
    assembly->round.runs = (struct ct_node_runs){runs, m->runs.count};
    return runs != NULL;
}

/* The runs of nodes that are all there; false without memory. */
static bool find_runs(struct ct_assembly *assembly)
{
    struct ct_round *round = &assembly->round;
    struct ct_wire_run *runs = ct_arena_array(&assembly->arena, round->node_count, sizeof(*runs));
    if (runs == NULL)
        return false;
    for (uint32_t i = 0; i < round->node_count; i++)
        ct_node_runs_add(runs, &round->runs.count, round->nodes[i].slots, round->nodes[i].role);
    round->runs.data = runs;
    return true;
}

static int no_memory(uint32_t nodes, struct ct_error *err)
{
    return ct_error_set(err, CT_ENOMEM, "no memory for a round of %u nodes", nodes);
}

int ct_assembly_add(struct ct_assembly *assembly, const struct ct_msg_round *part,
                    struct ct_offer self, struct ct_error *err)
{
    if (part->first == 0 && part->node_count > 0 && part->node_count <= CT_WIRE_NODES) {
        if (!begin(assembly, part, part->node_count))
            return no_memory(part->node_count, err);
    }
    const struct ct_round *round = &assembly->round;
    if (part->generation != round->generation || part->first != assembly->received)
        return 0;
    if (part->node_count != round->node_count || part->nodes.count == 0 ||
        part->nodes.count > round->node_count - assembly->received)
        return ct_error_set(err, CT_EPROTOCOL, "the parts of round %" PRIu64 " do not fit together",
                            part->generation);
    for (uint32_t i = 0; i < part->nodes.count; i++)
        if (!add_node(assembly, &part->nodes.data[i], assembly->received, self))
            return no_memory(part->node_count, err);
    if (assembly->received < round->node_count)
        return 0;
    assembly->round.nodes = assembly->nodes;
    return find_runs(assembly) ? complete(assembly, self, err) : no_memory(part->node_count, err);
}

int ct_assembly_short(struct ct_assembly *assembly, const struct ct_msg_round *m,
                      struct ct_offer self, struct ct_error *err)
{
    if (!begin(assembly, m, m->nodes.count) || !copy_runs(assembly, m))
        return no_memory(m->node_count, err);
    for (uint32_t i = 0; i < m->nodes.count; i++)
        if (!add_node(assembly, &m->nodes.data[i], m->nodes.data[i].index, self))
            return no_memory(m->node_count, err);
    return complete(assembly, self, err);
}

const char *ct_round_name(const struct ct_round *round, uint32_t node, char room[32])
{
    if (round->nodes != NULL && node < round->node_count)
        return round->nodes[node].host;
    (void)snprintf(room, 32, "node %u", node);
    return room;
}
