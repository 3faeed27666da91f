/* A job in words: names of states, one line an event or action, one sentence for who waits. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_SHOWN = 6 };

const char *ct_rdzv_phase_name(enum ct_rdzv_phase phase)
{
    static const char *const names[CT_RDZV_PHASES] = {
#define CT_RDZV_PHASE(name, successors) #name,
#include "rendezvous/core/states.def"
#undef CT_RDZV_PHASE
    };
    return (unsigned)phase < CT_RDZV_PHASES ? names[phase] : "?";
}

const char *ct_rdzv_member_state_name(enum ct_rdzv_member_state state)
{
    static const char *const names[CT_RDZV_MEMBER_STATES] = {
#define CT_RDZV_MEMBER(name, successors) #name,
#include "rendezvous/core/states.def"
#undef CT_RDZV_MEMBER
    };
    return (unsigned)state < CT_RDZV_MEMBER_STATES ? names[state] : "?";
}

const char *ct_rdzv_reason_name(enum ct_rdzv_reason reason)
{
    static const char *const names[CT_RDZV_REASONS] = {
        [CT_RDZV_REASON_FORM] = "first round",
        [CT_RDZV_REASON_FAILURE] = "a worker failed",
        [CT_RDZV_REASON_LOST] = "a node was lost",
        [CT_RDZV_REASON_GROW] = "nodes joined",
        [CT_RDZV_REASON_LEAVE] = "a node leaves",
        [CT_RDZV_REASON_RESTART] = "the daemon restarted",
    };
    return (unsigned)reason < CT_RDZV_REASONS ? names[reason] : "?";
}

/* ---- what it waits for ---- */

/* A list of names that stops in time: "a, b, c and 97 more". */
struct names {
    char *text;
    size_t room;
    size_t count;
};

static void add_text(char *text, size_t room, const char *more)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, room - used, "%s", more);
}

static void add_name(struct names *names, const char *name)
{
    if (names->count < NAMES_SHOWN) {
        if (names->count > 0)
            add_text(names->text, names->room, ", ");
        add_text(names->text, names->room, name);
    }
    names->count++;
}

static void end_names(struct names *names)
{
    char more[48];
    if (names->count <= NAMES_SHOWN)
        return;
    (void)snprintf(more, sizeof(more), " and %zu more", names->count - NAMES_SHOWN);
    add_text(names->text, names->room, more);
}

static void add_members(const struct ct_rdzv *job, unsigned states, char *text, size_t room)
{
    struct names names = {.text = text, .room = room};
    for (size_t i = 0; i < job->capacity; i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        if (states >> member->state & 1u)
            add_name(&names, member->host);
    }
    end_names(&names);
}

/* Those who have not promised, with what is known of each: "a (stops its workers), b (no answer)".
 */
static void add_preparing(const struct ct_rdzv *job, char *text, size_t room)
{
    struct names names = {.text = text, .room = room};
    for (size_t i = 0; i < job->capacity; i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        char name[CT_RDZV_HOST_BYTES + 32];
        const char *state = member->promised >= job->generation ? "stops its workers" : "no answer";
        if (member->state != CT_RDZV_PREPARING)
            continue;
        (void)snprintf(name, sizeof(name), "%s (%s)", member->host,
                       member->link == 0 ? "not connected" : state);
        add_name(&names, name);
    }
    end_names(&names);
}

/* Those whose workers do not hold the base yet. */
static void add_unrecovered(const struct ct_rdzv *job, char *text, size_t room)
{
    struct names names = {.text = text, .room = room};
    for (uint32_t i = 0; i < job->roster.count; i++)
        if (!job->roster.places[i].recovered)
            add_name(&names, job->roster.places[i].host);
    end_names(&names);
}

static bool rank_is_here(const struct ct_rdzv *job, int32_t node_rank)
{
    for (size_t i = 0; i < job->capacity; i++)
        if (job->members[i].state != CT_RDZV_FREE && job->members[i].node_rank == node_rank)
            return true;
    return false;
}

/* Ranks are known to be missing when somebody asked for one. */
static void add_missing_ranks(const struct ct_rdzv *job, char *text, size_t room)
{
    bool ranked = false;
    for (size_t i = 0; i < job->capacity && !ranked; i++)
        ranked = job->members[i].state != CT_RDZV_FREE && job->members[i].node_rank >= 0;
    if (!ranked)
        return;
    add_text(text, room, "; node rank ");
    struct names names = {.text = text, .room = room};
    for (uint32_t rank = 0; rank < job->params.nodes_min; rank++) {
        char number[16];
        (void)snprintf(number, sizeof(number), "%u", rank);
        if (!rank_is_here(job, (int32_t)rank))
            add_name(&names, number);
    }
    end_names(&names);
    add_text(text, room, " missing");
}

