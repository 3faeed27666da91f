/* Control messages between members of a group of message.h: presence, failure, leaving. And how
 * message.c and message_members.c handle a message. */
#ifndef CT_COLL_MESSAGE_MEMBERS_H
#define CT_COLL_MESSAGE_MEMBERS_H

#include "backend/message/message.h"

enum { CT_ENGINE_SLOT_BYTES = 1024 };

/* Return the counts of a channel, direction and peer. */
static inline struct ct_engine_counts *
ct_engine_count(const struct ct_engine *engine, enum ct_engine_channel channel, bool out, int peer)
{
    return &engine->counts[((int)channel * 2 + (out ? 0 : 1)) * engine->pipelined.size + peer];
}

/* Return the memory of a first message. */
static inline unsigned char *ct_engine_slot(const struct ct_engine *engine,
                                            enum ct_engine_channel channel, bool out, int peer)
{
    size_t size = (size_t)engine->pipelined.size;

    return engine->slots +
           (((size_t)channel * 2 + (out ? 0 : 1)) * size + (size_t)peer) * CT_ENGINE_SLOT_BYTES;
}

/* Post a message, and number it. */
static inline void ct_engine_post(struct ct_engine *engine, struct ct_peer_message *message)
{
    atomic_store_explicit(&message->state, CT_PEER_MESSAGE_OPEN, memory_order_relaxed);
    message->code = 0;
    if (message->channel < CT_DATA_CHANNELS)
        message->number =
            ++ct_engine_count(engine, message->channel, message->out, message->peer)->posted;
    engine->transport->post(engine->context, message);
}

/* Return whether a message is done and has not been reset yet. */
static inline bool ct_engine_is_done(struct ct_engine *engine, struct ct_peer_message *message)
{
    int state = atomic_load_explicit(&message->state, memory_order_acquire);

    return state == CT_PEER_MESSAGE_DONE ||
           (state == CT_PEER_MESSAGE_OPEN && engine->transport->is_done(engine->context, message));
}

/* Mark a message as unused: its end has been noted. */
static inline void ct_engine_reset(struct ct_peer_message *message)
{
    atomic_store_explicit(&message->state, CT_PEER_MESSAGE_UNUSED, memory_order_relaxed);
}

/* Receive control messages, and note members that have left. 0, or the code with which a member
 * ended the group. */
int ct_engine_poll_control(struct ct_engine *engine, struct ct_error *err);

/* Check whether `task`, which cannot advance, waits for a message that a member that has left
 * neither sent nor received. 0, or CT_ECLOSED naming it. */
int ct_engine_check_departed(const struct ct_engine *engine, const struct ct_task *task,
                             struct ct_error *err);

/* Connect with `peer`, which no message went to or came from, and send it a control message. 0, or
 * an error with its sentence. */
int ct_engine_connect(struct ct_engine *engine, int peer, struct ct_error *err);

/* Check, now and then, whether a member that `task` waits for and that was never heard from is
 * gone: it could tell only those that it knew. 0, or CT_ECLOSED naming it. */
int ct_engine_check_unheard(struct ct_engine *engine, const struct ct_task *task,
                            struct ct_error *err);

/* Send all members in contact that have not left that this one leaves, or that the group has failed
 * with `code`; the store gets the list of them if it is not all. No control message of this member
 * is in flight. */
void ct_engine_notify(struct ct_engine *engine, int code, bool leaves);

#endif
