/* See script_watch_uv.h. */
#include "script_watch_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "diagnose/backtrace_uv.h"
#include "diagnose/confer.h"
#include "diagnose/odd_rank.h"
#include "diagnose/process_facts.h"
#include "diagnose/python_stacks_uv.h"
#include "diagnose/rhythm.h"
#include "hang_file_uv.h"
#include "job/round.h"
#include "node_state_uv.h"
#include "subjects_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_BYTES = 32,
    ANSWER_MS = 5000,      /* a question that is not answered by then is lost */
    EXAMINATION_MS = 3000, /* how long Python may take to print its stacks and end */
    YIELD_MS = 8000,       /* how long a rank in a collective waits for one outside of any */
};

enum phase {
    WATCHING,
    CONFERRING, /* all hang here: what of other nodes? */
    COLLECTING, /* py-spy is at work */
    EXAMINING,  /* workers print their stacks and end */
    YIELDING,   /* another node may have the one at fault */
    WRITING,    /* the file */
};

struct script_watch {
    struct node *node;
    uv_timer_t timer;
    enum phase phase;
    struct subjects *subjects;
    struct ct_rhythm rhythm;
    struct ct_rhythm_rank *ranks; /* of each worker, as the next two */
    struct ct_rhythm_sample *samples;
    struct ct_hung_rank *hung; /* those that live; `hung_count` */
    uint32_t hung_count;
    uint64_t generation; /* of the round that it looks at */

    struct ct_confer confer;
    uint64_t asked_ms; /* when a node was asked that has not answered; 0: none was */
    uint64_t reported; /* the round whose store has it that all are quiet here; 0: none */

    struct ct_rhythm_verdict verdict;
    struct ct_buf stacks; /* as they were printed, for the file */
    struct ct_odd odd;
    struct ct_error sentence;
    uint64_t deadline_ms; /* EXAMINING, YIELDING */
};

/* ---- looking -------------------------------------------------------------------------------- */

bool script_watch_judges(const struct script_watch *watch, const struct ct_record_view *view)
{
    return watch != NULL && (!view->opened || view->group_count == 0);
}

/* Look at all workers now. True: they hang. */
static bool poll_workers(struct script_watch *watch)
{
    subjects_look(watch->subjects, &watch->rhythm, watch->samples);
    return ct_rhythm_poll(&watch->rhythm, uv_now(&watch->node->loop), watch->samples,
                          &watch->verdict);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The local rank of the one at fault, when it is one of this node. */
static uint32_t culprit_of(const struct script_watch *watch)
{
    return watch->hung[watch->odd.culprit].rank - watch->node->round->own->first_rank;
}

static bool is_current(const struct script_watch *watch)
{
    return agent_core_acts(&watch->node->core) && watch->node->core.running == watch->generation;
}

static void end_it(struct script_watch *watch)
{
    struct node *node = watch->node;
    uint32_t worker = is_current(watch) ? culprit_of(watch) : UINT32_MAX;

    watch->phase = WATCHING;
    if (is_current(watch) &&
        ct_workers_pid(node->workers, worker) == watch->hung[watch->odd.culprit].pid)
        ct_workers_condemn(node->workers, worker, &watch->sentence);
    ct_workers_judge(node->workers, worker, &watch->sentence); /* those that were examined */
}

static void on_written(void *context, const char *failure)
{
    struct script_watch *watch = context;

    hang_file_report(watch->node, failure);
    end_it(watch);
}

/* Write down all stacks, with the kernel's and gdb's view of the one at fault and another one. */
static void write_down(struct script_watch *watch)
{
    const struct ct_hung_rank *culprit = &watch->hung[watch->odd.culprit];
    const struct ct_hung_rank *other = &watch->hung[watch->odd.other];
    const struct hang_file hang = {.rank = culprit->rank,
                                   .other_rank = other->rank,
                                   .pid = culprit->pid,
                                   .other_pid = other != culprit ? other->pid : 0,
                                   .generation = watch->generation,
                                   .preface = ct_buf_str(&watch->stacks)};

    watch->phase = WRITING;
    if (!hang_file_write(watch->node, &hang, on_written, watch))
        end_it(watch);
}

/* Say who it is, and end it. */
static void accuse(struct script_watch *watch)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_odd_print(&watch->odd, watch->hung, watch->hung_count, watch->verdict.silent_ms, &text);
    (void)ct_error_set(&watch->sentence, CT_EHUNG, "%s", ct_buf_str(&text));
    ct_log_event(&watch->node->log, CT_LOG_WARN, "hang", "%s", watch->sentence.text);
    ct_buf_deinit(&text);
    write_down(watch);
}

