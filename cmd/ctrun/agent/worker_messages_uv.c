/* What this node's workers say, and what goes back to them: the store, publications, where they
 * stand between two rounds. */
#include "node_state_uv.h"

#include "base/str.h"

/* ---- the store ------------------------------------------------------------------------------ */

static void reply(struct node *node, uint32_t local_rank, uint64_t request, int code)
{
    const struct ct_message message = {
        .type = CT_MSG_STORE_REPLY,
        .store_reply = {.request = request, .generation = node->running, .code = code},
    };

    ct_workers_send(node->workers, local_rank, &message);
}

/* The number that a store request of a worker carries. */
static uint64_t request_of(const struct ct_message *message)
{
    switch (message->type) {
    case CT_MSG_STORE_SET:
        return message->store_set.request;
    case CT_MSG_STORE_GET:
        return message->store_get.request;
    case CT_MSG_STORE_ADD:
        return message->store_add.request;
    case CT_MSG_STORE_CAS:
        return message->store_cas.request;
    case CT_MSG_STORE_WAIT:
        return message->store_wait.request;
    default:
        return message->store_delete.request;
    }
}

static void pass_on(struct node *node, uint32_t local_rank, const struct ct_message *message)
{
    const struct ct_call call = {local_rank, request_of(message), node->running};
    struct ct_call back;
    uint64_t number;
    int rc = node->agent != NULL ? ct_calls_add(&node->calls, &call, &number) : CT_ECLOSED;

    if (rc == 0) {
        rc = ct_agent_store(node->agent, number, message);
        if (rc != 0)
            (void)ct_calls_take(&node->calls, number, &back);
    }
    if (rc != 0)
        reply(node, local_rank, call.request, rc);
}

void messages_store_reply(void *context, const struct ct_msg_store_reply *answer)
{
    struct node *node = context;
    struct ct_message message = {.type = CT_MSG_STORE_REPLY, .store_reply = *answer};
    struct ct_call call;

    if (!ct_calls_take(&node->calls, answer->request, &call))
        return;
    if (call.local_rank == INQUIRY_CALLER)
        inquiry_reply(node->inquiry, call.request, answer);
    if (call.local_rank == INQUIRY_CALLER || call.generation != node->running)
        return;
    message.store_reply.request = call.request;
    ct_workers_send(node->workers, call.local_rank, &message);
}

/* ---- publications --------------------------------------------------------------------------- */

static void answer_publication(struct node *node, int code, const char *text)
{
    const struct ct_message message = {
        .type = CT_MSG_PUBLISHED,
        .published = {.generation = node->publication.generation,
                      .step = node->publication.step,
                      .code = code,
                      .text = text},
    };

    node->publication_open = false;
    ct_workers_send(node->workers, node->publisher, &message);
}

/* Nobody will ask the rendezvous any more. After the job's last round nothing can contradict what
 * it has made. */
static void answer_at_the_end(struct node *node)
{
    if (node->closed_generation != 0 && node->closed_generation == node->publication.generation)
        answer_publication(node, 0, "");
    else if (node->closed_generation != 0 || node->released)
        answer_publication(node, CT_EFENCED, "the job has gone on without this node");
    else
        answer_publication(node, CT_ECLOSED, "the rendezvous is gone");
}

void messages_publication_due(struct node *node)
{
    if (!node->publication_open)
        return;
    if (node->agent == NULL)
        answer_at_the_end(node);
    else if (!node_is_stopped(node)) /* else the job's end answers it */
        (void)ct_agent_publish(node->agent, &node->publication);
    /* CT_ELIMIT: an older one is still open, this one follows its answer. */
}

void messages_published(void *context, const struct ct_msg_published *answer)
{
    struct node *node = context;
    bool ends = answer->code != 0 && node_is_stopped(node);

    if (answer->generation == node->publication.generation &&
        answer->step == node->publication.step && node->publication_open && !ends)
        answer_publication(node, answer->code, answer->text);
    else
        messages_publication_due(node);
}

static void on_publish(struct node *node, uint32_t local_rank, const struct ct_msg_publish *publish)
{
    node->publication = *publish;
    node->publication_open = true;
    node->publisher = local_rank;
    messages_publication_due(node);
}

/* ---- between rounds ------------------------------------------------------------------------- */

/* It can live on, or has left its round. */
static void on_ready(struct node *node, uint32_t local_rank, const struct ct_msg_ready *ready)
{
    struct ct_survivor *survivor = &node->survivors[local_rank];

    node_trace(node, "> ready %u g%llu", local_rank, (unsigned long long)ready->generation);
    if (ready->survivable != 0 && !survivor->able) {
        survivor->able = survivor->idle = true;
        ct_workers_keep(node->workers, local_rank);
    }
    if (ready->generation > 0)
        survivor->idle = false;
    if (node->round == NULL || ready->generation != node->round->generation)
        return;
    survivor->ready = true;
    survivor->lineage = ready->lineage;
    survivor->step = ready->step;
    survivor->digest = ready->digest;
    member_ready(node);
}

static void on_healed(struct node *node, uint32_t local_rank, const struct ct_msg_healed *healed)
{
    struct ct_survivor *survivor = &node->survivors[local_rank];

    node_trace(node, "> healed %u g%llu", local_rank, (unsigned long long)healed->generation);
    survivor->idle = false;
    survivor->healed = healed->generation;
    if (node->agent != NULL && node->running == healed->generation &&
        ct_survivors_healed(node->survivors, node->job->slots, healed->generation)) {
        node_trace(node, "< healed g%llu", (unsigned long long)healed->generation);
        ct_agent_healed(node->agent, healed->generation);
    }
}

/* To the console, and to the rendezvous with how long this node has been at it. */
static void on_progress(struct node *node, const struct ct_msg_progress *message)
{
    struct ct_msg_progress progress = *message;

    progress.elapsed_s = (double)(uv_now(&node->loop) - node->started_ms) / 1000;
    words_progress(node, &progress);
    if (node->agent != NULL && node->running != 0)
        ct_agent_progress(node->agent, &progress);
}

void messages_take(void *context, uint32_t local_rank, const struct ct_message *message)
{
    struct node *node = context;

    switch (message->type) {
    case CT_MSG_STORE_SET:
    case CT_MSG_STORE_GET:
    case CT_MSG_STORE_ADD:
    case CT_MSG_STORE_CAS:
    case CT_MSG_STORE_WAIT:
    case CT_MSG_STORE_DELETE:
        pass_on(node, local_rank, message);
        break;
    case CT_MSG_OUTPUT:
        (void)ct_str_copy(node->run_folder, sizeof node->run_folder, message->output.folder);
        break;
    case CT_MSG_PROGRESS:
        on_progress(node, &message->progress);
        break;
    case CT_MSG_EVALUATION:
        words_evaluation(node, &message->evaluation);
        break;
    case CT_MSG_SUMMARY:
        words_summary(node, message->summary.text);
        break;
    case CT_MSG_READY:
        on_ready(node, local_rank, &message->ready);
        break;
    case CT_MSG_HEALED:
        on_healed(node, local_rank, &message->healed);
        break;
    case CT_MSG_PUBLISH:
        on_publish(node, local_rank, &message->publish);
        break;
    default:
        break;
    }
}
