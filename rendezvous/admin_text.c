/* The status of a job: one screen for people, one object for programs. */
#include "rendezvous/admin.h"

#include "rendezvous/service_state.h"

#include "base/json.h"

#include <inttypes.h>
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

static double heard_s(const struct ct_rdzv_member *member, uint64_t now_ms)
{
    return now_ms > member->heard_ms ? (double)(now_ms - member->heard_ms) / 1e3 : 0;
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

/* The next line of `*text`, which moves behind it; its length. */
static size_t next_line(const char **text)
{
    size_t length = strcspn(*text, "\n");
    *text += length + ((*text)[length] == '\n');
    return length;
}

/* ---- for people ---- */

static void put_training(const struct ct_service_job *job, struct ct_buf *out)
{
    const struct ct_msg_progress *p = &job->progress;
    const struct ct_rdzv_publication *published = ct_rdzv_published(job->core);
    if (p->step > 0)
        (void)ct_buf_printf(
            out, "  training   step %" PRIu64 " of %" PRIu64 ", loss %.4f, %.0f samples/s\n",
            p->step, p->steps, p->loss, p->samples_per_s);
    if (published->generation > 0)
        (void)ct_buf_printf(out, "  published  step %" PRIu64 " by round %" PRIu64 "\n",
                            published->step, published->generation);
}

static void put_waits(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const char *at = waits_of(job, now_ms);
    while (at != NULL && *at != '\0') {
        const char *line = at;
        size_t length = next_line(&at);
        (void)ct_buf_printf(out, "  store      %.*s\n", (int)length, line);
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
    const struct ct_rdzv_place *place = place_of(job, member);
    (void)ct_buf_printf(out, "  %-24s %-9s", member->host,
                        ct_rdzv_member_state_name(member->state));
    if (place != NULL)
        (void)ct_buf_printf(out, " node %d, ranks %u to %u", member->place, place->first_rank,
                            place->first_rank + place->slots - 1);
    else
        (void)ct_buf_printf(out, " %u slots", member->slots);
    (void)ct_buf_printf(out, ", heard %.1f s ago%s%s\n", heard_s(member, now_ms),
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
    (void)ct_buf_printf(out,
                        "  round      %s, generation %" PRIu64 ", epoch %" PRIu64
                        ", %u nodes and %u ranks (nodes %u:%u, restarts %u of %u)\n",
                        ct_rdzv_phase_name(ct_rdzv_phase(core)), ct_rdzv_generation(core),
                        job->service->epoch, ct_rdzv_roster(core)->count,
                        ct_rdzv_roster(core)->world, p->nodes_min, p->nodes_max,
                        ct_rdzv_restarts(core), p->max_restarts);
    put_training(job, out);
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

static void put_node_json(const struct ct_service_job *job, const struct ct_rdzv_member *member,
                          uint64_t now_ms, struct ct_buf *out)
{
    const struct ct_rdzv_place *place = place_of(job, member);
    (void)ct_buf_puts(out, "{");
    put_key(out, "host", member->host);
    put_key(out, "state", ct_rdzv_member_state_name(member->state));
    put_number(out, "slots", member->slots);
    if (place != NULL) {
        put_number(out, "node_rank", member->place);
        put_number(out, "first_rank", place->first_rank);
    }
    put_number(out, "heard_s", heard_s(member, now_ms));
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

static void put_lists_json(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
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
    (void)ct_buf_puts(out, "],\"nodes\":[");
    const char *separator = "";
    for (size_t i = 0; i < ct_rdzv_capacity(job->core); i++) {
        if (!is_node(ct_rdzv_member(job->core, i)))
            continue;
        (void)ct_buf_puts(out, separator);
        put_node_json(job, ct_rdzv_member(job->core, i), now_ms, out);
        separator = ",";
    }
    (void)ct_buf_puts(out, "]");
}

void ct_admin_describe_json(const struct ct_service_job *job, uint64_t now_ms, struct ct_buf *out)
{
    const struct ct_rdzv *core = job->core;
    const struct ct_rdzv_params *p = ct_rdzv_params(core);
    const struct ct_rdzv_publication *published = ct_rdzv_published(core);
    char line[1024];
    ct_rdzv_describe(core, line, sizeof(line));
    (void)ct_buf_puts(out, "{");
    put_key(out, "job", ct_rdzv_name(core));
    put_key(out, "phase", ct_rdzv_phase_name(ct_rdzv_phase(core)));
    put_key(out, "why", line);
    put_number(out, "epoch", (double)job->service->epoch);
    put_number(out, "generation", (double)ct_rdzv_generation(core));
    put_number(out, "world", ct_rdzv_roster(core)->world);
    put_number(out, "nodes_min", p->nodes_min);
    put_number(out, "nodes_max", p->nodes_max);
    put_number(out, "restarts", ct_rdzv_restarts(core));
    put_number(out, "max_restarts", p->max_restarts);
    if (job->progress.step > 0) {
        put_number(out, "step", (double)job->progress.step);
        put_number(out, "steps", (double)job->progress.steps);
        put_number(out, "loss", job->progress.loss);
        put_number(out, "samples_per_s", job->progress.samples_per_s);
    }
    if (published->generation > 0) {
        put_number(out, "published_step", (double)published->step);
        put_number(out, "published_generation", (double)published->generation);
    }
    put_key(out, "journal", trouble_of(job)[0] != '\0' ? trouble_of(job) : "in order");
    put_waits_json(job, now_ms, out);
    put_lists_json(job, now_ms, out);
    end_object(out);
}
