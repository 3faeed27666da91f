/* The status of a job: one screen for people, one object for programs. */
#include "rendezvous/service/admin.h"

#include "rendezvous/service/service_state.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/number/scale.h"
#include "wire/failure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what both show ---- */

static const char *trouble_of(const struct ct_service_job *job)
{
    return job->service->journal_trouble;
}

static bool is_node(const struct ct_rdzv_member *member)
{
    return member->state != CT_RDZV_FREE;
}

static double since_contact_s(const struct ct_rdzv_member *member, uint64_t now_ms)
{
    return now_ms > member->received_ms ? (double)(now_ms - member->received_ms) / 1e3 : 0;
}

/* What a place adds to its member: its ranks. NULL when it is in no round. */
static const struct ct_rdzv_place *place_of(const struct ct_service_job *job,
                                            const struct ct_rdzv_member *member)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job->core);
    bool acts = member->state == CT_RDZV_ACTING || member->state == CT_RDZV_DONE;
    return acts && member->place >= 0 ? &roster->places[member->place] : NULL;
}

/* Seconds until a cordon ends; negative: it has no end. */
static double cordon_left_s(const struct ct_rdzv_cordon *cordon, uint64_t now_ms)
{
    if (cordon->until_ms == UINT64_MAX)
        return -1;
    return cordon->until_ms > now_ms ? (double)(cordon->until_ms - now_ms) / 1e3 : 0;
}

/* Who waits in PyTorch's store, as its agent said a moment ago; NULL: nobody. */
static const char *waits_of(const struct ct_service_job *job, uint64_t now_ms)
{
    bool current = job->waits_generation == ct_rdzv_roster(job->core)->generation &&
                   now_ms - job->waits_ms < CT_SERVICE_WAITS_MS;
    return current ? job->waits : NULL;
}

static double percent_of(const struct ct_msg_progress *progress)
{
    return progress->steps > 0 ? 100 * (double)progress->step / (double)progress->steps : 0;
}

/* Seconds since the last word of rank 0's. */
static double silent_s(const struct ct_service_job *job, uint64_t now_ms)
{
    return now_ms > job->progress_ms ? (double)(now_ms - job->progress_ms) / 1e3 : 0;
}

/* For how long the job has run, which its agents know longer than a daemon started again. */
static double elapsed_s(const struct ct_service_job *job, uint64_t now_ms)
{
    return job->elapsed_s + silent_s(job, now_ms);
}

/* Since when the job is in its phase. */
static double phase_s(const struct ct_service_job *job, uint64_t now_ms)
{
    uint64_t since_ms = ct_rdzv_phase_since_ms(job->core);

    return now_ms > since_ms ? (double)(now_ms - since_ms) / 1e3 : 0;
}

static double left_s(const struct ct_service_job *job, uint64_t now_ms)
{
    return fmax(job->progress.eta_s - silent_s(job, now_ms), 0);
}

/* Why the job was restarted last: "rank 1 on vm exited with status 3". Nothing where it was not. */
static void print_failure_cause(const struct ct_service_job *job, struct ct_buf *out)
{
    const struct ct_wire_failure *cause = ct_rdzv_last_cause(job->core);
    char end[CT_FAILURE_END];

    if (cause == NULL)
        return;
    if (cause->rank < 0) {
        (void)ct_buf_printf(out, "node %s was lost", cause->host);
        return;
    }
    (void)ct_buf_printf(out, "rank %d on %s %s", cause->rank, cause->host,
                        ct_failure_end(cause, end));
}

/* The next line of `*text`, which moves behind it; its length. */
static size_t next_line(const char **text)
{
    size_t length = strcspn(*text, "\n");
    *text += length + ((*text)[length] == '\n');
    return length;
}

/* ---- for people ---- */

/* How far the training is, for how long its job has run, and how long the rest would take. */
static void put_training(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const struct ct_msg_progress *p = &job->progress;
    const struct ct_rdzv_publication *published = ct_rdzv_published(job->core);
    char text[CT_SCALE_SIZE];

    if (p->step > 0) {
        (void)ct_buf_printf(out, "  training   step %" PRIu64 " of %" PRIu64, p->step, p->steps);
        if (p->steps > 0)
            (void)ct_buf_printf(out, " (%.0f %%)", percent_of(p));
        (void)ct_buf_printf(out, ", loss %.4f, %.0f samples/s\n", p->loss, p->samples_per_s);
        (void)ct_buf_printf(out, "  elapsed    %s", ct_scale_clock(elapsed_s(job, now_ms), text));
        if (p->eta_s >= 0 && p->step < p->steps)
            (void)ct_buf_printf(out, ", about %s left", ct_scale_clock(left_s(job, now_ms), text));
        (void)ct_buf_puts(out, "\n");
    }
    if (published->generation > 0)
        (void)ct_buf_printf(out, "  saved      checkpoint of step %" PRIu64 "\n", published->step);
}

