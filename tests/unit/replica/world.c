#include "world.h"

#include "base/assert.h"
#include "rendezvous/replica/replica_state.h"
#include "wire/wire.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void broken(struct world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void broken(struct world *world, const char *format, ...)
{
    va_list arguments;

    if (world->broken[0])
        return;
    va_start(arguments, format);
    int length = snprintf(world->broken, sizeof world->broken,
                          "seed %llu, %llu ms: ", (unsigned long long)world->seed,
                          (unsigned long long)world->now_ms);
    vsnprintf(world->broken + length, sizeof world->broken - (size_t)length, format, arguments);
    va_end(arguments);
}

struct node *world_node_of(struct world *world, uint64_t id)
{
    for (size_t i = 0; i < world->node_count; i++)
        if (world->nodes[i].replica && world->nodes[i].id == id)
            return &world->nodes[i];
    return NULL;
}

static size_t index_of(const struct world *world, const struct node *node)
{
    return (size_t)(node - world->nodes);
}

static uint64_t clock_of(const struct node *node)
{
    return node->world->now_ms + (uint64_t)node->clock_ms;
}

/* ---- the network ---- */

static void fly(struct world *world, struct flying *message)
{
    struct flying **at = &world->flying;

    while (*at && ((*at)->at_ms < message->at_ms ||
                   ((*at)->at_ms == message->at_ms && (*at)->order < message->order)))
        at = &(*at)->next;
    message->next = *at;
    *at = message;
}

static void send_once(struct node *from, uint64_t to, const struct ct_buf *frame)
{
    struct world *world = from->world;
    struct flying *message = malloc(sizeof *message + frame->size);

    CT_ASSERT(message);
    message->at_ms = world->now_ms + 1 + ct_rng_below(&world->rng, 20 + world->slow_ms);
    message->order = world->next_order++;
    message->from = from->id;
    message->to = to;
    message->size = frame->size;
    memcpy(message->frame, frame->data, frame->size);
    fly(world, message);
}

/* One vote a term, whatever a process has forgotten. */
static void note_vote(struct node *from, const struct ct_message *message)
{
    struct world *world = from->world;
    uint64_t term = 0, to = from->id, *vote;

    if (message->type == CT_MSG_VOTE && !message->vote.pre)
        term = message->vote.term;
    if (message->type == CT_MSG_VOTED && message->voted.granted && !message->voted.pre) {
        term = message->voted.term;
        to = message->voted.sender.to;
    }
    if (!world->has_disks || term == 0)
        return;
    CT_ASSERT(term < WORLD_TERMS);
    vote = &world->vote_of[index_of(world, from)][term];
    if (*vote && *vote != to)
        broken(world, "node %zu votes twice in term %llu", index_of(world, from),
               (unsigned long long)term);
    *vote = to;
    from->votes = message->type == CT_MSG_VOTED;
}

static void on_send(void *context, uint64_t to, const char *address,
                    const struct ct_message *message)
{
    struct node *from = context;
    struct world *world = from->world;
    struct ct_buf frame;
    uint32_t copies = 1 + (ct_rng_below(&world->rng, 1000) < world->repeat);

    (void)address;
    if (from->is_cut)
        return;
    note_vote(from, message);
    ct_buf_init(&frame, 0);
    CT_ASSERT(ct_wire_encode(message, 0, &frame, NULL) == 0);
    for (uint32_t i = 0; i < copies; i++)
        if (ct_rng_below(&world->rng, 1000) >= world->loss)
            send_once(from, to, &frame);
    ct_buf_deinit(&frame);
    if (from->votes && ct_rng_below(&world->rng, 1000) < world->vote_kills) {
        from->is_cut = true; /* the vote is on its way */
        from->again_ms = world->now_ms + 1 + ct_rng_below(&world->rng, 50);
    }
    from->votes = false;
}