/* A rank whose collective has not ended waits in it, wherever its main thread stands: collectives
 * on a GPU return before they are done. */
static void place_by_flight(struct ct_hung_rank *hung)
{
    if (!hung->flight.waits.known)
        return;
    if (!hung->place.known)
        hung->place = hung->flight.waits;
    else if (hung->place.call[0] == '\0')
        (void)ct_str_copy(hung->place.call, sizeof hung->place.call, hung->flight.waits.call);
}

/* One that is in a collective may wait for a rank of another node, whose agent names that. */
static void conclude(struct script_watch *watch)
{
    for (uint32_t i = 0; i < watch->hung_count; i++)
        place_by_flight(&watch->hung[i]);
    ct_odd_find(watch->hung, watch->hung_count, &watch->odd);
    const struct ct_python_place *place = &watch->hung[watch->odd.culprit].place;
    bool is_outside = place->known && place->call[0] == '\0';

    if (watch->node->round->node_count > 1 && watch->verdict.kind != CT_RHYTHM_STOPPED &&
        !is_outside) {
        watch->phase = YIELDING;
        watch->deadline_ms = uv_now(&watch->node->loop) + YIELD_MS;
        return;
    }
    accuse(watch);
}

/* ---- stacks --------------------------------------------------------------------------------- */

/* Keep what was printed of a rank, and find where it is. */
static void read_stack(struct script_watch *watch, struct ct_hung_rank *hung, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return;
    (void)ct_buf_printf(&watch->stacks, "==== rank %u (pid %d), Python\n%s\n", hung->rank,
                        hung->pid, text);
    (void)ct_python_place_find(text, hung->pid, &hung->place);
    hung->child_pid = ct_python_child_find(text, hung->pid, &hung->child);
}

/* The same of its flight recorder. */
static void read_flight(struct script_watch *watch, struct ct_hung_rank *hung, const char *text)
{
    if (text == NULL || !ct_torch_flight_parse(text, hung->pid, &hung->flight))
        return;
    (void)ct_buf_printf(&watch->stacks, "==== rank %u (pid %d), flight recorder of PyTorch\n%s\n",
                        hung->rank, hung->pid, text);
}

/* Is it Python, which prints its stacks when it is aborted? */
static bool can_be_examined(const struct script_watch *watch, const struct ct_hung_rank *hung)
{
    const char *handler = ct_env_find(watch->node->job->env, "PYTHONFAULTHANDLER");

    return !hung->place.known && (handler == NULL || handler[0] != '\0') &&
           ct_process_is_python(hung->pid);
}

static void on_examined(struct script_watch *watch)
{
    const struct node *node = watch->node;
    bool all_ended = true;

    for (uint32_t i = 0; i < watch->hung_count; i++)
        all_ended &=
            ct_workers_examined(node->workers, watch->hung[i].rank - node->round->own->first_rank);
    if (!all_ended && uv_now(&node->loop) < watch->deadline_ms)
        return;
    for (uint32_t i = 0; i < watch->hung_count; i++)
        read_stack(watch, &watch->hung[i],
                   ct_workers_last_words(node->workers,
                                         watch->hung[i].rank - node->round->own->first_rank));
    conclude(watch);
}

/* Without py-spy: all hang, and all will be ended in any case. */
static void examine(struct script_watch *watch)
{
    struct node *node = watch->node;
    bool any = false;

    for (uint32_t i = 0; i < watch->hung_count; i++)
        any |= can_be_examined(watch, &watch->hung[i]);
    if (!any) {
        conclude(watch);
        return;
    }
    for (uint32_t i = 0; i < watch->hung_count; i++)
        if (can_be_examined(watch, &watch->hung[i]))
            ct_workers_examine(node->workers, watch->hung[i].rank - node->round->own->first_rank);
    watch->phase = EXAMINING;
    watch->deadline_ms = uv_now(&node->loop) + EXAMINATION_MS;
}

static void on_stacks(void *context, struct ct_python_stack *stacks, size_t count)
{
    struct script_watch *watch = context;

    watch->phase = WATCHING;
    if (is_current(watch)) {
        (void)poll_workers(watch);
        if (ct_rhythm_stands(&watch->rhythm, &watch->verdict)) {
            for (size_t i = 0; i < count; i++) {
                read_stack(watch, &watch->hung[i], stacks[i].text);
                read_flight(watch, &watch->hung[i], stacks[i].flight);
            }
            examine(watch);
        }
    }
    ct_python_stacks_free(stacks, count);
}

/* ---- a verdict ------------------------------------------------------------------------------ */