static void put_restart(const struct ct_service_job *job, struct ct_buf *out)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    print_failure_cause(job, &text);
    if (text.size > 0)
        (void)ct_buf_printf(out, "  restarted  because %s\n", ct_buf_str(&text));
    ct_buf_deinit(&text);
}

static void put_waits(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const char *at = waits_of(job, now_ms);
    while (at != NULL && *at != '\0') {
        const char *line = at;
        char text[512];
        (void)snprintf(text, sizeof(text), "%.*s", (int)next_line(&at), line);
        (void)ct_buf_puts(out, "  store      ");
        ct_buf_put_clean(out, text, "");
        (void)ct_buf_puts(out, "\n");
    }
}

static void put_cordons(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const struct ct_rdzv_cordon *cordon;
    for (size_t i = 0; (cordon = ct_rdzv_cordon(job->core, i)) != NULL; i++) {
        double left_s = cordon_left_s(cordon, now_ms);
        (void)ct_buf_printf(out, "  cordoned   %s", cordon->host);
        if (left_s >= 0)
            (void)ct_buf_printf(out, " for %.0f s more", left_s);
        (void)ct_buf_printf(out, "%s%s\n", cordon->reason[0] != '\0' ? ": " : "", cordon->reason);
    }
}

static void put_node(const struct ct_service_job *job, const struct ct_rdzv_member *member,
                     uint64_t now_ms, struct ct_buf *out)
{
    static const char *const words[] = {[CT_RDZV_STANDBY] = "waiting",
                                        [CT_RDZV_PREPARING] = "stopping",
                                        [CT_RDZV_PROMISED] = "ready",
                                        [CT_RDZV_ACTING] = "working",
                                        [CT_RDZV_DONE] = "done"};
    const struct ct_rdzv_place *place = place_of(job, member);
    (void)ct_buf_printf(out, "  %-20s %-8s", member->host, words[member->state]);
    if (place != NULL && place->slots > 1)
        (void)ct_buf_printf(out, " node %d, ranks %u to %u", member->place, place->first_rank,
                            place->first_rank + place->slots - 1);
    else if (place != NULL)
        (void)ct_buf_printf(out, " node %d, rank %u", member->place, place->first_rank);
    else
        (void)ct_buf_printf(out, " %u slot%s", member->slots, member->slots == 1 ? "" : "s");
    (void)ct_buf_printf(out, ", heard %.1f s ago%s%s\n", since_contact_s(member, now_ms),
                        member->leaving ? ", leaving" : "",
                        member->link == 0 ? ", not connected" : "");
}

void ct_admin_describe(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const struct ct_rdzv *core = job->core;
    const struct ct_rdzv_params *p = ct_rdzv_params(core);
    char line[1024];
    ct_rdzv_describe(core, line, sizeof(line));
    (void)ct_buf_printf(out, "%s\n", line);
    if (ct_rdzv_generation(core) > 1)
        (void)ct_buf_printf(out, "  round      %" PRIu64 ", begun because %s; nodes %u:%u\n",
                            ct_rdzv_generation(core),
                            ct_rdzv_reason_name(ct_rdzv_last_reason(core)), p->nodes_min,
                            p->nodes_max);
    put_restart(job, out);
    put_training(job, now_ms, out);
    put_waits(job, now_ms, out);
    put_cordons(job, now_ms, out);
    if (trouble_of(job)[0] != '\0')
        (void)ct_buf_printf(out, "  DEGRADED   no new round can begin, training goes on: %s\n",
                            trouble_of(job));
    for (size_t i = 0; i < ct_rdzv_capacity(core); i++)
        if (is_node(ct_rdzv_member(core, i)))
            put_node(job, ct_rdzv_member(core, i), now_ms, out);
}

/* ---- for programs ---- */

