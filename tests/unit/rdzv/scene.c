#include "scene.h"

#include "base/str.h"
#include "rdzv_check.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void scene_init(struct scene *s, uint32_t nodes_min, uint32_t nodes_max, uint32_t max_restarts)
{
    memset(s, 0, sizeof(*s));
    s->params = ct_rdzv_params_default;
    s->params.nodes_min = nodes_min;
    s->params.nodes_max = nodes_max;
    s->params.max_restarts = max_restarts;
    s->params.join_timeout_ms = 60000;
    s->job = ct_rdzv_new("demo", &s->params, 1, 0);
    cr_assert_not_null(s->job);
    ct_buf_init(&s->transcript, 0);
}

void scene_terms(struct scene *s, uint32_t cordon_faults, uint32_t world_divides)
{
    s->params.cordon_faults = cordon_faults;
    s->params.world_divides = world_divides;
    ct_rdzv_free(s->job);
    s->job = ct_rdzv_new("demo", &s->params, 1, 0);
    cr_assert_not_null(s->job);
}

void scene_deinit(struct scene *s)
{
    ct_rdzv_free(s->job);
    ct_buf_deinit(&s->transcript);
}

struct scene_host *scene_host(struct scene *s, const char *name)
{
    for (size_t i = 0; i < s->host_count; i++)
        if (strcmp(s->hosts[i].name, name) == 0)
            return &s->hosts[i];
    cr_assert(s->host_count < SCENE_HOSTS);
    struct scene_host *host = &s->hosts[s->host_count++];
    ct_str_copy(host->name, sizeof(host->name), name);
    host->id = (struct ct_id){.high = s->host_count, .low = 1};
    return host;
}

static void write_line(struct scene *s, const char *line)
{
    if (!s->quiet)
        (void)ct_buf_printf(&s->transcript, "[%5" PRIu64 "] %s\n", s->now_ms, line);
}

/* What a living agent would know after the action. */
static void apply(struct scene *s, const struct ct_rdzv_action *action)
{
    for (size_t i = 0; i < s->host_count; i++) {
        struct scene_host *host = &s->hosts[i];
        if (host->link == 0 || (action->link != CT_RDZV_ALL && action->link != host->link))
            continue;
        const struct ct_rdzv_member *member = NULL; /* who was refused is none */
        if (host->member < ct_rdzv_capacity(s->job))
            member = ct_rdzv_member(s->job, host->member);
        switch (action->kind) {
        case CT_RDZV_DO_WELCOME:
            host->member = action->member;
            host->refused = 0;
            if (host->acting != action->generation)
                host->acting = 0;
            break;
        case CT_RDZV_DO_REFUSE:
            host->refused = action->code;
            host->retry_ms = action->retry_ms;
            ct_str_copy(host->refusal, sizeof(host->refusal), action->text);
            host->link = 0;
            break;
        case CT_RDZV_DO_PREPARE:
            if (member != NULL && member->link == host->link && action->generation > host->promised)
                host->promised = action->generation;
            break;
        case CT_RDZV_DO_ROUND:
            if (member != NULL && member->link == host->link && member->place >= 0)
                host->acting = host->begun = action->generation;
            break;
        case CT_RDZV_DO_REVOKE:
            host->acting = 0;
            break;
        case CT_RDZV_DO_RELEASE:
            host->released = true;
            host->acting = 0;
            break;
        case CT_RDZV_DO_CLOSE:
            host->closed = true;
            break;
        default:
            break;
        }
    }
}

/* A roster, once committed, stays; survivors keep their order in the next. */
static void check_history(struct scene *s)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(s->job);
    cr_assert(ct_rdzv_generation(s->job) >= s->last_generation);
    cr_assert(ct_rdzv_restarts(s->job) >= s->last_restarts);
    s->last_generation = ct_rdzv_generation(s->job);
    s->last_restarts = ct_rdzv_restarts(s->job);
    if (roster->generation == s->committed) {
        for (uint32_t i = 0; i < roster->count; i++)
            cr_assert(roster->places[i].id.high == s->roster[i].high);
        return;
    }
    size_t after = 0;
    for (uint32_t i = 0; i < roster->count; i++) {
        for (size_t k = 0; k < s->roster_count; k++) {
            if (roster->places[i].id.high != s->roster[k].high ||
                roster->places[i].id.low != s->roster[k].low)
                continue;
            cr_assert(k >= after, "a survivor changed its place among survivors");
            after = k + 1;
        }
    }
    s->committed = roster->generation;
    s->rounds_seen++;
    s->roster_count = roster->count;
    for (uint32_t i = 0; i < roster->count; i++)
        s->roster[i] = roster->places[i].id;
}

static bool is_shown(const struct scene *s, enum ct_rdzv_action_kind kind)
{
    return s->verbose || (kind != CT_RDZV_DO_ACK && kind != CT_RDZV_DO_ANNOUNCE &&
                          kind != CT_RDZV_DO_WELCOME && kind != CT_RDZV_DO_PERSIST);
}

static void step(struct scene *s, const struct ct_rdzv_event *event);

