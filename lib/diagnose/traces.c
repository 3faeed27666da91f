/* See traces.h. */
#include "diagnose/traces.h"

#include "base/assert.h"
#include "diagnose/sites.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ARENA_BYTES = 64 << 20 };

/* ---- room -------------------------------------------------------------------------------------*/

int ct_traces_init(struct ct_traces *traces, uint64_t generation, uint32_t room)
{
    size_t groups = (size_t)room * CT_RECORD_GROUPS;

    *traces = (struct ct_traces){.all = {.generation = generation}, .room = room};
    ct_arena_init(&traces->arena, ARENA_BYTES + room * (size_t)16384);
    traces->ranks = ct_arena_array(&traces->arena, room, sizeof *traces->ranks);
    traces->groups = ct_arena_array(&traces->arena, groups, sizeof *traces->groups);
    traces->calls = ct_arena_array(&traces->arena, groups * (CT_TRACES_CALLS + CT_TRACES_TRANSFERS),
                                   sizeof *traces->calls);
    if (traces->ranks == NULL || traces->groups == NULL || traces->calls == NULL) {
        ct_traces_deinit(traces);
        return CT_ENOMEM;
    }
    traces->all.ranks.data = traces->ranks;
    traces->all.groups.data = traces->groups;
    traces->all.calls.data = traces->calls;
    return 0;
}

void ct_traces_deinit(struct ct_traces *traces)
{
    ct_arena_deinit(&traces->arena);
    *traces = (struct ct_traces){.room = 0};
}

static const char *keep(struct ct_traces *traces, const char *text)
{
    const char *copy = ct_arena_strdup(&traces->arena, text);

    return copy != NULL ? copy : "";
}

/* ---- one rank ---------------------------------------------------------------------------------*/

/* The whole number of a call of which the recorder has the low half. */
static uint64_t whole_number(const struct ct_record_call *group, uint32_t low)
{
    return low == 0 ? 0 : group->entered - (uint32_t)((uint32_t)group->entered - low);
}

static uint64_t ms_between(uint64_t later_ns, uint64_t earlier_ns)
{
    return later_ns > earlier_ns ? (later_ns - earlier_ns) / 1000000 : 0;
}

/* Is this call one that says where ranks part? */
static bool is_near(const struct ct_record_call *group, uint64_t number)
{
    return number + 2 > group->completed && number <= group->completed + 2;
}

/* How many calls of a group were added. */
struct added {
    int collectives, transfers;
};

/* The group of the rank that a call was made in; NULL: it is freed. */
static const struct ct_record_call *group_of(const struct ct_record_view *view, uint32_t id)
{
    for (uint32_t i = 0; i < view->group_count; i++)
        if ((uint32_t)view->groups[i].id == id)
            return &view->groups[i];
    return NULL;
}

static void add_call(struct ct_traces *traces, const struct ct_trace_source *source,
                     struct ct_sites *sites, const struct ct_record_call *group,
                     const struct ct_flight_call *call, struct ct_ticks_pair now)
{
    traces->calls[traces->all.calls.count++] = (struct ct_wire_trace_call){
        .rank = source->rank,
        .group = group->id,
        .number = whole_number(group, call->number),
        .count = call->what.count,
        .what = call->what.rest,
        .state = (uint8_t)call->state,
        .age_ms = ms_between(now.ns, ct_worker_record_ns(source->record, now, call->queued)),
        .site = keep(traces, ct_sites_text(sites, call->site)),
    };
}

/* Add the calls of a rank that say where it parted from the others, the newest first. */
static void add_calls(struct ct_traces *traces, const struct ct_trace_source *source,
                      const struct ct_record_view *view, struct ct_ticks_pair now)
{
    const struct ct_flight_ring *ring = &source->record->flight;
    uint64_t turns = ct_flight_turns(ring);
    struct added added[CT_RECORD_GROUPS] = {{0, 0}};
    struct ct_sites sites;

    ct_sites_init(&sites, view);
    for (uint64_t i = 0; i < CT_FLIGHT_ENTRIES && i < turns; i++) {
        const struct ct_record_call *group;
        struct ct_flight_call call;

        if (!ct_flight_read(ring, turns - i, &call) || (group = group_of(view, call.group)) == NULL)
            continue;
        struct added *of = &added[group - view->groups];
        uint64_t number = whole_number(group, call.number);
        bool takes = number == 0 ? of->transfers < CT_TRACES_TRANSFERS
                                 : of->collectives < CT_TRACES_CALLS && is_near(group, number);
        if (!takes)
            continue;
        *(number == 0 ? &of->transfers : &of->collectives) += 1;
        add_call(traces, source, &sites, group, &call, now);
    }
}

/* The longest time between the end of a call and the begin of the next, of the last ones. */
static uint64_t usual_gap_ms(const struct ct_worker_record *record, struct ct_ticks_pair now)
{
    uint64_t turns = ct_flight_turns(&record->flight), next = 0, longest_ms = 0;

    for (uint64_t i = 0; i < CT_TRACES_GAPS && i < turns; i++) {
        struct ct_flight_call call;

        if (!ct_flight_read(&record->flight, turns - i, &call))
            return longest_ms;
        if (next != 0 && call.ended != 0)
            longest_ms =
                CT_MAX(longest_ms, ms_between(next, ct_worker_record_ns(record, now, call.ended)));
        next = ct_worker_record_ns(record, now, call.queued);
    }
    return longest_ms;
}

