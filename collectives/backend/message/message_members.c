/* See message_members.h. */
#include "backend/message/message_members.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLICE_NS = 10000000,
    ASK_NS = 2000000000, /* how often to ask whether a member has given up */
    CONTROL_BYTES = 8 + CT_DATA_CHANNELS * 16,
    QUERY_LEAST_NS = 100000000, /* between two queries to the store, doubled each time ... */
    QUERY_MOST_NS = 2000000000, /* ... up to this */
    QUERY_SHARE = 10,           /* of this pause a query may take */
    MS = 1000000,
    KEY_BYTES = 256,
};

/* ---- control messages ------------------------------------------------------------------------*/

/* Behind the header of a control message. */
struct control {
    int rank;                             /* of the sender */
    struct ct_engine_departure departure; /* of a group that has not failed; the receiver's part */
};

static void write_control(const struct ct_engine *engine, int peer, bool leaves,
                          unsigned char *bytes)
{
    ct_put_le32(bytes, (uint32_t)engine->pipelined.rank);
    ct_put_le32(bytes + 4, leaves);
    for (int channel = 0; channel < CT_DATA_CHANNELS; channel++) {
        ct_put_le64(bytes + 8 + 16 * channel,
                    ct_engine_count(engine, (enum ct_engine_channel)channel, true, peer)->done);
        ct_put_le64(bytes + 16 + 16 * channel,
                    ct_engine_count(engine, (enum ct_engine_channel)channel, false, peer)->done);
    }
}

static void read_control(const unsigned char *bytes, struct control *ret_control)
{
    ret_control->rank = (int)ct_get_le32(bytes);
    ret_control->departure.left = ct_get_le32(bytes + 4) != 0;
    for (int channel = 0; channel < CT_DATA_CHANNELS; channel++) {
        ret_control->departure.sent[channel] = ct_get_le64(bytes + 8 + 16 * channel);
        ret_control->departure.received[channel] = ct_get_le64(bytes + 16 + 16 * channel);
    }
}

static void control_post(struct ct_engine *engine, int peer, bool out, int code, bool leaves)
{
    struct ct_peer_message *message = &engine->control[out ? peer : engine->pipelined.rank];
    unsigned char *slot =
        ct_engine_slot(engine, CT_CHANNEL_CONTROL, out, out ? peer : engine->pipelined.rank);

    *message = (struct ct_peer_message){.channel = CT_CHANNEL_CONTROL,
                                        .peer = peer,
                                        .out = out,
                                        .data = (char *)slot,
                                        .bytes = out ? CT_CALL_HEADER_BYTES + CONTROL_BYTES
                                                     : CT_ENGINE_SLOT_BYTES};
    if (out) {
        ct_call_header_write(slot, &(struct ct_call_header){.code = code});
        write_control(engine, peer, leaves, slot + CT_CALL_HEADER_BYTES);
    }
    ct_engine_post(engine, message);
}

/* Decode what a member sent on the control channel: 0, or the code with which it ended the
 * group. */
static int receive_control(struct ct_engine *engine, struct control *ret_control,
                           struct ct_error *err)
{
    const unsigned char *slot =
        ct_engine_slot(engine, CT_CHANNEL_CONTROL, false, engine->pipelined.rank);
    struct ct_call_header header = {0};

    read_control(slot + CT_CALL_HEADER_BYTES, ret_control);
    if (ret_control->rank < 0 || ret_control->rank >= engine->pipelined.size)
        return ct_error_set(err, CT_EPROTOCOL, "an unknown rank %d spoke to the group",
                            ret_control->rank);
    return ct_call_header_check(slot, engine->pipelined.rank, ret_control->rank, &header, err);
}

static void note_heard(struct ct_engine *engine, int rank)
{
    unsigned char *contact = &engine->contacts[rank];

    if (*contact & CT_CONTACT_HEARD)
        return;
    engine->contact_count += *contact == 0;
    engine->unheard -= *contact != 0;
    *contact |= CT_CONTACT_HEARD;
}

int ct_engine_poll_control(struct ct_engine *engine, struct ct_error *err)
{
    struct ct_peer_message *message = &engine->control[engine->pipelined.rank];

    while (ct_engine_is_done(engine, message)) {
        struct ct_error received = {0};
        struct control control = {0};

        ct_engine_reset(message);
        int code = receive_control(engine, &control, &received);
        if (code != 0 && !control.departure.left) {
            *err = received;
            engine->notified = true;
            return code;
        }
        note_heard(engine, control.rank);
        engine->departures[control.rank] = control.departure;
        control_post(engine, -1, false, 0, false);
    }
    return 0;
}

/* The peer has left, and has neither sent nor received this one. */
static bool is_undeliverable(const struct ct_engine *engine, const struct ct_peer_message *message)
{
    const struct ct_engine_departure *left = &engine->departures[message->peer];

    return atomic_load_explicit(&message->state, memory_order_relaxed) == CT_PEER_MESSAGE_OPEN &&
           message->number > (message->out ? left->received : left->sent)[message->channel];
}