static void arrive(struct world *world, struct flying *message)
{
    struct node *to = world_node_of(world, message->to);
    struct node *from = world_node_of(world, message->from);
    struct ct_message decoded;
    struct ct_frame frame;
    struct ct_arena arena;

    if (!to || to->is_cut || (from && world->cut[index_of(world, from)][index_of(world, to)]))
        return;
    if (to->stopped_until_ms > world->now_ms) { /* it lies in the socket until then */
        struct flying *again = malloc(sizeof *again + message->size);

        CT_ASSERT(again);
        memcpy(again, message, sizeof *again + message->size);
        again->at_ms = to->stopped_until_ms;
        fly(world, again);
        return;
    }
    ct_arena_init(&arena, 64 << 20);
    frame = (struct ct_frame){.type = ct_get_le16(message->frame + 8),
                              .payload = message->frame + CT_WIRE_HEADER,
                              .size = (uint32_t)(message->size - CT_WIRE_HEADER)};
    CT_ASSERT(ct_wire_decode(&frame, &arena, &decoded, NULL) == 0);
    ct_replica_receive(to->replica, clock_of(to), &decoded);
    ct_arena_deinit(&arena);
}

/* ---- what replicas tell ---- */

static uint64_t put_in(const struct ct_replica *replica, size_t key)
{
    struct ct_bytes value;
    const char *found;
    char name[16];

    snprintf(name, sizeof name, "key%zu", key);
    for (size_t i = 0; ct_replica_entry(replica, i, &found, &value); i++)
        if (strcmp(found, name) == 0)
            return ct_get_le64(value.data);
    return 0;
}

static void on_lead(void *context, uint64_t term)
{
    struct node *node = context;
    struct world *world = node->world;

    CT_ASSERT(term < WORLD_TERMS);
    if (node->is_cut)
        return;
    if (world->leader_of[term] && world->leader_of[term] != node->life)
        broken(world, "two leaders in term %llu", (unsigned long long)term);
    if (node->leads)
        broken(world, "on_lead twice");
    world->leader_of[term] = node->life;
    world->elections++;
    node->leads = true;
    node->led_term = term;
    for (size_t key = 0; key < WORLD_KEYS; key++) {
        uint64_t put = put_in(node->replica, key), confirmed = 0;

        for (uint64_t before = 0; before < term; before++)
            confirmed = CT_MAX(confirmed, world->confirmed_in[before][key]);
        if (put < confirmed || put > world->issued[key]) {
            broken(world, "the leader of term %llu holds put %llu of key %zu, confirmed was %llu",
                   (unsigned long long)term, (unsigned long long)put, key,
                   (unsigned long long)confirmed);
        }
    }
}

static void on_follow(void *context)
{
    struct node *node = context;

    if (!node->leads && !node->is_cut)
        broken(node->world, "on_follow without on_lead");
    node->leads = false;
}

static void on_put(void *context, uint64_t number, int code)
{
    struct node *node = context;
    struct world *world = node->world;
    uint64_t key = world->key_of_put[number & 0xffff];

    if (code == 0 && !node->is_cut) {
        world->puts_confirmed++;
        world->confirmed[key] = CT_MAX(world->confirmed[key], number);
        world->confirmed_in[node->led_term][key] = number;
        if (put_in(node->replica, key) < number)
            broken(world, "put %llu is confirmed and not in the map", (unsigned long long)number);
    }
}

static void on_changed(void *context, int code)
{
    (void)context;
    (void)code;
}

/* ---- nodes ---- */

static int on_keep(void *context, const void *record, size_t size)
{
    struct node *node = context;
    struct world *world = node->world;

    return node->is_cut ? CT_EIO
                        : disk_keep(&world->disks[index_of(world, node)], &world->rng,
                                    node->replica, record, size, &node->is_cut);
}

static uint64_t id_of(size_t index)
{
    return 100 + index;
}

/* Begin with what is on its disk. */
static void resume(struct node *node, struct ct_replica_options *options)
{
    struct world *world = node->world;
    struct disk *disk = &world->disks[index_of(world, node)];
    struct ct_replica_server voters[CT_REPLICA_SERVERS];
    struct ct_error err = {0};

    options->voter_count = world->node_count;
    options->voters = voters;
    for (size_t i = 0; i < world->node_count; i++) {
        voters[i].id = id_of(i);
        snprintf(voters[i].address, sizeof voters[i].address, "n%zu", i);
    }
    node->replica = ct_replica_new(options);
    CT_ASSERT(node->replica);
    disk->is_full = false;
    if (disk_restore(disk, node->replica, &err))
        broken(world, "node %zu does not start: %s", index_of(world, node), err.text);
    ct_replica_begin(node->replica);
}

