/* Control messages between members of a group of message.h: presence, failure, leaving. And how
 * message.c and message_members.c handle a message. */
#ifndef CT_COLL_MESSAGE_MEMBERS_H
#define CT_COLL_MESSAGE_MEMBERS_H

#include "backend/message/message.h"

enum { CT_POST_SLOT_BYTES = 1024 };

static inline struct ct_post_tally *ct_post_tally(const struct ct_post *post,
                                                  enum ct_post_lane lane, bool out, int peer)
{
    return &post->tallies[((int)lane * 2 + (out ? 0 : 1)) * post->wave.size + peer];
}

/* Where a first message lies. */
static inline unsigned char *ct_post_slot(const struct ct_post *post, enum ct_post_lane lane,
                                          bool out, int peer)
{
    size_t size = (size_t)post->wave.size;

    return post->slots +
           (((size_t)lane * 2 + (out ? 0 : 1)) * size + (size_t)peer) * CT_POST_SLOT_BYTES;
}

static inline void ct_post_send_off(struct ct_post *post, struct ct_peer_message *message)
{
    atomic_store_explicit(&message->state, CT_PEER_MESSAGE_OPEN, memory_order_relaxed);
    message->code = 0;
    if (message->lane < CT_POST_DATA_LANES)
        message->number = ++ct_post_tally(post, message->lane, message->out, message->peer)->posted;
    post->transport->post(post->context, message);
}

/* Has it come to an end that nobody has looked at yet? */
static inline bool ct_post_has_come(struct ct_post *post, struct ct_peer_message *message)
{
    int state = atomic_load_explicit(&message->state, memory_order_acquire);

    return state == CT_PEER_MESSAGE_OVER ||
           (state == CT_PEER_MESSAGE_OPEN && post->transport->over(post->context, message));
}

static inline void ct_post_forget(struct ct_peer_message *message)
{
    atomic_store_explicit(&message->state, CT_PEER_MESSAGE_UNUSED, memory_order_relaxed);
}

/* Has a member ended the group? Who has merely left it is noted. 0, or why it ended. */
int ct_post_parted(struct ct_post *post, struct ct_error *err);

/* Does `task`, which cannot go on, wait for what one who has left neither sent nor took? */
int ct_post_deserted(const struct ct_post *post, const struct ct_task *task, struct ct_error *err);

/* Tell all who are there that this member leaves, or that the group has failed with `code`. No word
 * of this one is on its way any more. */
void ct_post_tell(struct ct_post *post, int code, bool leaves);

#endif