static int check_move(const struct ct_engine *engine, const struct ct_engine_move *move,
                      struct ct_error *err)
{
    if (move->done || !engine->departures[move->peer].left ||
        (!is_undeliverable(engine, &move->head) && !is_undeliverable(engine, &move->body)))
        return 0;
    return ct_error_set(err, CT_ECLOSED, "rank %d has left the group", move->peer);
}

int ct_engine_check_departed(const struct ct_engine *engine, const struct ct_task *task,
                             struct ct_error *err)
{
    bool out = task->call.kind == CT_CALL_SEND;
    int code = 0;

    if (ct_call_is_transfer(&task->call))
        return check_move(
            engine, &engine->transfers[(out ? 0 : engine->pipelined.size) + task->call.peer], err);
    for (int i = 0; i < engine->move_count && code == 0; i++)
        code = check_move(engine, &engine->moves[i], err);
    return code;
}

/* ---- members that are not in contact ---------------------------------------------------------*/

/* Have the transport connect, where it needs to. */
static int connect_to(const struct ct_engine *engine, int peer, struct ct_error *err)
{
    return engine->transport->connect != NULL
               ? engine->transport->connect(engine->context, peer, err)
               : 0;
}

int ct_engine_connect(struct ct_engine *engine, int peer, struct ct_error *err)
{
    unsigned char *contact = &engine->contacts[peer];
    int code = connect_to(engine, peer, err);

    if (code == CT_EUNAVAILABLE && engine->formed) /* it could be reached, and is gone */
        code = err->code = CT_ECLOSED;
    if (code != 0)
        return code;
    engine->contact_count += *contact == 0;
    engine->unheard += *contact == 0;
    *contact |= CT_CONTACT_CONNECTED;
    engine->queries = (struct ct_engine_queries){
        .next_ns = ct_clock_mono_ns(&ct_clock_system) + QUERY_LEAST_NS, .pause_ns = QUERY_LEAST_NS};
    control_post(engine, peer, true, 0, false);
    return 0;
}

static size_t informed_bytes(const struct ct_engine *engine)
{
    return ((size_t)engine->pipelined.size + 7) / 8;
}

static void departure_key(const struct ct_engine *engine, int rank, char key[KEY_BYTES])
{
    (void)snprintf(key, KEY_BYTES, "ct/group/%s/%llu/left/%d", engine->key,
                   (unsigned long long)engine->generation, rank);
}

/* Messages that have come and were not read yet are of members that know of this one. */
static void read_last_control(struct ct_engine *engine)
{
    struct ct_error unread = {0};

    if (engine->transport->connect == NULL || engine->notified)
        return;
    engine->transport->progress(engine->context);
    (void)ct_engine_poll_control(engine, &unread);
    engine->notified = false;
}

void ct_engine_notify(struct ct_engine *engine, int code, bool leaves)
{
    const struct ct_kv *kv = &engine->job->kv;
    struct ct_error unread = {0};
    char key[KEY_BYTES];

    read_last_control(engine);
    memset(engine->informed, 0, informed_bytes(engine));
    for (int i = 0; i < engine->pipelined.size; i++) {
        if (engine->contacts[i] == 0 || engine->departures[i].left ||
            (!(engine->contacts[i] & CT_CONTACT_CONNECTED) && connect_to(engine, i, &unread) != 0))
            continue;
        control_post(engine, i, true, code, leaves);
        engine->informed[i / 8] |= (unsigned char)(1 << i % 8);
    }
    if (engine->contact_count == engine->pipelined.size - 1 || kv->send == NULL ||
        ct_job_revoked(engine->job))
        return;
    departure_key(engine, engine->pipelined.rank, key);
    (void)kv->send(kv->context, key, engine->informed, informed_bytes(engine));
}

static bool is_unheard(const struct ct_engine *engine, const struct ct_engine_move *move)
{
    return !move->done && !(engine->contacts[move->peer] & CT_CONTACT_HEARD);
}

/* A member that the task waits for and that was not heard from, each in turn; -1: none. */
static int next_unheard(struct ct_engine *engine, const struct ct_task *task)
{
    bool out = task->call.kind == CT_CALL_SEND;
    int count = engine->move_count;

    if (ct_call_is_transfer(&task->call)) {
        const struct ct_engine_move *move =
            &engine->transfers[(out ? 0 : engine->pipelined.size) + task->call.peer];

        return is_unheard(engine, move) ? move->peer : -1;
    }
    for (int i = 0; i < count; i++) {
        int at = (engine->queries.turn + i) % count;

        if (is_unheard(engine, &engine->moves[at])) {
            engine->queries.turn = at;
            return engine->moves[at].peer;
        }
    }
    return -1;
}

int ct_engine_check_unheard(struct ct_engine *engine, const struct ct_task *task,
                            struct ct_error *err)
{
    const struct ct_kv *kv = &engine->job->kv;
    struct ct_engine_queries *queries = &engine->queries;
    struct ct_kv_value value = {engine->informed, informed_bytes(engine)};
    int rank = engine->pipelined.rank, peer;
    char key[KEY_BYTES];