/* Who lives, and what its process does. */
static void list_hung(struct script_watch *watch)
{
    const struct node *node = watch->node;

    watch->hung_count = 0;
    for (uint32_t i = 0; i < node->job->slots; i++) {
        struct ct_hung_rank *hung = &watch->hung[watch->hung_count];

        if (!watch->samples[i].alive)
            continue;
        watch->hung_count++;
        *hung = (struct ct_hung_rank){.rank = node->round->own->first_rank + i,
                                      .pid = watch->samples[i].pid,
                                      .state = watch->samples[i].stopped ? 'T' : 'S',
                                      .works = watch->ranks[i].silent_ms == 0};
        struct ct_process_facts facts;
        if (!watch->samples[i].stopped && ct_process_facts(hung->pid, &facts))
            hung->state = facts.state;
        (void)ct_str_copy(hung->host, sizeof hung->host, node->job->host);
        ct_diagnose_state(hung->pid, hung->doing, sizeof hung->doing);
    }
}

/* All hang: where are they? */
static void begin_verdict(struct script_watch *watch)
{
    const struct node *node = watch->node;
    const char *program = node->job->program.path, *slash = strrchr(program, '/');
    char beside[PATH_MAX], dumps[PATH_MAX];

    list_hung(watch);
    ct_buf_clear(&watch->stacks);
    struct ct_python_stack *stacks = calloc(watch->hung_count, sizeof *stacks);
    for (uint32_t i = 0; stacks != NULL && i < watch->hung_count; i++)
        stacks[i] = (struct ct_python_stack){.pid = watch->hung[i].pid,
                                             .rank = watch->hung[i].rank,
                                             .stopped = watch->hung[i].state == 'T'};
    folder_flight_dumps(&node->job->folder, watch->generation, dumps);
    const struct ct_python_stacks_request request = {
        .stacks = stacks, .count = watch->hung_count, .beside = beside, .dumps = dumps};
    (void)snprintf(beside, sizeof beside, "%.*s", slash != NULL ? (int)(slash - program) : 0,
                   program);
    watch->phase = COLLECTING;
    if (stacks == NULL || ct_python_stacks(&watch->node->loop, &request, on_stacks, watch) != 0)
        examine(watch);
    free(stacks);
}

/* ---- other nodes ---------------------------------------------------------------------------- */

/* The key under which a node says in the round's store whether its ranks are quiet. */
static void request(struct script_watch *watch, uint32_t node_index, struct ct_message *message,
                    char key[KEY_BYTES])
{
    struct node *node = watch->node;
    const struct ct_call call = {SCRIPT_WATCH_CALLER, node_index, watch->generation};
    struct ct_call back;
    uint64_t number;

    (void)snprintf(key, KEY_BYTES, "ct/quiet/%u", node_index);
    if (node->agent == NULL || ct_calls_add(&node->calls, &call, &number) != 0)
        return;
    if (ct_agent_store(node->agent, number, message) != 0)
        (void)ct_calls_remove(&node->calls, number, &back);
}

static void report_quiet(struct script_watch *watch, bool is_quiet)
{
    static const unsigned char yes[] = {'1'}, no[] = {'0'};
    char key[KEY_BYTES];
    struct ct_message message = {
        .type = CT_MSG_STORE_SET,
        .store_set = {.generation = watch->generation, .key = key, .value = {yes, 1}}};

    if (!is_quiet)
        message.store_set.value.data = no;
    request(watch, watch->node->round->self, &message, key);
    watch->reported = is_quiet ? watch->generation : 0;
}

static void ask(struct script_watch *watch)
{
    char key[KEY_BYTES];
    struct ct_message message = {.type = CT_MSG_STORE_GET,
                                 .store_get = {.generation = watch->generation, .key = key}};

    watch->asked_ms = uv_now(&watch->node->loop);
    request(watch, watch->confer.next, &message, key);
}

void script_watch_reply(struct script_watch *watch, uint64_t node_index, uint64_t generation,
                        const struct ct_msg_store_reply *reply)
{
    bool is_quiet =
        reply->code == 0 && reply->value.size == 1 && memcmp(reply->value.data, "1", 1) == 0;

    if (watch == NULL || watch->phase != CONFERRING || generation != watch->generation ||
        !is_current(watch) || node_index != watch->confer.next)
        return;
    watch->asked_ms = 0;
    if (ct_confer_hear(&watch->confer, is_quiet))
        begin_verdict(watch);
    else if (is_quiet)
        ask(watch);
}

