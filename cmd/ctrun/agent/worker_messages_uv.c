/* What this node's workers send: store operations go to the rendezvous, where they stand goes to
 * the core. */
#include "node_state_uv.h"

#include "base/str.h"

/* ---- the store ------------------------------------------------------------------------------ */

static void reply(struct node *node, uint32_t local_rank, uint64_t request, int code)
{
    const struct ct_message message = {
        .type = CT_MSG_STORE_REPLY,
        .store_reply = {.request = request, .generation = node->core.running, .code = code},
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
    const struct ct_call call = {local_rank, request_of(message), node->core.running};
    struct ct_call back;
    uint64_t number;
    int rc = node->agent != NULL ? ct_calls_add(&node->calls, &call, &number) : CT_ECLOSED;

    if (rc == 0) {
        rc = ct_agent_store(node->agent, number, message);
        if (rc != 0)
            (void)ct_calls_remove(&node->calls, number, &back);
    }
    if (rc != 0)
        reply(node, local_rank, call.request, rc);
}

void messages_store_reply(void *context, const struct ct_msg_store_reply *answer)
{
    struct node *node = context;
    struct ct_message message = {.type = CT_MSG_STORE_REPLY, .store_reply = *answer};
    struct ct_call call;

    if (!ct_calls_remove(&node->calls, answer->request, &call))
        return;
    if (call.local_rank == INQUIRY_CALLER)
        inquiry_reply(node->inquiry, call.request, answer);
    else if (call.local_rank == SCRIPT_WATCH_CALLER)
        script_watch_reply(node->scripts, call.request, call.generation, answer);
    if (call.local_rank >= SCRIPT_WATCH_CALLER || call.generation != node->core.running)
        return;
    message.store_reply.request = call.request;
    ct_workers_send(node->workers, call.local_rank, &message);
}

/* ---- where they stand ----------------------------------------------------------------------- */

static void on_publish(struct node *node, uint32_t local_rank, const struct ct_msg_publish *publish)
{
    node->publication = *publish;
    node_feed(node, &(struct agent_event){
                        .kind = AGENT_ON_PUBLISH,
                        .local_rank = local_rank,
                        .generation = publish->generation,
                        .held.step = publish->step,
                    });
}

/* It can live on, or has left its round. */
static void on_ready(struct node *node, uint32_t local_rank, const struct ct_msg_ready *ready)
{
    node_feed(node, &(struct agent_event){
                        .kind = AGENT_ON_READY,
                        .local_rank = local_rank,
                        .generation = ready->generation,
                        .able = ready->survivable != 0,
                        .held = {ready->lineage, ready->step, ready->digest},
                    });
}

static void on_recovered(struct node *node, uint32_t local_rank,
                         const struct ct_msg_recovered *recovered)
{
    node_feed(node, &(struct agent_event){
                        .kind = AGENT_ON_RECOVERED,
                        .local_rank = local_rank,
                        .generation = recovered->generation,
                    });
}

/* To the console, and to the rendezvous with how long this node has been at it. */
static void on_progress(struct node *node, const struct ct_msg_progress *message)
{
    struct ct_msg_progress progress = *message;

    progress.elapsed_s = (double)(uv_now(&node->loop) - node->started_ms) / 1000;
    show_progress(node, &progress);
    if (node->agent != NULL && node->core.running != 0)
        ct_agent_progress(node->agent, &progress);
}

void messages_receive(void *context, uint32_t local_rank, const struct ct_message *message)
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
        (void)ct_str_copy(node->training.run_folder, sizeof node->training.run_folder,
                          message->output.folder);
        wandb_follow(node->wandb, node->training.run_folder);
        break;
    case CT_MSG_PROGRESS:
        on_progress(node, &message->progress);
        break;
    case CT_MSG_EVALUATION:
        show_evaluation(node, &message->evaluation);
        break;
    case CT_MSG_SUMMARY:
        show_summary(node, message->summary.text);
        break;
    case CT_MSG_READY:
        on_ready(node, local_rank, &message->ready);
        break;
    case CT_MSG_RECOVERED:
        on_recovered(node, local_rank, &message->recovered);
        break;
    case CT_MSG_PUBLISH:
        on_publish(node, local_rank, &message->publish);
        break;
    default:
        break;
    }
}