static void start(struct world *world, size_t index, bool founds)
{
    struct node *node = &world->nodes[index];
    struct ct_replica_options options;

    *node = (struct node){.world = world, .id = world->next_id++, .life = world->next_life++};
    if (world->has_disks)
        node->id = id_of(index);
    snprintf(node->address, sizeof node->address, "n%zu:%llu", index, (unsigned long long)node->id);
    node->io = (struct ct_replica_io){.context = node,
                                      .send = on_send,
                                      .on_lead = on_lead,
                                      .on_follow = on_follow,
                                      .on_put = on_put,
                                      .on_changed = on_changed,
                                      .keep = world->has_disks ? on_keep : NULL};
    options = (struct ct_replica_options){.id = node->id,
                                          .era = world->era,
                                          .address = node->address,
                                          .seed = world->seed,
                                          .now_ms = clock_of(node),
                                          .io = &node->io};
    if (world->has_disks) {
        resume(node, &options);
        return;
    }
    node->replica = ct_replica_new(&options);
    CT_ASSERT(node->replica);
    if (founds)
        ct_replica_found(node->replica);
    else
        ct_replica_join(node->replica);
}

void world_init(struct world *world, uint64_t seed, uint32_t voters)
{
    *world = (struct world){.seed = seed, .voters = voters, .era = 1};
    world->next_id = world->next_life = world->next_put = 1;
    world->node_count = WORLD_NODES;
    ct_rng_init(&world->rng, seed);
}

void world_deinit(struct world *world)
{
    for (size_t i = 0; i < world->node_count; i++) {
        ct_replica_free(world->nodes[i].replica);
        disk_deinit(&world->disks[i]);
    }
    while (world->flying) {
        struct flying *message = world->flying;

        world->flying = message->next;
        free(message);
    }
}

void world_found(struct world *world)
{
    for (size_t i = 0; i < world->node_count; i++)
        start(world, i, i == 0);
}

void world_begin(struct world *world)
{
    world->has_disks = true;
    world->node_count = world->voters;
    for (size_t i = 0; i < world->node_count; i++)
        start(world, i, false);
}

void world_kill(struct world *world, size_t index, bool known)
{
    uint64_t id = world->nodes[index].id;

    ct_replica_free(world->nodes[index].replica);
    world->nodes[index].replica = NULL;
    world->nodes[index].leads = false;
    world->kills++;
    for (size_t i = 0; known && i < world->node_count; i++) {
        struct node *other = &world->nodes[i];

        if (other->replica && !world->cut[index][i] && other->stopped_until_ms <= world->now_ms)
            ct_replica_died(other->replica, clock_of(other), id);
    }
}

void world_restart(struct world *world, size_t index)
{
    start(world, index, false);
}

void world_power_cut(struct world *world)
{
    for (size_t i = 0; i < world->node_count; i++)
        if (world->nodes[i].replica)
            world_kill(world, i, false);
}

/* Those whose power was cut are gone, and some come back soon. */
static void bury(struct world *world)
{
    for (size_t i = 0; i < world->node_count; i++) {
        const struct node *node = &world->nodes[i];

        if (node->is_cut && node->replica)
            world_kill(world, i, ct_rng_below(&world->rng, 2));
        if (!node->replica && node->again_ms && node->again_ms <= world->now_ms)
            start(world, i, false);
    }
}

/* ---- clients and the policy ---- */

int world_leader(const struct world *world)
{
    int leader = -1;

    for (int i = 0; i < (int)world->node_count; i++) {
        const struct node *node = &world->nodes[i];

        if (node->replica && node->leads &&
            (leader < 0 || node->led_term > world->nodes[leader].led_term))
            leader = i;
    }
    return leader;
}

static void put_something(struct world *world, struct node *node)
{
    uint64_t number = world->next_put, key = ct_rng_below(&world->rng, WORLD_KEYS);
    unsigned char value[64];
    char name[16];

    snprintf(name, sizeof name, "key%llu", (unsigned long long)key);
    memset(value, (int)number, sizeof value);
    ct_put_le64(value, number);
    world->key_of_put[number & 0xffff] = key;
    if (ct_replica_put(node->replica, clock_of(node), number, name, value,
                       8 + ct_rng_below(&world->rng, sizeof value - 8)) == 0) {
        world->next_put++;
        world->issued[key] = number;
    }
}

static uint32_t voters_of(const struct ct_replica *replica)
{
    struct ct_replica_server server;
    uint32_t count = 0;

    for (size_t i = 0; ct_replica_server(replica, i, &server); i++)
        count++;
    return count;
}