/* All ranks of this node hang; those of the others? */
static void begin_conferring(struct script_watch *watch)
{
    const struct ct_round *round = watch->node->round;

    watch->phase = CONFERRING;
    ct_confer_begin(&watch->confer, round->self, round->node_count);
    report_quiet(watch, true);
    ask(watch);
}

/* Somebody here has given a sign, or an answer is overdue, or it is time to ask again. */
static void go_on_conferring(struct script_watch *watch)
{
    (void)poll_workers(watch);
    if (!ct_rhythm_stands(&watch->rhythm, &watch->verdict)) {
        watch->phase = WATCHING;
        report_quiet(watch, false);
    } else if (watch->asked_ms == 0 || uv_now(&watch->node->loop) - watch->asked_ms > ANSWER_MS) {
        ask(watch);
    }
}

/* The workers of this node are done: nobody waits for them. */
static void report_done(struct script_watch *watch)
{
    const struct node *node = watch->node;

    if (node->round == NULL || node->round->node_count < 2 || agent_core_is_ending(&node->core) ||
        node->core.finished != node->round->generation || watch->reported == node->core.finished ||
        ct_workers_running(node->workers))
        return;
    watch->generation = node->core.finished;
    report_quiet(watch, true);
}

/* ---- time ----------------------------------------------------------------------------------- */

/* A verdict is on its way: what is next? */
static void go_on(struct script_watch *watch)
{
    if (watch->phase == CONFERRING)
        go_on_conferring(watch);
    else if (watch->phase == EXAMINING)
        on_examined(watch);
    else if (watch->phase == YIELDING && uv_now(&watch->node->loop) >= watch->deadline_ms)
        accuse(watch);
}

static void on_poll(uv_timer_t *timer)
{
    struct script_watch *watch = timer->data;
    struct node *node = watch->node;

    if (watch->phase != WATCHING && is_current(watch)) {
        go_on(watch);
        return;
    }
    if (watch->phase == COLLECTING || watch->phase == WRITING)
        return;                     /* what is at work comes back */
    if (watch->phase != WATCHING) { /* the round is over: what has ended is told */
        watch->phase = WATCHING;
        ct_workers_judge(node->workers, UINT32_MAX, NULL);
    }
    report_done(watch);
    if (!agent_core_acts(&node->core))
        return;
    if (node->core.running != watch->generation) {
        watch->generation = node->core.running;
        ct_rhythm_begin(&watch->rhythm, watch->ranks, node->job->slots);
    }
    if (!poll_workers(watch))
        return;
    if (node->round->node_count > 1 && watch->verdict.kind != CT_RHYTHM_STOPPED)
        begin_conferring(watch);
    else
        begin_verdict(watch);
}

/* ---- birth and death ------------------------------------------------------------------------ */

int script_watch_new(struct node *node, struct script_watch **ret_watch)
{
    const struct ct_config *cfg = &node->job->cfg;
    uint32_t slots = node->job->slots;

    *ret_watch = NULL;
    if (node->job->program.native || cfg->launch.hang_timeout_ms == 0 ||
        ct_config_origin(cfg, &cfg->launch.hang_timeout_ms)->layer == CT_CONFIG_DEFAULT)
        return 0;
    struct script_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return CT_ENOMEM;
    watch->node = node;
    watch->rhythm.floor_ms = (uint64_t)cfg->launch.hang_timeout_ms;
    ct_buf_init(&watch->stacks, 0);
    watch->ranks = calloc(slots, sizeof *watch->ranks);
    watch->samples = calloc(slots, sizeof *watch->samples);
    watch->hung = calloc(slots, sizeof *watch->hung);
    watch->subjects = subjects_new(node);
    if (watch->ranks == NULL || watch->samples == NULL || watch->hung == NULL ||
        watch->subjects == NULL) {
        script_watch_free(watch);
        return CT_ENOMEM;
    }
    (void)uv_timer_init(&node->loop, &watch->timer);
    watch->timer.data = watch;
    (void)uv_timer_start(&watch->timer, on_poll, CT_RHYTHM_POLL_MS, CT_RHYTHM_POLL_MS);
    *ret_watch = watch;
    return 0;
}

const char *const *script_watch_files(const struct script_watch *watch)
{
    return watch != NULL ? subjects_files(watch->subjects) : NULL;
}

void script_watch_close(struct script_watch *watch)
{
    if (watch != NULL)
        uv_close((uv_handle_t *)&watch->timer, NULL);
}

void script_watch_free(struct script_watch *watch)
{
    if (watch == NULL)
        return;
    free(watch->ranks);
    free(watch->samples);
    free(watch->hung);
    subjects_free(watch->subjects);
    ct_buf_deinit(&watch->stacks);
    free(watch);
}
