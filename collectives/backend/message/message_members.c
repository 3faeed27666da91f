/* See message_members.h. */
#include "backend/message/message_members.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"

#include <stdlib.h>

enum {
    SLICE_NS = 10000000,
    ASK_NS = 2000000000, /* how often to ask whether a member has given up */
    WORD_BYTES = 8 + CT_POST_DATA_LANES * 16,
};

/* ---- words -----------------------------------------------------------------------------------*/

/* Behind the greeting of a control message. */
struct word {
    int rank; /* who says it */
    struct ct_post_left
        left; /* the group, which has not failed; what of it concerns the listener */
};

static void write_word(const struct ct_post *post, int peer, bool leaves, unsigned char *bytes)
{
    ct_put_le32(bytes, (uint32_t)post->wave.rank);
    ct_put_le32(bytes + 4, leaves);
    for (int lane = 0; lane < CT_POST_DATA_LANES; lane++) {
        ct_put_le64(bytes + 8 + 16 * lane,
                    ct_post_tally(post, (enum ct_post_lane)lane, true, peer)->over);
        ct_put_le64(bytes + 16 + 16 * lane,
                    ct_post_tally(post, (enum ct_post_lane)lane, false, peer)->over);
    }
}

static void read_word(const unsigned char *bytes, struct word *ret_word)
{
    ret_word->rank = (int)ct_get_le32(bytes);
    ret_word->left.left = ct_get_le32(bytes + 4) != 0;
    for (int lane = 0; lane < CT_POST_DATA_LANES; lane++) {
        ret_word->left.sent[lane] = ct_get_le64(bytes + 8 + 16 * lane);
        ret_word->left.taken[lane] = ct_get_le64(bytes + 16 + 16 * lane);
    }
}

static void control_post(struct ct_post *post, int peer, bool out, int code, bool leaves)
{
    struct ct_peer_message *message = &post->control[out ? peer : post->wave.rank];
    unsigned char *slot = ct_post_slot(post, CT_POST_CONTROL, out, out ? peer : post->wave.rank);

    *message = (struct ct_peer_message){.lane = CT_POST_CONTROL,
                                        .peer = peer,
                                        .out = out,
                                        .data = (char *)slot,
                                        .bytes = out ? CT_GREETING_BYTES + WORD_BYTES
                                                     : CT_POST_SLOT_BYTES};
    if (out) {
        ct_greeting_write(slot, &(struct ct_greeting){.code = code});
        write_word(post, peer, leaves, slot + CT_GREETING_BYTES);
    }
    ct_post_send_off(post, message);
}

/* What a member said on the control lane: 0, or why it ended the group. */
static int hear(struct ct_post *post, struct word *ret_word, struct ct_error *err)
{
    const unsigned char *slot = ct_post_slot(post, CT_POST_CONTROL, false, post->wave.rank);
    struct ct_greeting greeting = {0};

    read_word(slot + CT_GREETING_BYTES, ret_word);
    if (ret_word->rank < 0 || ret_word->rank >= post->wave.size)
        return ct_error_set(err, CT_EPROTOCOL, "an unknown rank %d spoke to the group",
                            ret_word->rank);
    return ct_greeting_check(slot, post->wave.rank, ret_word->rank, &greeting, err);
}

int ct_post_parted(struct ct_post *post, struct ct_error *err)
{
    struct ct_peer_message *message = &post->control[post->wave.rank];

    while (ct_post_has_come(post, message)) {
        struct ct_error heard = {0};
        struct word word = {0};

        ct_post_forget(message);
        int code = hear(post, &word, &heard);
        if (code != 0 && !word.left.left) {
            *err = heard;
            post->told = true;
            return code;
        }
        post->left[word.rank] = word.left;
        control_post(post, -1, false, 0, false);
    }
    return 0;
}

/* Will this one not come to its end any more? */
static bool is_lost(const struct ct_post *post, const struct ct_peer_message *message)
{
    const struct ct_post_left *left = &post->left[message->peer];

    return atomic_load_explicit(&message->state, memory_order_relaxed) == CT_PEER_MESSAGE_OPEN &&
           message->number > (message->out ? left->taken : left->sent)[message->lane];
}