/* The members of the last round that are not here any more. */
static void add_lost(const struct ct_rdzv *job, char *text, size_t room)
{
    struct names names = {.text = text, .room = room};
    add_text(text, room, "; gone ");
    for (uint32_t place = 0; place < job->roster.count; place++) {
        bool here = false;
        for (size_t i = 0; i < job->capacity && !here; i++)
            here = job->members[i].state != CT_RDZV_FREE && job->members[i].place == (int32_t)place;
        if (!here)
            add_name(&names, job->roster.places[place].host);
    }
    end_names(&names);
}

void ct_rdzv_describe(const struct ct_rdzv *job, char *text, size_t room)
{
    const struct ct_rdzv_params *p = &job->params;
    size_t here = ct_rdzv_candidates(job);
    unsigned any = ~(1u << CT_RDZV_FREE);
    double waited_s = (double)(job->now_ms - job->phase_since_ms) / 1000;
    switch (job->phase) {
    case CT_RDZV_LOBBY:
    case CT_RDZV_PAUSED:
        if (here < p->nodes_min)
            (void)snprintf(text, room, "job %s: waiting for %zu more node%s (%zu of %u joined",
                           job->name, p->nodes_min - here, p->nodes_min - here == 1 ? "" : "s",
                           here, p->nodes_min);
        else
            (void)snprintf(text, room, "job %s: %zu nodes joined (at least %u", job->name, here,
                           p->nodes_min);
        if (here > 0) {
            add_text(text, room, ": ");
            add_members(job, any, text, room);
        }
        add_text(text, room, ")");
        if (job->phase == CT_RDZV_PAUSED)
            add_lost(job, text, room);
        else
            add_missing_ranks(job, text, room);
        if (here >= p->nodes_min)
            add_text(text, room, "; their ranks do not divide the global batch");
        break;
    case CT_RDZV_LAST_CALL:
        if (ct_rdzv_is_elsewhere(job))
            (void)snprintf(text, room,
                           "job %s has %zu nodes here, and others that were in a round of it: it "
                           "waits for those who hold its record, or for `ctrun takeover`",
                           job->name, here);
        else
            (void)snprintf(text, room,
                           "job %s has %zu nodes and starts in a moment, up to %u may join",
                           job->name, here, p->nodes_max);
        break;
    case CT_RDZV_PREPARE:
        (void)snprintf(text, room, "job %s prepares round %" PRIu64 " (%s), waits %.1f s for ",
                       job->name, job->generation, ct_rdzv_reason_name(job->reason), waited_s);
        if (job->pending != 0 || job->count[CT_RDZV_PREPARING] == 0)
            add_text(text, room, "the journal");
        else
            add_preparing(job, text, room);
        break;
    case CT_RDZV_COMMIT:
        (void)snprintf(text, room, "job %s commits round %" PRIu64, job->name, job->generation);
        break;
    case CT_RDZV_RECOVER:
        (void)snprintf(text, room,
                       "job %s recovers round %" PRIu64
                       " of %u nodes, waits %.1f s for the state of ",
                       job->name, job->roster.generation, job->roster.count, waited_s);
        add_unrecovered(job, text, room);
        break;
    case CT_RDZV_RUNNING:
        (void)snprintf(text, room,
                       "job %s runs round %" PRIu64 " with %u node%s, %u rank%s, %u of %u restarts "
                       "used",
                       job->name, job->roster.generation, job->roster.count,
                       job->roster.count == 1 ? "" : "s", job->roster.world,
                       job->roster.world == 1 ? "" : "s", job->restarts, p->max_restarts);
        break;
    default:
        (void)snprintf(text, room, "job %s ended with status %d", job->name, job->result.status);
        break;
    }
}