static bool knows(const struct ct_replica *replica, uint64_t id)
{
    struct ct_replica_server server;

    for (size_t i = 0; ct_replica_server(replica, i, &server); i++)
        if (server.id == id)
            return true;
    return false;
}

/* Remove what is dead, then add what lives, until there are as many voters as wanted. */
static void look_after_voters(struct world *world, struct node *leader)
{
    struct ct_replica_server server;

    for (size_t i = 0; ct_replica_server(leader->replica, i, &server); i++) {
        if (!world_node_of(world, server.id)) {
            ct_replica_remove(leader->replica, clock_of(leader), server.id);
            return;
        }
    }
    if (voters_of(leader->replica) >= world->voters)
        return;
    for (size_t i = 0; i < world->node_count; i++) {
        struct node *node = &world->nodes[i];

        if (node->replica && !knows(leader->replica, node->id)) {
            ct_replica_add(leader->replica, clock_of(leader), node->id, node->address);
            return;
        }
    }
}

static void act(struct world *world)
{
    for (size_t i = 0; !world->quiet && i < world->node_count; i++) {
        struct node *node = &world->nodes[i];

        if (!node->replica || !node->leads || node->stopped_until_ms > world->now_ms)
            continue;
        if (ct_rng_below(&world->rng, 4) == 0)
            put_something(world, node);
        if (!world->has_disks && ct_rng_below(&world->rng, 16) == 0)
            look_after_voters(world, node);
    }
}

/* ---- time ---- */

/* What two replicas hold as committed at one index is one entry. */
static void check(struct node *node)
{
    struct world *world = node->world;
    const struct ct_replica *replica = node->replica;

    for (uint64_t i = CT_MAX(node->checked, replica->log.base_index) + 1; i <= replica->committed;
         i++) {
        uint64_t term = replica_log_term(&replica->log, i);
        uint64_t *known = &world->term_of[i & 0xffff];

        if (*known && *known != term) {
            broken(world, "entry %llu is committed with term %llu, and on node %zu with %llu",
                   (unsigned long long)i, (unsigned long long)*known, index_of(world, node),
                   (unsigned long long)term);
        }
        *known = term;
    }
    node->checked = replica->committed;
    world->highest = CT_MAX(world->highest, replica->committed);
    if (replica->role == REPLICA_LEADER && replica->term > world->lead_checked) {
        world->lead_checked = replica->term;
        for (uint64_t i = replica->log.base_index + 1; i <= world->highest; i++) {
            uint64_t term = world->term_of[i & 0xffff]; /* 0: committed by one that died at once */

            if (term && (i > replica_log_last(&replica->log) ||
                         replica_log_term(&replica->log, i) != term)) {
                broken(world, "node %zu leads in term %llu without entry %llu of term %llu",
                       index_of(world, node), (unsigned long long)replica->term,
                       (unsigned long long)i, (unsigned long long)world->term_of[i & 0xffff]);
            }
        }
    }
}

void world_run(struct world *world, uint64_t until_ms)
{
    while (world->now_ms < until_ms && !world->broken[0]) {
        world->now_ms++;
        while (world->flying && world->flying->at_ms <= world->now_ms) {
            struct flying *message = world->flying;

            world->flying = message->next;
            arrive(world, message);
            free(message);
            bury(world);
        }
        for (size_t i = 0; i < world->node_count; i++) {
            struct node *node = &world->nodes[i];

            if (node->replica && !node->is_cut && node->stopped_until_ms <= world->now_ms &&
                ct_replica_deadline(node->replica) <= clock_of(node))
                ct_replica_tick(node->replica, clock_of(node));
            if (node->replica && !node->is_cut)
                check(node);
        }
        bury(world);
        if (world->now_ms % 8 == 0)
            act(world);
        bury(world);
    }
}

bool world_agrees(struct world *world)
{
    int leader = world_leader(world);

    if (leader < 0) {
        broken(world, "nobody leads");
        return false;
    }
    for (size_t i = 0; i < world->node_count; i++) {
        const struct node *node = &world->nodes[i];

        for (size_t key = 0;
             node->replica && knows(world->nodes[leader].replica, node->id) && key < WORLD_KEYS;
             key++) {
            uint64_t put = put_in(node->replica, key);

            if (put != put_in(world->nodes[leader].replica, key) || put < world->confirmed[key]) {
                broken(world, "node %zu holds put %llu of key %zu", i, (unsigned long long)put,
                       key);
                return false;
            }
        }
    }
    return true;
}
