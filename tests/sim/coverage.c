/* What the runs reached, and what they never did.
 *
 * A core may make several moves in one step, so they are counted where they are
 * made: the linker puts these functions in front of the core's own (--wrap in
 * the Makefile). */
#include "agent_names.h"
#include "sim.h"

#include "base/assert.h"
#include "cmd/ctrun/agent/core/agent_turn.h"
#include "rendezvous/core/core_state.h"

#include <inttypes.h>
#include <stdio.h>

static struct coverage *watched; /* of the run under way: there is one at a time */

void sim_watch_moves(struct coverage *coverage)
{
    watched = coverage;
}

/* NOLINTBEGIN(bugprone-reserved-identifier) the linker's names */
void __real_ct_rdzv_set_phase(struct ct_rdzv *job, enum ct_rdzv_phase phase);
void __wrap_ct_rdzv_set_phase(struct ct_rdzv *job, enum ct_rdzv_phase phase);
void __real_ct_rdzv_set_member(struct ct_rdzv *job, struct ct_rdzv_member *member,
                               enum ct_rdzv_member_state state);
void __wrap_ct_rdzv_set_member(struct ct_rdzv *job, struct ct_rdzv_member *member,
                               enum ct_rdzv_member_state state);

void __real_agent_enter(struct agent_core *core, enum agent_phase phase);
void __wrap_agent_enter(struct agent_core *core, enum agent_phase phase);
void __real_agent_become(struct agent_core *core, enum agent_life life);
void __wrap_agent_become(struct agent_core *core, enum agent_life life);

void __wrap_agent_enter(struct agent_core *core, enum agent_phase phase)
{
    if (watched != NULL)
        watched->phase_moves[core->phase][phase]++;
    __real_agent_enter(core, phase);
}

void __wrap_agent_become(struct agent_core *core, enum agent_life life)
{
    if (watched != NULL)
        watched->life_moves[core->life][life]++;
    __real_agent_become(core, life);
}

void __wrap_ct_rdzv_set_phase(struct ct_rdzv *job, enum ct_rdzv_phase phase)
{
    if (watched != NULL)
        watched->moves[job->phase][phase]++;
    __real_ct_rdzv_set_phase(job, phase);
}

void __wrap_ct_rdzv_set_member(struct ct_rdzv *job, struct ct_rdzv_member *member,
                               enum ct_rdzv_member_state state)
{
    if (watched != NULL)
        watched->member_moves[member->state][state]++;
    __real_ct_rdzv_set_member(job, member, state);
}
/* NOLINTEND(bugprone-reserved-identifier) */

void sim_coverage_add(struct coverage *sum, const struct coverage *more)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)more;
    for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
        to[i] += from[i];
}

/* ---- printing ---- */

struct move {
    bool is_member;
    unsigned from;
    unsigned long long to; /* a bit set */
};

#define TO(name) | 1u << CT_RDZV_##name
static const struct move allowed[] = {
#define CT_RDZV_PHASE(name, successors) {false, CT_RDZV_##name, 0 successors},
#define CT_RDZV_MEMBER(name, successors) {true, CT_RDZV_##name, 0 successors},
#include "rendezvous/core/states.def"
#undef CT_RDZV_PHASE
#undef CT_RDZV_MEMBER
};
#undef TO

static const char *name_of(bool is_member, unsigned state)
{
    return is_member ? ct_rdzv_member_state_name(state) : ct_rdzv_phase_name(state);
}

static void print_moves(const struct coverage *c)
{
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        const struct move *move = &allowed[i];
        for (unsigned to = 0; to < 32; to++) {
            if ((move->to >> to & 1u) == 0)
                continue;
            uint64_t count =
                move->is_member ? c->member_moves[move->from][to] : c->moves[move->from][to];
            (void)printf("  %-9s -> %-9s %" PRIu64 "%s\n", name_of(move->is_member, move->from),
                         name_of(move->is_member, to), count, count == 0 ? "   NEVER" : "");
        }
    }
}

/* Of the agent's core: its moves, and how often it decided what. */
static void print_agent(const struct coverage *c)
{
    static const struct {
        enum agent_phase from, to;
    } phases[] = {
#define PHASE_MOVE(from, to) {AGENT_##from, AGENT_##to},
#include "cmd/ctrun/agent/core/agent.def"
    };
    static const struct {
        enum agent_life from, to;
    } lives[] = {
#define LIFE_MOVE(from, to) {AGENT_##from, AGENT_##to},
#include "cmd/ctrun/agent/core/agent.def"
    };
    static const char *const actions[] = {
#define ACTION(name, handler, text) #name,
#include "cmd/ctrun/agent/core/agent.def"
    };
    for (size_t i = 0; i < CT_COUNT(phases); i++) {
        uint64_t count = c->phase_moves[phases[i].from][phases[i].to];
        (void)printf("  %-9s -> %-9s %" PRIu64 "%s\n", agent_phase_name(phases[i].from),
                     agent_phase_name(phases[i].to), count, count == 0 ? "   NEVER" : "");
    }
    for (size_t i = 0; i < CT_COUNT(lives); i++) {
        uint64_t count = c->life_moves[lives[i].from][lives[i].to];
        (void)printf("  %-9s -> %-9s %" PRIu64 "%s\n", agent_life_name(lives[i].from),
                     agent_life_name(lives[i].to), count, count == 0 ? "   NEVER" : "");
    }
    for (size_t i = 0; i < CT_COUNT(actions); i++)
        (void)printf("  %-15s %" PRIu64 "\n", actions[i], c->actions[i]);
}

void sim_coverage_print(const struct coverage *c)
{
    static const char *const faults[] = {
#define FAULT(name, rounds, what) #name,
#include "faults.def"
#undef FAULT
    };
    (void)printf("hours %.1f, events %" PRIu64 ", rounds %" PRIu64 ", steps %" PRIu64
                 ", published %" PRIu64 ", faults %" PRIu64 ", daemon starts %" PRIu64
                 ", fenced %" PRIu64 "\n",
                 (double)c->virtual_ms / 3600e3, c->events, c->rounds, c->steps, c->published,
                 c->faults, c->restarts, c->takeovers);
    (void)printf("embedded: led %" PRIu64 ", founded anew %" PRIu64 ", lost %" PRIu64
                 ", rebuilt %" PRIu64 ", partial %" PRIu64 ", lossy %" PRIu64
                 ", second founded behind a cut %" PRIu64 ", united %" PRIu64
                 ", ended early %" PRIu64 ", taken over %" PRIu64 ", not %" PRIu64
                 ", waits at the end %" PRIu64 "\n",
                 c->leads, c->anew, c->lost, c->rebuilt, c->partial, c->lossy, c->second, c->united,
                 c->ended, c->taken_over, c->not_taken, c->waits);
    print_moves(c);
    print_agent(c);
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        (void)printf("  %-14s %" PRIu64 "\n", faults[kind], c->fault_kinds[kind]);
    for (unsigned type = 0; type < sizeof(c->messages) / sizeof(c->messages[0]); type++)
        if (c->messages[type] > 0)
            (void)printf("  %-14s %" PRIu64 "\n", ct_wire_name(type), c->messages[type]);
    (void)printf("  nodes closed %" PRIu64 ", released %" PRIu64 ", failed %" PRIu64 "\n",
                 c->ends[NODE_CLOSED], c->ends[NODE_RELEASED], c->ends[NODE_FAILED]);
}