static void add_groups(struct ct_traces *traces, const struct ct_trace_source *source,
                       const struct ct_record_view *view, struct ct_ticks_pair now)
{
    uint32_t before = traces->all.calls.count;

    add_calls(traces, source, view, now);
    for (uint32_t i = 0; i < view->group_count; i++) {
        const struct ct_record_call *group = &view->groups[i];
        uint64_t waited_ms = group->waiting != 0 ? ms_between(now.ns, group->since_ns) : 0;

        for (uint32_t k = before; group->failure != 0 && k < traces->all.calls.count; k++)
            if (traces->calls[k].group == group->id && traces->calls[k].state == CT_FLIGHT_FAILED)
                waited_ms = CT_MAX(waited_ms, traces->calls[k].age_ms);
        traces->groups[traces->all.groups.count++] = (struct ct_wire_trace_group){
            .rank = source->rank,
            .id = group->id,
            .member = group->rank,
            .size = group->size,
            .entered = group->entered,
            .completed = group->completed,
            .waiting = group->waiting,
            .waited_ms = waited_ms,
            .awaited = group->awaited,
            .failure = group->failure,
            .name = keep(traces, group->name),
        };
    }
}

int ct_traces_add(struct ct_traces *traces, const struct ct_trace_source *source,
                  struct ct_ticks_pair now)
{
    struct ct_record_view view;

    if (traces->all.ranks.count == traces->room)
        return CT_ENOMEM;
    struct ct_wire_trace_rank *row = &traces->ranks[traces->all.ranks.count++];
    *row = (struct ct_wire_trace_rank){
        .rank = source->rank,
        .pid = source->pid,
        .life = (uint8_t)source->life,
        .status = source->status,
        .host = keep(traces, source->host),
        .doing = keep(traces, source->doing),
    };
    if (source->record == NULL)
        return 0;
    ct_worker_record_read(source->record, &view);
    if (!view.opened)
        return 0;
    row->step = view.step;
    row->silent_ms = ms_between(now.ns, ct_worker_record_alive_ns(source->record, now));
    row->gap_ms = usual_gap_ms(source->record, now);
    add_groups(traces, source, &view, now);
    return 0;
}

/* ---- between agents ---------------------------------------------------------------------------*/

/* Their strings lie in the arena from now on, not in the frame. */
static int add_rows(struct ct_traces *traces, const struct ct_msg_traces *from)
{
    struct ct_msg_traces *all = &traces->all;
    size_t groups = (size_t)traces->room * CT_RECORD_GROUPS;

    if (from->ranks.count > traces->room - all->ranks.count ||
        from->groups.count > groups - all->groups.count ||
        from->calls.count > groups * (CT_TRACES_CALLS + CT_TRACES_TRANSFERS) - all->calls.count)
        return CT_ELIMIT;
    for (uint32_t i = 0; i < from->ranks.count; i++) {
        struct ct_wire_trace_rank *row = &traces->ranks[all->ranks.count++];

        *row = from->ranks.data[i];
        row->host = keep(traces, row->host);
        row->doing = keep(traces, row->doing);
    }
    for (uint32_t i = 0; i < from->groups.count; i++) {
        struct ct_wire_trace_group *row = &traces->groups[all->groups.count++];

        *row = from->groups.data[i];
        row->name = keep(traces, row->name);
    }
    for (uint32_t i = 0; i < from->calls.count; i++) {
        struct ct_wire_trace_call *row = &traces->calls[all->calls.count++];

        *row = from->calls.data[i];
        row->site = keep(traces, row->site);
    }
    return 0;
}

int ct_traces_add_frame(struct ct_traces *traces, const void *frame, size_t size)
{
    struct ct_frame_reader reader;
    struct ct_frame view;
    struct ct_message message;
    struct ct_arena arena;
    struct ct_error err = {0};

    ct_frame_reader_init(&reader, CT_FROM_NODE, CT_WIRE_VALUE);
    ct_arena_init(&arena, ARENA_BYTES);
    int code = ct_frame_reader_push(&reader, frame, size);
    if (code == 0)
        code = ct_frame_reader_next(&reader, &view, &err) == 1 && view.type == CT_MSG_TRACES
                   ? ct_wire_decode(&view, &arena, &message, &err)
                   : CT_EPROTOCOL;
    if (code == 0 && message.traces.generation != traces->all.generation)
        code = CT_EPROTOCOL;
    if (code == 0)
        code = add_rows(traces, &message.traces);
    ct_arena_deinit(&arena);
    ct_frame_reader_deinit(&reader);
    return code;
}

int ct_traces_print_frame(const struct ct_traces *traces, struct ct_buf *to)
{
    const struct ct_message message = {.type = CT_MSG_TRACES, .traces = traces->all};
    struct ct_error err = {0};

    return ct_wire_encode(&message, 0, to, &err);
}
