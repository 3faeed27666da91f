/* Parts of a ROUND become a struct ct_round; its strings lie in the assembly's arena. */
#include "rendezvous/core/assembly.h"

#include <inttypes.h>
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
        .self = UINT32_MAX,
        .node_count = part->node_count,
        .world = part->world,
    };
    assembly->nodes = ct_arena_array(&assembly->arena, room, sizeof(*assembly->nodes));
    return assembly->nodes != NULL;
}

static bool add_node(struct ct_assembly *assembly, const struct ct_wire_node *node,
                     struct ct_offer self)
{
    struct ct_arena *arena = &assembly->arena;
    uint32_t index = assembly->received++;
    struct ct_round_node *to = &assembly->nodes[index];
    *to = (struct ct_round_node){
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
        assembly->round.self = index;
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

/* Do the nodes' ranks follow each other up to the world's size? And this node has what it offered.
 */
static bool is_sound(const struct ct_round *round, struct ct_offer self)
{
    uint64_t world = 0;
    for (uint32_t i = 0; i < round->node_count; i++) {
        if (round->nodes[i].slots == 0 || round->nodes[i].first_rank != world)
            return false;
        world += round->nodes[i].slots;
    }
    return world == round->world && round->own->slots == self.slots && round->base_node >= -1;
}

int ct_assembly_add(struct ct_assembly *assembly, const struct ct_msg_round *part,
                    struct ct_offer self, struct ct_error *err)
{
    if (part->first == 0 && part->node_count > 0 && part->node_count <= CT_WIRE_NODES) {
        if (!begin(assembly, part, part->node_count))
            return ct_error_set(err, CT_ENOMEM, "no memory for a round of %u nodes",
                                part->node_count);
    }
    const struct ct_round *round = &assembly->round;
    if (part->generation != round->generation || part->first != assembly->received)
        return 0;
    if (part->node_count != round->node_count || part->nodes.count == 0 ||
        part->nodes.count > round->node_count - assembly->received)
        return ct_error_set(err, CT_EPROTOCOL, "the parts of round %" PRIu64 " do not fit together",
                            part->generation);
    for (uint32_t i = 0; i < part->nodes.count; i++)
        if (!add_node(assembly, &part->nodes.data[i], self))
            return ct_error_set(err, CT_ENOMEM, "no memory for a round of %u nodes",
                                part->node_count);
    if (assembly->received < round->node_count)
        return 0;
    if (round->self == UINT32_MAX || round->base_node >= (int32_t)round->node_count)
        return ct_error_set(err, CT_EPROTOCOL, "round %" PRIu64 " does not list this node",
                            part->generation);
    assembly->round.nodes = assembly->round.head = assembly->nodes;
    assembly->round.own = &assembly->nodes[round->self];
    return is_sound(round, self) ? 1 : contradiction(round, err);
}

int ct_assembly_short(struct ct_assembly *assembly, const struct ct_msg_round *m,
                      struct ct_offer self, struct ct_error *err)
{
    if (!begin(assembly, m, m->nodes.count))
        return ct_error_set(err, CT_ENOMEM, "no memory for a round");
    struct ct_round *round = &assembly->round;
    for (uint32_t i = 0; i < m->nodes.count; i++) {
        const struct ct_wire_node *node = &m->nodes.data[i];
        if (!add_node(assembly, node, self))
            return ct_error_set(err, CT_ENOMEM, "no memory for a round");
        if (round->self == i)
            round->own = &assembly->nodes[i];
        if (node->index == 0)
            round->head = &assembly->nodes[i];
    }
    if (round->own == NULL || round->head == NULL || round->base_node >= (int32_t)m->node_count)
        return ct_error_set(err, CT_EPROTOCOL, "round %" PRIu64 " does not list this node",
                            m->generation);
    round->self = m->nodes.data[round->self].index;
    bool fits = round->own->slots == self.slots &&
                (uint64_t)round->own->first_rank + self.slots <= round->world;
    return fits && round->self < m->node_count && round->base_node >= -1
               ? 1
               : contradiction(round, err);
}
