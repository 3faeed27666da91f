/* See job_link.h. */
#include "job/job_link.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* SLICE_MS: how often a wait looks at the control page. GRACE_MS: what the agent may take longer
 * than the wait that it was asked for: it goes on without a daemon for a while, repeats what was
 * not answered when there is one again, and revokes the round when there is none. */
enum { SEND_MS = 5000, SLICE_MS = 10, GRACE_MS = 1800 * 1000, ARENA_BYTES = 4 << 20 };

struct ct_job_link *ct_job_link_new(int fd, const struct ct_control_page *page,
                                    struct ct_worker_record *record)
{
    struct ct_job_link *link = calloc(1, sizeof *link);

    if (link == NULL)
        return NULL;
    ct_link_init(&link->link, fd, CT_FROM_AGENT);
    ct_frame_reader_init(&link->assigned, CT_FROM_AGENT, CT_WIRE_ROSTER);
    link->page = page;
    link->record = record;
    (void)pthread_mutex_init(&link->sending, NULL);
    (void)pthread_mutex_init(&link->receiving, NULL);
    return link;
}

void ct_job_link_free(struct ct_job_link *link)
{
    if (link == NULL)
        return;
    (void)close(link->link.fd);
    ct_link_deinit(&link->link);
    ct_frame_reader_deinit(&link->assigned);
    (void)pthread_mutex_destroy(&link->sending);
    (void)pthread_mutex_destroy(&link->receiving);
    free(link);
}

int ct_job_link_send(struct ct_job_link *link, const struct ct_message *message)
{
    (void)pthread_mutex_lock(&link->sending);
    int code = ct_link_send(&link->link, message, SEND_MS, NULL);
    (void)pthread_mutex_unlock(&link->sending);
    return code;
}

static void receive_answer(struct ct_job_publication *asked, const struct ct_msg_published *answer)
{
    if (!asked->open || answer->generation != asked->generation || answer->step != asked->step)
        return;
    asked->open = false;
    asked->answer = (struct ct_error){.code = 0};
    if (answer->code != 0)
        (void)ct_error_set(&asked->answer, answer->code, "%s", answer->text);
}

/* The next round may begin while this process is still on its way into an older one. */
static void queue_assignment(struct ct_job_link *link, const struct ct_message *message)
{
    struct ct_buf frame;

    ct_buf_init(&frame, 0);
    if (message->assign.generation > link->generation &&
        ct_wire_encode(message, link->assigned_count, &frame, NULL) == 0 &&
        ct_frame_reader_push(&link->assigned, frame.data, frame.size) == 0)
        link->assigned_count++;
    ct_buf_deinit(&frame);
}

/* What comes unasked. Replies to requests that were given up are dropped. */
static void receive_message(struct ct_job_link *link, const struct ct_message *message)
{
    if (message->type == CT_MSG_PUBLISHED)
        receive_answer(&link->publication, &message->published);
    if (message->type == CT_MSG_ASSIGN)
        queue_assignment(link, message);
    if (message->type != CT_MSG_STOP || atomic_load(&link->stop))
        return;
    atomic_store(&link->stop_deadline_ms, message->stop.deadline_ms);
    atomic_store(&link->stop, true);
}

/* The next message, with those first that were kept. */
static int next_message(struct ct_job_link *link, struct ct_arena *arena,
                        struct ct_message *ret_message, struct ct_error *err)
{
    struct ct_frame frame;
    int code = ct_frame_reader_next(&link->assigned, &frame, err);

    if (code > 0)
        return ct_wire_decode(&frame, arena, ret_message, err);
    return code < 0 ? code : ct_link_receive(&link->link, -1, arena, ret_message, err);
}

int ct_job_link_assignment(struct ct_job_link *link, struct ct_arena *arena,
                           struct ct_msg_assign *ret_assign, struct ct_error *err)
{
    struct ct_message message = {0};
    int code = 0;

    (void)pthread_mutex_lock(&link->receiving);
    while (code == 0 && !atomic_load(&link->stop)) {
        code = next_message(link, arena, &message, err);
        if (code == 0 && message.type == CT_MSG_ASSIGN &&
            message.assign.generation > link->generation)
            break;
        if (code == 0)
            receive_message(link, &message);
    }
    if (code == 0 && atomic_load(&link->stop))
        code = ct_error_set(err, CT_ECLOSED, "a stop was requested");
    if (code == 0) {
        link->generation = message.assign.generation;
        *ret_assign = message.assign;
    }
    (void)pthread_mutex_unlock(&link->receiving);
    return code;
}

void ct_job_link_poll(struct ct_job_link *link)
{
    struct ct_message message;
    struct ct_arena arena;

    if (pthread_mutex_trylock(&link->receiving) != 0)
        return;
    ct_arena_init(&arena, ARENA_BYTES);
    while (ct_link_receive(&link->link, 0, &arena, &message, NULL) == 0)
        receive_message(link, &message);
    ct_arena_deinit(&arena);
    (void)pthread_mutex_unlock(&link->receiving);
}

/* ---- publishing ------------------------------------------------------------------------------*/

int ct_job_link_publish(struct ct_job_link *link, const struct ct_msg_publish *publish)
{
    const struct ct_message message = {.type = CT_MSG_PUBLISH, .publish = *publish};

    (void)pthread_mutex_lock(&link->receiving);
    link->publication = (struct ct_job_publication){
        .generation = publish->generation, .step = publish->step, .open = true};
    int code = ct_job_link_send(link, &message);
    (void)pthread_mutex_unlock(&link->receiving);
    return code;
}

