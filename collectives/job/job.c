/* See ctrun.h, part "the job". */
#include "base/arena.h"
#include "base/assert.h"
#include "base/str.h"
#include "job/job_link.h"
#include "job/job_resource.h"
#include "job/job_state.h"
#include "wire/node_runs.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ASSIGN_ARENA_BYTES = 8 << 20 };

/* ---- opening ---------------------------------------------------------------------------------*/

/* The descriptor in an environment variable; -1 when it is not set. */
static int descriptor_from(const char *name, int *ret_fd, struct ct_error *err)
{
    const char *text = getenv(name);
    int64_t fd;

    *ret_fd = -1;
    if (text == NULL || *text == '\0')
        return 0;
    if (ct_parse_i64(text, &fd) != 0 || fd < 0 || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0)
        return ct_error_set(err, CT_EUSAGE,
                            "%s=%s is no open descriptor: start this program "
                            "with ctrun, or without %s",
                            name, text, name);
    (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    *ret_fd = (int)fd;
    return 0;
}

/* A job of its own: nobody else, no store, never revoked. */
static int open_alone(struct ct_job *job, struct ct_error *err)
{
    job->nodes = calloc(1, sizeof *job->nodes);
    if (job->nodes == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a job");
    job->nodes[0].slots = 1;
    (void)ct_str_copy(job->run_id, sizeof job->run_id, "alone");
    job->assignment = (struct ct_assignment){.run_id = job->run_id,
                                             .generation = 1,
                                             .base_rank = -1,
                                             .world = 1,
                                             .local_world = 1,
                                             .nnodes = 1};
    return 0;
}

static int take_nodes(struct ct_job *job, const struct ct_msg_assign *assign, struct ct_error *err)
{
    const struct ct_node_runs runs = {assign->runs.data, assign->runs.count};
    uint64_t nodes = 0;
    int count = 0, first_rank = 0;

    for (uint32_t i = 0; i < runs.count; i++)
        nodes += runs.data[i].nodes;
    if (nodes == 0 || nodes > CT_WIRE_NODES ||
        !ct_node_runs_fit(runs, (uint32_t)nodes, assign->world) || assign->rank >= assign->world ||
        assign->world > INT_MAX || assign->base_rank >= (int64_t)assign->world)
        return ct_error_set(err, CT_EPROTOCOL,
                            "the agent's assignment does not add up: rank %u of %u",
                            (unsigned)assign->rank, (unsigned)assign->world);
    free(job->nodes); /* of the round before */
    job->nodes = calloc((size_t)nodes, sizeof *job->nodes);
    if (job->nodes == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a job");
    for (uint32_t i = 0; i < runs.count; i++)
        for (uint32_t k = 0; k < runs.data[i].nodes; k++) {
            int slots = (int)runs.data[i].slots;

            job->nodes[count++] = (struct ct_job_node){.first_rank = first_rank, .slots = slots};
            first_rank += slots;
        }
    job->assignment.nnodes = count;
    (void)ct_str_copy(job->address, sizeof job->address, assign->address);
    return 0;
}

static int take_assignment(struct ct_job *job, const struct ct_msg_assign *assign,
                           struct ct_error *err)
{
    int code = take_nodes(job, assign, err);

    if (code != 0)
        return code;
    (void)ct_str_copy(job->run_id, sizeof job->run_id, assign->run_id);
    job->assignment = (struct ct_assignment){.run_id = job->run_id,
                                             .generation = assign->generation,
                                             .lineage = assign->lineage,
                                             .base_step = assign->base_step,
                                             .base_rank = assign->base_rank,
                                             .published_generation = assign->published_generation,
                                             .published_step = assign->published_step,
                                             .rank = (int)assign->rank,
                                             .world = (int)assign->world,
                                             .local_rank = (int)assign->local_rank,
                                             .local_world = (int)assign->local_world,
                                             .node_rank = (int)assign->node_rank,
                                             .nnodes = job->assignment.nnodes,
                                             .restart_count = (int)assign->restart_count};
    ct_worker_record_place(job->record, assign->generation, assign->rank, assign->world);
    ct_job_names_reset(job->names);
    if (assign->store != 0)
        job->kv = ct_job_link_kv(job->link);
    return 0;
}

static int await_assignment(struct ct_job *job, struct ct_error *err)
{
    struct ct_msg_assign assign;
    struct ct_arena arena;

    ct_arena_init(&arena, ASSIGN_ARENA_BYTES);
    int code = ct_job_link_assignment(job->link, &arena, &assign, err);
    if (code != 0)
        ct_error_prefix(err, "no assignment from the agent");
    else
        code = take_assignment(job, &assign, err);
    ct_arena_deinit(&arena);
    return code;
}

/* An agent that gives no record does not watch. */
static int open_record(struct ct_job *job, int record_fd, struct ct_error *err)
{
    if (record_fd < 0)
        return 0;
    int code = ct_worker_record_open(record_fd, &job->record, err);
    (void)close(record_fd);
    ct_job_introduce(job);
    ct_job_at(job, CT_AT_START, 0);
    return code;
}

static int open_with_agent(struct ct_job *job, int control_fd, int page_fd, struct ct_error *err)
{
    int code = 0;

    if (page_fd >= 0) {
        code = ct_control_page_open(page_fd, &job->page, err);
        (void)close(page_fd);
    }
    if (code != 0) {
        (void)close(control_fd);
        return code;
    }
    job->link = ct_job_link_new(control_fd, job->page, job->record);
    if (job->link == NULL) {
        (void)close(control_fd);
        return ct_error_set(err, CT_ENOMEM, "no memory for the link to the agent");
    }
    return await_assignment(job, err);
}

int ct_job_open(struct ct_job **ret_job, struct ct_error *err)
{
    struct ct_job *job = NULL;
    int control_fd = -1, page_fd = -1, record_fd = -1;
    int code = descriptor_from("CTRUN_CONTROL_FD", &control_fd, err);

    if (code == 0)
        code = descriptor_from("CTRUN_PAGE_FD", &page_fd, err);
    if (code == 0)
        code = descriptor_from("CTRUN_RECORD_FD", &record_fd, err);
    if (code != 0)
        return code;
    job = calloc(1, sizeof *job);
    if (job == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a job");
    ct_memory_init(&job->memory);
    job->names = ct_job_names_new();
    if (job->names == NULL)
        code = ct_error_set(err, CT_ENOMEM, "no memory for a job");
    if (code == 0)
        code = open_record(job, record_fd, err);
    if (code == 0 && control_fd >= 0)
        code = open_with_agent(job, control_fd, page_fd, err);
    else if (code == 0)
        code = ct_launcher_mpi.launched() ? ct_launcher_mpi.open(job, err) : open_alone(job, err);
    if (code != 0) {
        ct_job_close(job);
        return code;
    }
    *ret_job = job;
    return 0;
}

void ct_job_close(struct ct_job *job)
{
    if (job == NULL)
        return;
    CT_ASSERT(job->world == NULL);
    ct_job_state_free(job->state);
    ct_job_resources_close(job);
    ct_job_link_free(job->link);
    if (job->page != NULL)
        ct_control_page_unmap(job->page);
    ct_worker_record_unmap(job->record);
    free(job->nodes);
    ct_job_names_free(job->names);
    ct_memory_deinit(&job->memory);
    free(job);
}

/* ---- looking ---------------------------------------------------------------------------------*/

const struct ct_assignment *ct_job_assignment(const struct ct_job *job)
{
    return &job->assignment;
}

const struct ct_job_node *ct_job_node(const struct ct_job *job, int rank)
{
    const struct ct_job_node *nodes = job->nodes;
    int from = 0, to = job->assignment.nnodes; /* it is in [from, to) */

    CT_ASSERT(rank >= 0 && rank < job->assignment.world);
    while (to - from > 1) {
        int middle = from + (to - from) / 2;

        if (rank < nodes[middle].first_rank)
            to = middle;
        else
            from = middle;
    }
    return &nodes[from];
}

bool ct_job_revoked(const struct ct_job *job)
{
    return ct_control_page_revoked(job->page, job->assignment.generation);
}

bool ct_job_stop_requested(struct ct_job *job, uint64_t *ret_deadline_ms)
{
    if (job->link == NULL)
        return false;
    if (!atomic_load(&job->link->stop))
        ct_job_link_poll(job->link);
    if (!atomic_load(&job->link->stop))
        return false;
    if (ret_deadline_ms != NULL)
        *ret_deadline_ms = atomic_load(&job->link->stop_deadline_ms);
    return true;
}

/* ---- telling ---------------------------------------------------------------------------------*/

static int send_message(struct ct_job *job, const struct ct_message *message)
{
    return job->link == NULL ? 0 : ct_job_link_send(job->link, message);
}

int ct_job_progress(struct ct_job *job, const struct ct_progress *progress)
{
    struct ct_message message = {
        .type = CT_MSG_PROGRESS,
        .progress = {.generation = job->assignment.generation,
                     .epoch = (uint32_t)progress->epoch,
                     .epochs = (uint32_t)progress->epochs,
                     .step = progress->step,
                     .steps = progress->steps,
                     .loss = progress->loss,
                     .samples_per_s = progress->samples_per_s,
                     .learning_rate = progress->learning_rate,
                     .eta_s = isnan(progress->eta_s) ? -1.0 : progress->eta_s,
                     .trained_s = progress->trained_s,
                     .saving_s = progress->saving_s,
                     .straggler_s = progress->straggler_s}};

    return send_message(job, &message);
}

int ct_job_evaluation(struct ct_job *job, const struct ct_job_evaluation *evaluation)
{
    struct ct_message message = {.type = CT_MSG_EVALUATION,
                                 .evaluation = {.generation = job->assignment.generation,
                                                .step = evaluation->step,
                                                .done = evaluation->done,
                                                .loss = evaluation->loss,
                                                .accuracy = evaluation->accuracy,
                                                .perplexity = evaluation->perplexity,
                                                .best = evaluation->best,
                                                .best_step = evaluation->best_step}};

    return send_message(job, &message);
}

int ct_job_summary(struct ct_job *job, const char *text)
{
    struct ct_message message = {
        .type = CT_MSG_SUMMARY,
        .summary = {.generation = job->assignment.generation, .text = text}};

    return send_message(job, &message);
}

int ct_job_output(struct ct_job *job, const char *folder)
{
    struct ct_message message = {
        .type = CT_MSG_OUTPUT,
        .output = {.generation = job->assignment.generation, .folder = folder}};

    return send_message(job, &message);
}

int ct_job_failure(struct ct_job *job, const struct ct_error *failure)
{
    struct ct_message message = {.type = CT_MSG_FAULT,
                                 .fault = {.generation = job->assignment.generation,
                                           .code = failure->code,
                                           .text = failure->text}};

    ct_job_resources_give_up(job);
    return send_message(job, &message);
}

void ct_job_give_up(struct ct_job *job, const struct ct_error *why)
{
    if (job->give_up != NULL) {
        job->give_up(job, why);
        return;
    }
    (void)ct_job_failure(job, why);
    (void)raise(SIGKILL);
}

/* ---- living on -------------------------------------------------------------------------------*/

int ct_job_survive(struct ct_job *job)
{
    struct ct_message message = {.type = CT_MSG_READY, .ready = {.survivable = 1}};

    return send_message(job, &message);
}

int ct_job_healed(struct ct_job *job)
{
    struct ct_message message = {.type = CT_MSG_RECOVERED,
                                 .recovered = {.generation = job->assignment.generation}};

    return send_message(job, &message);
}

bool ct_job_boundary_requested(const struct ct_job *job)
{
    return ct_control_page_boundary_due(job->page, job->assignment.generation);
}

int ct_job_regroup(struct ct_job *job, const struct ct_ready *ready, struct ct_error *err)
{
    struct ct_message message = {.type = CT_MSG_READY,
                                 .ready = {.generation = job->assignment.generation,
                                           .survivable = 1,
                                           .lineage = ready->lineage,
                                           .step = ready->step,
                                           .digest = ready->digest}};

    if (job->link == NULL)
        return ct_error_set(err, CT_EUNSUPPORTED, "there is no agent that makes another round");
    int code = send_message(job, &message);
    if (code != 0)
        return ct_error_set(err, code, "the agent does not answer: %s", ct_strerror(code));
    ct_job_away(job);
    code = await_assignment(job, err);
    ct_job_at(job, CT_AT_START, 0);
    return code;
}

/* ---- publishing ------------------------------------------------------------------------------*/

int ct_job_publish_sized(struct ct_job *job, uint64_t step, uint64_t digest, uint64_t bytes)
{
    const struct ct_msg_publish publish = {
        .generation = job->assignment.generation, .step = step, .digest = digest, .bytes = bytes};

    return job->link == NULL ? 0 : ct_job_link_publish(job->link, &publish);
}

int ct_job_publish(struct ct_job *job, uint64_t step, uint64_t digest)
{
    return ct_job_publish_sized(job, step, digest, 0);
}

int ct_job_published(struct ct_job *job, int timeout_ms, struct ct_error *err)
{
    return job->link == NULL ? 0 : ct_job_link_published(job->link, timeout_ms, err);
}