bool ct_rdzv_describe_member(const struct ct_rdzv *job, size_t index, char *text, size_t room)
{
    const struct ct_rdzv_member *member = ct_rdzv_member(job, index);
    const struct ct_rdzv_cordon *cordon = ct_rdzv_cordon_of(job, member->host);
    bool waits = job->phase == CT_RDZV_LOBBY || job->phase == CT_RDZV_LAST_CALL ||
                 job->phase == CT_RDZV_PAUSED;
    if (cordon != NULL && (cordon->by_operator || !waits)) {
        char until[48] = "";
        if (cordon->until_ms != UINT64_MAX)
            (void)snprintf(until, sizeof(until), " for %" PRIu64 " s more",
                           (cordon->until_ms - CT_MIN(cordon->until_ms, job->now_ms)) / 1000);
        (void)snprintf(
            text, room,
            "host %s is cordoned%s (%s) and joins no round: `ctrun uncordon %s` ends that",
            member->host, until, cordon->reason, member->host);
    } else if (waits) {
        return false;
    } else if (member->eligible_ms > job->now_ms) {
        (void)snprintf(text, room,
                       "host %s was lost several times within an hour and joins a running job in "
                       "%" PRIu64 " s",
                       member->host, (member->eligible_ms - job->now_ms) / 1000);
    } else if (ct_rdzv_usable(job, CT_RDZV_POOL_ALL) <= job->roster.count) {
        (void)snprintf(
            text, room,
            "spare: %u of %u nodes of job %s are at work, this one replaces the next that "
            "is lost",
            job->roster.count, job->params.nodes_max, job->name);
    } else {
        (void)snprintf(text, room, "joins job %s at the next step boundary that adds nodes",
                       job->name);
    }
    return true;
}

/* ---- transcripts ---- */

static const char *event_name(enum ct_rdzv_event_kind kind)
{
    static const char *const names[CT_RDZV_EVENTS] = {
        "TICK",    "JOIN",       "HEARTBEAT", "PREPARED",       "FAILURE", "DONE",   "LEAVE",
        "PUBLISH", "DISCONNECT", "PERSISTED", "PERSIST_FAILED", "DRAIN",   "CORDON", "UNCORDON",
    };
    return (unsigned)kind < CT_RDZV_EVENTS ? names[kind] : "?";
}

static const char *action_name(enum ct_rdzv_action_kind kind)
{
    static const char *const names[] = {
        "WELCOME", "REFUSE",    "PREPARE", "ROUND", "REVOKE",  "ACK",      "RELEASE",
        "DRAIN",   "PUBLISHED", "ANSWER",  "CLOSE", "PERSIST", "ANNOUNCE",
    };
    return names[kind];
}

static const char *record_name(enum ct_rdzv_record record)
{
    static const char *const names[] = {"?", "RESERVE", "COMMIT", "CLOSE", "MANIFEST", "CORDON"};
    return names[record];
}

static const char *leave_name(enum ct_rdzv_leave leave)
{
    static const char *const names[CT_RDZV_LEAVES] = {"drain", "stop", "requeue"};
    return names[leave];
}

/* The host behind a link, "all", or the link's number. */
static const char *who(const struct ct_rdzv *job, uint64_t link, char room[32])
{
    if (link == CT_RDZV_ALL)
        return "all";
    for (size_t i = 0; i < job->capacity; i++)
        if (job->members[i].link == link)
            return job->members[i].host;
    (void)snprintf(room, 32, "link%" PRIu64, link);
    return room;
}

void ct_rdzv_event_print(const struct ct_rdzv *job, const struct ct_rdzv_event *event, char *line,
                         size_t room)
{
    char number[32];
    const char *from = who(job, event->link, number);
    const char *name = event_name(event->kind);
    switch (event->kind) {
    case CT_RDZV_ON_TICK:
        (void)snprintf(line, room, "> %s", name);
        break;
    case CT_RDZV_ON_JOIN:
        (void)snprintf(line, room, "> %s JOIN slots=%u", event->join->host, event->join->slots);
        if (event->join->node_rank >= 0) {
            size_t used = strlen(line);
            (void)snprintf(line + used, room - used, " node_rank=%d", event->join->node_rank);
        }
        break;
    case CT_RDZV_ON_PREPARED:
        (void)snprintf(line, room, "> %s PREPARED g%" PRIu64 " lineage=%" PRIu64 " step=%" PRIu64,
                       from, event->generation, event->lineage, event->step);
        break;
    case CT_RDZV_ON_FAILURE:
        (void)snprintf(line, room, "> %s FAILURE g%" PRIu64 " rank=%d status=%d signal=%d", from,
                       event->generation, event->failure->rank, event->failure->status,
                       event->failure->signal);
        break;
    case CT_RDZV_ON_LEAVE:
        (void)snprintf(line, room, "> %s LEAVE %s", from, leave_name(event->leave));
        break;
    case CT_RDZV_ON_PUBLISH:
        (void)snprintf(line, room, "> %s PUBLISH g%" PRIu64 " step=%" PRIu64, from,
                       event->generation, event->step);
        break;
    case CT_RDZV_ON_DRAIN:
    case CT_RDZV_ON_CORDON:
    case CT_RDZV_ON_UNCORDON:
        (void)snprintf(line, room, "> %s %s %s", event->order->author, name, event->order->host);
        break;
    case CT_RDZV_ON_PERSISTED:
    case CT_RDZV_ON_PERSIST_FAILED:
        (void)snprintf(line, room, "> %s #%" PRIu64, name, event->seq);
        break;
    case CT_RDZV_ON_HEARTBEAT:
    case CT_RDZV_ON_DONE:
        (void)snprintf(line, room, "> %s %s g%" PRIu64, from, name, event->generation);
        break;
    default:
        (void)snprintf(line, room, "> %s %s", from, name);
        break;
    }
}