    if (engine->unheard == 0 || kv->poll == NULL ||
        ct_clock_mono_ns(&ct_clock_system) < queries->next_ns ||
        (peer = next_unheard(engine, task)) < 0)
        return 0;
    departure_key(engine, peer, key);
    int code = kv->poll(kv->context, key, &value, queries->pause_ns / QUERY_SHARE / MS);
    queries->pause_ns = CT_MIN(2 * queries->pause_ns, (uint64_t)QUERY_MOST_NS);
    queries->next_ns = ct_clock_mono_ns(&ct_clock_system) + queries->pause_ns;
    queries->turn++;
    if (code != 0 || value.size != informed_bytes(engine) ||
        (engine->informed[rank / 8] >> rank % 8 & 1) != 0)
        return 0; /* it is not gone, or its control message is on the way */
    return ct_error_set(err, CT_ECLOSED, "rank %d has left the group", peer);
}

/* ---- handshake -------------------------------------------------------------------------------*/

/* Wait a little, unless the handshake is over: revoked, too late, or another member has failed. */
static int wait_for_members(struct ct_engine *engine, const struct ct_setup *setup,
                            uint64_t *asked_ns, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);

    if (ct_job_revoked(setup->job))
        return ct_error_set(err, CT_EREVOKED, "the round was revoked");
    ct_worker_record_alive(setup->job->record, now_ns);
    if (now_ns >= setup->deadline_ns)
        return CT_ETIMEOUT;
    if (setup->failed_elsewhere != NULL && now_ns - *asked_ns >= ASK_NS) {
        *asked_ns = now_ns;
        int code = setup->failed_elsewhere(setup, err);
        if (code != 0)
            return code;
    }
    engine->transport->wait(engine->context, SLICE_NS);
    return 0;
}

static int explain_absence(const struct ct_engine *engine, int code, struct ct_error *err)
{
    int peer = 0;

    while (peer < engine->pipelined.size - 1 && engine->contacts[peer] != CT_CONTACT_CONNECTED)
        peer++;
    if (code == CT_ETIMEOUT)
        return ct_error_set(err, code, "rank %d has no connection with rank %d in time",
                            engine->pipelined.rank, peer);
    return code;
}

/* Count this rank's own control messages that are still in flight; one that failed is an error. */
static int check_control_sends(struct ct_engine *engine, const struct ct_setup *setup,
                               int *ret_open, struct ct_error *err)
{
    *ret_open = 0;
    for (int i = 0; i < setup->size; i++) {
        struct ct_peer_message *message = &engine->control[i];

        if (i == setup->rank || atomic_load(&message->state) == CT_PEER_MESSAGE_UNUSED)
            continue;
        if (!ct_engine_is_done(engine, message))
            ++*ret_open;
        else if (message->code != 0)
            return ct_error_set(err, CT_EUNAVAILABLE, "rank %d cannot connect to rank %d",
                                setup->rank, i);
        else
            ct_engine_reset(message);
    }
    return 0;
}

/* Receive the control messages of all that this one has connected with. A send may wait for a
 * connection that only this rank's own progress completes, so it is waited for as well: a rank that
 * returned earlier might do something else for long, without making progress. */
static int await_all(struct ct_engine *engine, const struct ct_setup *setup, struct ct_error *err)
{
    uint64_t asked_ns = ct_clock_mono_ns(&ct_clock_system);
    struct ct_peer_message *listening = &engine->control[engine->pipelined.rank];
    int open;

    for (;;) {
        struct control control;

        engine->transport->progress(engine->context);
        int code = check_control_sends(engine, setup, &open, err);
        if (code != 0)
            return code;
        if (engine->unheard == 0 && open == 0)
            return 0;
        if (!ct_engine_is_done(engine, listening)) {
            code = wait_for_members(engine, setup, &asked_ns, err);
            if (code != 0)
                return explain_absence(engine, code, err);
            continue;
        }
        code = receive_control(engine, &control, err);
        if (code != 0)
            return code;
        if (engine->contacts[control.rank] & CT_CONTACT_HEARD)
            return ct_error_set(err, CT_EPROTOCOL, "rank %d said its word twice", control.rank);
        note_heard(engine, control.rank);
        control_post(engine, -1, false, 0, false);
    }
}

int ct_engine_handshake(struct ct_engine *engine, const struct ct_setup *setup,
                        struct ct_error *err)
{
    int code = 0;

    control_post(engine, -1, false, 0, false);
    for (int i = 0; i < setup->size && code == 0; i++)
        if (i != setup->rank &&
            (engine->transport->connect == NULL || ct_setup_begins_with(setup, i)))
            code = ct_engine_connect(engine, i, err);
    if (code == 0)
        code = await_all(engine, setup, err);
    engine->formed = code == 0;
    return code;
}