static void put_key(struct ct_buf *out, const char *key, const char *text)
{
    (void)ct_buf_printf(out, "\"%s\":", key);
    ct_json_string(out, text);
    (void)ct_buf_puts(out, ",");
}

static void put_number(struct ct_buf *out, const char *key, double value)
{
    (void)ct_buf_printf(out, "\"%s\":", key);
    ct_json_number(out, value);
    (void)ct_buf_puts(out, ",");
}

/* Replace the comma behind the last member by the end of the object. */
static void end_object(struct ct_buf *out)
{
    if (out->size > 0 && out->data[out->size - 1] == ',')
        out->size--;
    (void)ct_buf_puts(out, "}");
}

static const char *const lives[] = {"runs", "stopped", "ended", "down"};

static void put_rank_json(const struct ct_wire_rank_figures *rank, struct ct_buf *out)
{
    (void)ct_buf_puts(out, "{");
    put_number(out, "rank", rank->rank);
    put_number(out, "pid", rank->pid);
    put_key(out, "state", rank->life < CT_COUNT(lives) ? lives[rank->life] : "");
    put_number(out, "memory", (double)rank->memory);
    if (rank->step > 0)
        put_number(out, "step", (double)rank->step);
    if (rank->step_s > 0)
        put_number(out, "step_s", rank->step_s);
    if (rank->waits_s > 0)
        put_number(out, "waits_s", rank->waits_s);
    if (rank->awaits >= 0)
        put_number(out, "awaits", rank->awaits);
    end_object(out);
}

/* What the node's agent has told while somebody looked. */
static void put_figures_json(const struct ct_node_figures *figures, struct ct_buf *out)
{
    put_number(out, "memory", (double)figures->memory);
    put_number(out, "memory_total", (double)figures->memory_total);
    put_number(out, "load", figures->load);
    if (figures->trouble[0] != '\0')
        put_key(out, "gpu_trouble", figures->trouble);
    (void)ct_buf_puts(out, "\"ranks\":[");
    for (uint32_t i = 0; i < figures->count; i++) {
        (void)ct_buf_puts(out, i > 0 ? "," : "");
        put_rank_json(&figures->ranks[i], out);
    }
    (void)ct_buf_puts(out, "],");
}

static void put_node_json(const struct ct_service_job *job, size_t number, uint64_t now_ms,
                          struct ct_buf *out)
{
    const struct ct_rdzv_member *member = ct_rdzv_member(job->core, number);
    const struct ct_rdzv_place *place = place_of(job, member);
    const struct ct_node_figures *figures =
        ct_figures_find(&job->figures, (uint32_t)number, member->id, now_ms);
    const bool has_room = out->limit == 0 || out->size < out->limit / 2; /* of large jobs */
    (void)ct_buf_puts(out, "{");
    put_key(out, "host", member->host);
    put_key(out, "state", ct_rdzv_member_state_name(member->state));
    put_number(out, "slots", member->slots);
    if (place != NULL) {
        put_number(out, "node_rank", member->place);
        put_number(out, "first_rank", place->first_rank);
    }
    put_number(out, "heard_s", since_contact_s(member, now_ms));
    if (figures != NULL && has_room)
        put_figures_json(figures, out);
    (void)ct_buf_printf(out, "\"connected\":%s,\"leaving\":%s",
                        member->link != 0 ? "true" : "false", member->leaving ? "true" : "false");
    end_object(out);
}

static void put_waits_json(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const char *at = waits_of(job, now_ms);
    const char *separator = "";
    if (at == NULL)
        return;
    (void)ct_buf_puts(out, "\"store_waits\":[");
    while (*at != '\0') {
        char line[512];
        const char *begin = at;
        size_t length = next_line(&at);
        (void)snprintf(line, sizeof(line), "%.*s", (int)length, begin);
        (void)ct_buf_puts(out, separator);
        ct_json_string(out, line);
        separator = ",";
    }
    (void)ct_buf_puts(out, "],");
}

static void put_cordons_json(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const struct ct_rdzv_cordon *cordon;
    (void)ct_buf_puts(out, "\"cordons\":[");
    for (size_t i = 0; (cordon = ct_rdzv_cordon(job->core, i)) != NULL; i++) {
        (void)ct_buf_puts(out, i > 0 ? ",{" : "{");
        put_key(out, "host", cordon->host);
        put_key(out, "reason", cordon->reason);
        if (cordon_left_s(cordon, now_ms) >= 0)
            put_number(out, "left_s", cordon_left_s(cordon, now_ms));
        end_object(out);
    }
    (void)ct_buf_puts(out, "],");
}