static void print_round(const struct ct_rdzv_roster *roster, struct ct_buf *out)
{
    (void)ct_buf_printf(out, " g%" PRIu64 " world=%u [", roster->generation, roster->world);
    for (uint32_t i = 0; i < roster->count && i < 8; i++)
        (void)ct_buf_printf(out, "%s%s:%u", i > 0 ? " " : "", roster->places[i].host,
                            roster->places[i].first_rank);
    (void)ct_buf_puts(out, roster->count > 8 ? " ...]" : "]");
    if (roster->base_node >= 0)
        (void)ct_buf_printf(out, " base=%s lineage=%" PRIu64 " step=%" PRIu64,
                            roster->places[roster->base_node].host, roster->lineage,
                            roster->base_step);
}

static void print_action(const struct ct_rdzv *job, const struct ct_rdzv_action *action,
                         struct ct_buf *out)
{
    char number[32];
    const char *name = action_name(action->kind);
    (void)ct_buf_puts(out, "< ");
    switch (action->kind) {
    case CT_RDZV_DO_ANNOUNCE:
        (void)ct_buf_printf(out, "(%s)", action->text);
        return;
    case CT_RDZV_DO_PERSIST:
        (void)ct_buf_printf(out, "PERSIST #%" PRIu64 " %s g%" PRIu64, action->seq,
                            record_name(action->record), action->generation);
        return;
    default:
        (void)ct_buf_printf(out, "%s %s", who(job, action->link, number), name);
    }
    switch (action->kind) {
    case CT_RDZV_DO_PUBLISHED:
        (void)ct_buf_printf(out, " g%" PRIu64 " step=%" PRIu64, action->generation, action->step);
        if (action->code == 0)
            break;
        (void)ct_buf_printf(out, " %s: %s", ct_error_name(action->code), action->text);
        break;
    case CT_RDZV_DO_DRAIN:
        (void)ct_buf_printf(out, " (%s)", action->text);
        break;
    case CT_RDZV_DO_ANSWER:
        (void)ct_buf_printf(out, " %s: %s", action->code == 0 ? "OK" : ct_error_name(action->code),
                            action->text);
        break;
    case CT_RDZV_DO_REFUSE:
        (void)ct_buf_printf(out, " %s: %s", ct_error_name(action->code), action->text);
        break;
    case CT_RDZV_DO_PREPARE:
    case CT_RDZV_DO_REVOKE:
        (void)ct_buf_printf(out, " g%" PRIu64 " (%s%s)", action->generation,
                            ct_rdzv_reason_name(action->reason),
                            action->at_boundary ? ", at a step boundary" : "");
        break;
    case CT_RDZV_DO_ROUND:
        print_round(&job->roster, out);
        break;
    case CT_RDZV_DO_CLOSE:
        (void)ct_buf_printf(out, " status=%d", job->result.status);
        if (job->result.cause.text[0] != '\0')
            (void)ct_buf_printf(out, ": %s", job->result.cause.text);
        break;
    default:
        break;
    }
}

void ct_rdzv_action_print(const struct ct_rdzv *job, const struct ct_rdzv_action *action,
                          char *line, size_t room)
{
    struct ct_buf out;
    ct_buf_init(&out, 8192);
    print_action(job, action, &out);
    ct_str_copy(line, room, ct_buf_str(&out));
    ct_buf_deinit(&out);
}