int ct_job_link_published(struct ct_job_link *link, int timeout_ms, struct ct_error *err)
{
    uint64_t deadline_ms = ct_clock_mono_ms(&ct_clock_system) + (uint64_t)timeout_ms;
    uint64_t now_ms = deadline_ms - (uint64_t)timeout_ms;
    struct ct_message message;
    struct ct_arena arena;
    int code = 0;

    ct_arena_init(&arena, ARENA_BYTES);
    (void)pthread_mutex_lock(&link->receiving);
    while (code == 0 && link->publication.open) {
        code = ct_link_receive(&link->link, (int)(deadline_ms - now_ms), &arena, &message, err);
        if (code == 0)
            receive_message(link, &message);
        now_ms = CT_MIN(ct_clock_mono_ms(&ct_clock_system), deadline_ms);
    }
    if (code == 0) {
        code = link->publication.answer.code;
        if (code != 0 && err != NULL)
            *err = link->publication.answer;
    }
    (void)pthread_mutex_unlock(&link->receiving);
    ct_arena_deinit(&arena);
    return code;
}

/* ---- the store -------------------------------------------------------------------------------*/

/* Receive until the reply to `request` is there. */
static int await_reply(struct ct_job_link *link, uint64_t request, uint64_t timeout_ms,
                       struct ct_arena *arena, struct ct_msg_store_reply *ret_reply)
{
    uint64_t deadline_ms = ct_clock_mono_ms(&ct_clock_system) + timeout_ms;

    for (;;) {
        struct ct_message message;
        int code = ct_link_receive(&link->link, SLICE_MS, arena, &message, NULL);

        if (code == 0 && message.type == CT_MSG_STORE_REPLY &&
            message.store_reply.request == request) {
            *ret_reply = message.store_reply;
            return message.store_reply.code;
        }
        if (code == 0)
            receive_message(link, &message);
        else if (code != CT_ETIMEOUT)
            return code;
        if (ct_control_page_revoked(link->page, link->generation))
            return CT_EREVOKED;
        uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
        ct_worker_record_alive(link->record, now_ns);
        if (now_ns / 1000000 >= deadline_ms)
            return CT_ETIMEOUT;
    }
}

/* What a request is answered with; each part may be NULL. */
struct answer {
    struct ct_kv_value *value;
    int64_t *number;
};

/* One request and its reply, awaited for `timeout_ms`. */
static int send_request(struct ct_job_link *link, struct ct_message *message, uint64_t *request,
                        struct answer answer, uint64_t timeout_ms)
{
    struct ct_kv_value *value = answer.value;
    struct ct_msg_store_reply reply = {0};
    struct ct_arena arena;
    int code;

    ct_arena_init(&arena, ARENA_BYTES);
    (void)pthread_mutex_lock(&link->receiving);
    *request = ++link->next_request;
    code = ct_job_link_send(link, message);
    if (code == 0)
        code = await_reply(link, *request, timeout_ms, &arena, &reply);
    if (code == 0 && value != NULL) {
        if (reply.value.size > value->size)
            code = CT_ELIMIT;
        else if (reply.value.size > 0)
            memcpy(value->data, reply.value.data, reply.value.size);
        value->size = reply.value.size;
    }
    if (code == 0 && answer.number != NULL)
        *answer.number = reply.number;
    (void)pthread_mutex_unlock(&link->receiving);
    ct_arena_deinit(&arena);
    return code;
}

static struct ct_message set_message(const struct ct_job_link *link, const char *key,
                                     const void *value, size_t size)
{
    return (struct ct_message){.type = CT_MSG_STORE_SET,
                               .store_set = {.generation = link->generation,
                                             .key = key,
                                             .value = {.data = value, .size = size}}};
}

static int kv_set(void *context, const char *key, const void *value, size_t size)
{
    struct ct_job_link *link = context;
    struct ct_message message = set_message(link, key, value, size);

    return send_request(link, &message, &message.store_set.request, (struct answer){0}, GRACE_MS);
}

/* Whoever receives next drops the reply. */
static int kv_send(void *context, const char *key, const void *value, size_t size)
{
    struct ct_job_link *link = context;
    struct ct_message message = set_message(link, key, value, size);

    (void)pthread_mutex_lock(&link->receiving);
    message.store_set.request = ++link->next_request;
    (void)pthread_mutex_unlock(&link->receiving);
    return ct_job_link_send(link, &message);
}

static int wait_value(struct ct_job_link *link, const char *key, struct ct_kv_value *value,
                      uint64_t timeout_ms, uint64_t reply_ms)
{
    struct ct_message message = {
        .type = CT_MSG_STORE_WAIT,
        .store_wait = {.generation = link->generation, .key = key, .timeout_ms = timeout_ms}};

    return send_request(link, &message, &message.store_wait.request, (struct answer){value, NULL},
                        reply_ms);
}

static int kv_wait(void *context, const char *key, struct ct_kv_value *value, uint64_t timeout_ms)
{
    timeout_ms = timeout_ms > 0 ? timeout_ms : 1;
    return wait_value(context, key, value, timeout_ms, GRACE_MS + timeout_ms);
}

static int kv_poll(void *context, const char *key, struct ct_kv_value *value, uint64_t patience_ms)
{
    return wait_value(context, key, value, 1, patience_ms);
}

static int kv_add(void *context, const char *key, int64_t delta, int64_t *ret_sum)
{
    struct ct_job_link *link = context;
    struct ct_message message = {
        .type = CT_MSG_STORE_ADD,
        .store_add = {.generation = link->generation, .key = key, .delta = delta}};

    return send_request(link, &message, &message.store_add.request, (struct answer){NULL, ret_sum},
                        GRACE_MS);
}

struct ct_kv ct_job_link_kv(struct ct_job_link *link)
{
    return (struct ct_kv){kv_set, kv_wait, link, kv_send, kv_poll, kv_add};
}