/* How many nodes are in each state. */
static void put_node_counts(const struct ct_service_job *job, struct ct_buf *out)
{
    size_t counts[CT_RDZV_MEMBER_STATES] = {0};
    const char *separator = "";

    for (size_t i = 0; i < ct_rdzv_capacity(job->core); i++)
        counts[ct_rdzv_member(job->core, i)->state]++;
    (void)ct_buf_puts(out, "\"node_states\":{");
    for (enum ct_rdzv_member_state state = CT_RDZV_FREE + 1; state < CT_RDZV_MEMBER_STATES;
         state++) {
        (void)ct_buf_printf(out, "%s\"%s\":%zu", separator, ct_rdzv_member_state_name(state),
                            counts[state]);
        separator = ",";
    }
    (void)ct_buf_puts(out, "}");
}

static void put_nodes_json(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const char *separator = "";

    (void)ct_buf_puts(out, "\"nodes\":[");
    for (size_t i = 0; i < ct_rdzv_capacity(job->core); i++) {
        if (!is_node(ct_rdzv_member(job->core, i)))
            continue;
        (void)ct_buf_puts(out, separator);
        put_node_json(job, i, now_ms, out);
        separator = ",";
    }
    (void)ct_buf_puts(out, "]");
}

static void put_training_json(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const struct ct_msg_progress *p = &job->progress;

    if (p->step == 0)
        return;
    put_number(out, "step", (double)p->step);
    put_number(out, "steps", (double)p->steps);
    if (p->steps > 0)
        put_number(out, "percent", percent_of(p));
    put_number(out, "loss", p->loss);
    put_number(out, "samples_per_s", p->samples_per_s);
    put_number(out, "elapsed_s", elapsed_s(job, now_ms));
    if (p->eta_s >= 0)
        put_number(out, "eta_s", left_s(job, now_ms));
}

static void put_restart_json(const struct ct_service_job *job, struct ct_buf *out)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    print_failure_cause(job, &text);
    if (ct_rdzv_generation(job->core) > 1)
        put_key(out, "round_reason", ct_rdzv_reason_name(ct_rdzv_last_reason(job->core)));
    if (text.size > 0)
        put_key(out, "restart_reason", ct_buf_str(&text));
    ct_buf_deinit(&text);
}

void ct_admin_describe_json(const struct ct_service_job *job, uint64_t now_ms, size_t nodes_max,
                            struct ct_buf *out)
{
    const struct ct_rdzv *core = job->core;
    const struct ct_rdzv_params *p = ct_rdzv_params(core);
    const struct ct_rdzv_publication *published = ct_rdzv_published(core);
    char line[1024];
    ct_rdzv_describe(core, line, sizeof(line));
    (void)ct_buf_puts(out, "{");
    put_key(out, "job", ct_rdzv_name(core));
    put_key(out, "phase", ct_rdzv_phase_name(ct_rdzv_phase(core)));
    put_number(out, "phase_s", phase_s(job, now_ms));
    put_key(out, "why", line);
    put_number(out, "epoch", (double)job->service->epoch);
    put_number(out, "generation", (double)ct_rdzv_generation(core));
    put_number(out, "world", ct_rdzv_roster(core)->world);
    put_number(out, "nodes_min", p->nodes_min);
    put_number(out, "nodes_max", p->nodes_max);
    put_number(out, "restarts", ct_rdzv_restarts(core));
    put_number(out, "max_restarts", p->max_restarts);
    put_restart_json(job, out);
    put_training_json(job, now_ms, out);
    if (published->generation > 0) {
        put_number(out, "published_step", (double)published->step);
        put_number(out, "published_generation", (double)published->generation);
        if (job->history->published_step == published->step && job->history->published_bytes > 0)
            put_number(out, "published_bytes", (double)job->history->published_bytes);
    }
    put_key(out, "journal", trouble_of(job)[0] != '\0' ? trouble_of(job) : "in order");
    put_waits_json(job, now_ms, out);
    put_cordons_json(job, now_ms, out);
    if (ct_rdzv_capacity(core) <= nodes_max)
        put_nodes_json(job, now_ms, out);
    else
        put_node_counts(job, out);
    end_object(out);
}