static int find_lost(const struct ct_post *post, const struct ct_post_move *move,
                     struct ct_error *err)
{
    if (move->over || !post->left[move->peer].left ||
        (!is_lost(post, &move->head) && !is_lost(post, &move->body)))
        return 0;
    return ct_error_set(err, CT_ECLOSED, "rank %d has left the group", move->peer);
}

int ct_post_deserted(const struct ct_post *post, const struct ct_task *task, struct ct_error *err)
{
    bool out = task->call.kind == CT_CALL_SEND;
    int code = 0;

    if (ct_call_is_transfer(&task->call))
        return find_lost(post, &post->transfers[(out ? 0 : post->wave.size) + task->call.peer],
                         err);
    for (int i = 0; i < post->move_count && code == 0; i++)
        code = find_lost(post, &post->moves[i], err);
    return code;
}

void ct_post_tell(struct ct_post *post, int code, bool leaves)
{
    for (int i = 0; i < post->wave.size; i++)
        if (i != post->wave.rank && !post->left[i].left)
            control_post(post, i, true, code, leaves);
}

/* ---- meeting ---------------------------------------------------------------------------------*/

/* Wait a little, unless there is no need to go on. */
static int rest(struct ct_post *post, const struct ct_setup *setup, uint64_t *asked_ns,
                struct ct_error *err)
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
    post->transport->rest(post->context, SLICE_NS);
    return 0;
}

static int not_met(const struct ct_post *post, const bool *met, int code, struct ct_error *err)
{
    int peer = 0;

    while (peer == post->wave.rank || (peer < post->wave.size - 1 && met[peer]))
        peer++;
    if (code == CT_ETIMEOUT)
        return ct_error_set(err, code, "rank %d has no connection with rank %d in time",
                            post->wave.rank, peer);
    return code;
}

/* How many of this rank's own words are still on their way; one that cannot go is an error. */
static int see_words_out(struct ct_post *post, const struct ct_setup *setup, int *ret_open,
                         struct ct_error *err)
{
    *ret_open = 0;
    for (int i = 0; i < setup->size; i++) {
        struct ct_peer_message *word = &post->control[i];

        if (i == setup->rank || atomic_load(&word->state) == CT_PEER_MESSAGE_UNUSED)
            continue;
        if (!ct_post_has_come(post, word))
            ++*ret_open;
        else if (word->code != 0)
            return ct_error_set(err, CT_EUNAVAILABLE, "rank %d cannot connect to rank %d",
                                setup->rank, i);
        else
            ct_post_forget(word);
    }
    return 0;
}

/* Take up what members say until all of them have; `met` has room for all. A word may wait for a
 * connection that only this rank's own turns complete, so it is seen out as well: who leaves
 * earlier may do something else for long, and nobody else would turn. */
static int await_all(struct ct_post *post, const struct ct_setup *setup, bool *met,
                     struct ct_error *err)
{
    uint64_t asked_ns = ct_clock_mono_ns(&ct_clock_system);
    struct ct_peer_message *listening = &post->control[post->wave.rank];
    int left = setup->size - 1, open = left;

    for (;;) {
        struct word word;

        post->transport->turn(post->context);
        int code = see_words_out(post, setup, &open, err);
        if (code != 0)
            return code;
        if (left == 0 && open == 0)
            return 0;
        if (!ct_post_has_come(post, listening)) {
            code = rest(post, setup, &asked_ns, err);
            if (code != 0)
                return not_met(post, met, code, err);
            continue;
        }
        code = hear(post, &word, err);
        if (code != 0)
            return code;
        if (met[word.rank])
            return ct_error_set(err, CT_EPROTOCOL, "rank %d said its word twice", word.rank);
        met[word.rank] = true;
        left--;
        control_post(post, -1, false, 0, false);
    }
}

int ct_post_meet(struct ct_post *post, const struct ct_setup *setup, struct ct_error *err)
{
    bool *met = calloc((size_t)setup->size, sizeof *met);

    if (met == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    control_post(post, -1, false, 0, false);
    for (int i = 0; i < setup->size; i++)
        if (i != setup->rank)
            control_post(post, i, true, 0, false);
    int code = await_all(post, setup, met, err);
    free(met);
    post->met = code == 0;
    return code;
}