/* The disk's answer, now or when it is GOOD again. */
static void answer_record(struct scene *s, uint64_t seq)
{
    const struct ct_rdzv_event answer = {.kind = s->disk == DISK_GOOD ? CT_RDZV_ON_PERSISTED
                                                                      : CT_RDZV_ON_PERSIST_FAILED,
                                         .seq = seq};
    if (s->disk != DISK_SLOW)
        step(s, &answer);
    else if (s->record_count < SCENE_RECORDS)
        s->records[s->record_count++] = seq;
}

/* Hosts hold the base as soon as the round begins, but for the slow ones. */
static void report_recovered(struct scene *s)
{
    for (size_t i = 0; i < s->host_count; i++) {
        struct scene_host *host = &s->hosts[i];
        if (host->link == 0 || host->acting == 0 || host->recovered >= host->acting || host->slow)
            continue;
        host->recovered = host->acting;
        scene_heartbeat(s, host->name);
    }
}

static void step(struct scene *s, const struct ct_rdzv_event *event)
{
    char line[4096];
    bool own = event->kind == CT_RDZV_ON_TICK || event->kind == CT_RDZV_ON_PERSISTED ||
               event->kind == CT_RDZV_ON_HEARTBEAT;
    ct_rdzv_event_print(s->job, event, line, sizeof(line));
    if (s->verbose || !own)
        write_line(s, line);
    struct ct_rdzv_actions actions;
    ct_rdzv_step(s->job, s->now_ms, event, &actions);
    uint64_t records[CT_RDZV_ACTIONS_LIMIT];
    size_t record_count = 0;
    for (size_t i = 0; i < actions.count; i++) {
        const struct ct_rdzv_action *action = &actions.list[i];
        ct_rdzv_action_print(s->job, action, line, sizeof(line));
        if (is_shown(s, action->kind))
            write_line(s, line);
        apply(s, action);
        if (action->kind == CT_RDZV_DO_PERSIST)
            records[record_count++] = action->seq;
    }
    struct ct_error err = {0};
    cr_assert_eq(rdzv_check(s->job, &err), 0, "%s", err.text);
    check_history(s);
    report_recovered(s);
    for (size_t i = 0; i < record_count; i++)
        answer_record(s, records[i]);
}

void scene_disk(struct scene *s, enum scene_disk disk)
{
    size_t count = s->record_count;
    s->disk = disk;
    if (disk != DISK_GOOD)
        return;
    s->record_count = 0;
    for (size_t i = 0; i < count; i++)
        answer_record(s, s->records[i]);
}

static struct ct_rdzv_event event_of(struct scene *s, const char *name,
                                     enum ct_rdzv_event_kind kind)
{
    struct scene_host *host = scene_host(s, name);
    return (struct ct_rdzv_event){
        .kind = kind, .member = host->member, .link = host->link, .seq = ++host->seq};
}

void scene_join_as(struct scene *s, const char *name, uint32_t slots, int32_t node_rank)
{
    struct scene_host *host = scene_host(s, name);
    struct ct_rdzv_join join = {
        .id = host->id,
        .params = s->params,
        .slots = slots,
        .node_rank = node_rank,
        .slurm_node = -1,
        .promised = host->promised,
        .acting = host->acting,
        .orphan = host->orphan,
        .host = name,
        .address = "",
        .role = "default",
    };
    host->link = ++s->next_link;
    host->released = host->silent = false;
    struct ct_rdzv_event event = {
        .kind = CT_RDZV_ON_JOIN, .link = host->link, .seq = ++host->seq, .join = &join};
    step(s, &event);
}

void scene_join(struct scene *s, const char *name)
{
    scene_join_as(s, name, 2, -1);
}

void scene_heartbeat(struct scene *s, const char *name)
{
    struct ct_rdzv_event event = event_of(s, name, CT_RDZV_ON_HEARTBEAT);
    event.generation = scene_host(s, name)->acting;
    event.promised = scene_host(s, name)->promised;
    event.recovered = scene_host(s, name)->recovered;
    step(s, &event);
}

void scene_prepared(struct scene *s, const char *name, uint64_t lineage, uint64_t at)
{
    struct ct_rdzv_event event = event_of(s, name, CT_RDZV_ON_PREPARED);
    event.generation = scene_host(s, name)->promised;
    event.acted = scene_host(s, name)->begun;
    if (lineage > 0 && lineage < event.acted)
        event.acted = lineage;
    event.lineage = lineage;
    event.step = at;
    event.digest = lineage * 1000 + at;
    step(s, &event);
}

void scene_all_prepared(struct scene *s)
{
    for (size_t i = 0; i < s->host_count; i++) {
        const struct scene_host *host = &s->hosts[i];
        if (host->link != 0 && ct_rdzv_member(s->job, host->member)->link == host->link &&
            ct_rdzv_member(s->job, host->member)->state == CT_RDZV_PREPARING)
            scene_prepared(s, host->name, 0, 0);
    }
}

static void fail(struct scene *s, const char *name, int status, int signal, uint64_t at_ms)
{
    const struct ct_wire_failure failure = {
        .code = CT_EWORKER,
        .rank = 1,
        .status = status,
        .signal = signal,
        .fatal = scene_host(s, name)->fatal,
        .host = name,
        .text = "worker died",
        .age_ms = s->now_ms - at_ms,
    };
    struct ct_rdzv_event event = event_of(s, name, CT_RDZV_ON_FAILURE);
    event.generation = scene_host(s, name)->acting;
    event.failure = &failure;
    step(s, &event);
}

void scene_fail(struct scene *s, const char *name, int status, int signal)
{
    fail(s, name, status, signal, s->now_ms);
}

void scene_fail_since(struct scene *s, const char *name, int status, uint64_t at_ms)
{
    fail(s, name, status, 0, at_ms);
}

void scene_done(struct scene *s, const char *name)
{
    struct ct_rdzv_event event = event_of(s, name, CT_RDZV_ON_DONE);
    event.generation = scene_host(s, name)->acting;
    step(s, &event);
}

void scene_publish(struct scene *s, const char *name, uint64_t generation, uint64_t at,
                   uint64_t digest)
{
    struct ct_rdzv_event event = event_of(s, name, CT_RDZV_ON_PUBLISH);
    event.generation = generation;
    event.step = at;
    event.digest = digest;
    step(s, &event);
}

void scene_order(struct scene *s, enum ct_rdzv_event_kind kind, const char *host, uint64_t for_ms)
{
    const struct ct_rdzv_order order = {
        .host = host, .author = "ops", .reason = "a test", .for_ms = for_ms};
    struct ct_rdzv_event event = {.kind = kind, .link = 1000, .order = &order};
    step(s, &event);
}

void scene_leave(struct scene *s, const char *name, enum ct_rdzv_leave how)
{
    struct ct_rdzv_event event = event_of(s, name, CT_RDZV_ON_LEAVE);
    event.leave = how;
    step(s, &event);
}

void scene_cut(struct scene *s, const char *name)
{
    struct ct_rdzv_event event = event_of(s, name, CT_RDZV_ON_DISCONNECT);
    scene_host(s, name)->link = 0;
    step(s, &event);
}

void scene_silence(struct scene *s, const char *name)
{
    scene_host(s, name)->silent = true;
}

void scene_new_self(struct scene *s, const char *name)
{
    struct scene_host *host = scene_host(s, name);
    host->id.low++;
    host->acting = host->promised = 0;
    host->seq = 0;
}

void scene_at(struct scene *s, uint64_t now_ms, bool heartbeats)
{
    const struct ct_rdzv_event tick = {.kind = CT_RDZV_ON_TICK};
    uint64_t period = ct_rdzv_heartbeat_ms(&s->params);
    while (s->now_ms < now_ms) {
        uint64_t due = ct_rdzv_deadline(s->job);
        uint64_t next_heartbeat = heartbeats ? (s->now_ms / period + 1) * period : UINT64_MAX;
        s->now_ms = now_ms;
        if (due < s->now_ms)
            s->now_ms = due;
        if (next_heartbeat < s->now_ms)
            s->now_ms = next_heartbeat;
        for (size_t i = 0; s->now_ms == next_heartbeat && i < s->host_count; i++)
            if (s->hosts[i].link != 0 && !s->hosts[i].closed && !s->hosts[i].released &&
                !s->hosts[i].silent)
                scene_heartbeat(s, s->hosts[i].name);
        if (ct_rdzv_deadline(s->job) <= s->now_ms)
            step(s, &tick);
    }
}

const char *scene_roster(const struct scene *s, char text[512])
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(s->job);
    text[0] = '\0';
    for (uint32_t i = 0; i < roster->count; i++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, 512 - used, "%s%s:%u", i > 0 ? " " : "", roster->places[i].host,
                       roster->places[i].first_rank);
    }
    return text;
}

void scene_expect(struct scene *s, const char *golden)
{
    cr_assert_str_eq(ct_buf_str(&s->transcript), golden, "transcript is:\n%s\nexpected:\n%s",
                     ct_buf_str(&s->transcript), golden);
    scene_forget(s);
}

void scene_forget(struct scene *s)
{
    ct_buf_clear(&s->transcript);
}

void scene_run(struct scene *s, const char *hosts)
{
    char names[256];
    char *rest = NULL;
    strcpy(names, hosts);
    for (char *name = strtok_r(names, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest))
        scene_join(s, name);
    if (ct_rdzv_phase(s->job) == CT_RDZV_LAST_CALL)
        scene_at(s, s->now_ms + s->params.last_call_ms, true);
    scene_all_prepared(s);
    cr_assert_eq(ct_rdzv_phase(s->job), CT_RDZV_RUNNING);
    scene_forget(s);
}

void scene_pass(struct ct_service *service, uint64_t from_ms, uint64_t until_ms)
{
    for (uint64_t due; (due = ct_service_deadline(service)) < until_ms;) {
        from_ms = due > from_ms ? due : from_ms;
        ct_service_tick(service, from_ms);
    }
    ct_service_tick(service, until_ms);
}
