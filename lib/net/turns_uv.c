/* See turns_uv.h. */
#include "net/turns_uv.h"

#include "net/conn_inner_uv.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <stdlib.h>

enum { STARVED, SERVED, QUEUES };

struct ct_turn_account {
    struct ct_turn_account *next;  /* in its bucket */
    struct ct_turn_account *later; /* in the list of those that wait */
    uint64_t id;
    uint32_t connections;
    bool waits;      /* it is in that list */
    uint64_t number; /* of the turn in which `used` was right */
    size_t used;
    size_t queued; /* bytes that wait for its peers */
    int chosen;    /* whose turn of these two it was last */
    struct ct_turn_queue {
        struct ct_conn *first, *last;
    } queues[QUEUES];
};

/* ---- who there is ---- */

static struct ct_turn_account **bucket_of(struct ct_turns *turns, uint64_t id)
{
    return &turns->buckets[ct_mix64(id) % CT_TURN_BUCKETS];
}

void ct_turns_enter(struct ct_turns *turns, struct ct_conn *conn)
{
    struct ct_turn_account **bucket = bucket_of(turns, conn->account), *one = *bucket;

    while (one != NULL && one->id != conn->account)
        one = one->next;
    if (one == NULL)
        one = calloc(1, sizeof(*one));
    if (one == NULL)
        return;
    if (one->connections++ == 0) {
        one->id = conn->account;
        one->number = turns->number;
        one->next = *bucket;
        *bucket = one;
    }
    conn->turns = turns;
    conn->turn = one;
}

static void strike(struct ct_turn_account *account, struct ct_conn *conn)
{
    struct ct_turn_queue *queue = &account->queues[conn->turn_queue];

    if (conn->turn_before != NULL)
        conn->turn_before->turn_behind = conn->turn_behind;
    else
        queue->first = conn->turn_behind;
    if (conn->turn_behind != NULL)
        conn->turn_behind->turn_before = conn->turn_before;
    else
        queue->last = conn->turn_before;
    conn->waits_for_turn = false;
}

static void leave_list(struct ct_turns *turns, struct ct_turn_account *account)
{
    struct ct_turn_account *before = NULL, *at = turns->first;

    while (at != account) {
        before = at;
        at = at->later;
    }
    if (before != NULL)
        before->later = account->later;
    else
        turns->first = account->later;
    if (turns->last == account)
        turns->last = before;
    account->waits = false;
}

void ct_turns_leave(struct ct_turns *turns, struct ct_conn *conn)
{
    struct ct_turn_account *account = conn->turn;

    if (account == NULL)
        return;
    if (conn->waits_for_turn)
        strike(account, conn);
    conn->turn = NULL;
    if (--account->connections > 0)
        return;
    if (account->waits)
        leave_list(turns, account);
    if (turns->latest == account)
        turns->latest = NULL;
    struct ct_turn_account **at = bucket_of(turns, account->id);
    while (*at != account)
        at = &(*at)->next;
    *at = account->next;
    free(account);
}

/* ---- what they use ---- */

bool ct_turns_is_alone(const struct ct_turns *turns)
{
    return uv_now(turns->loop) - turns->mixed_ms >= CT_TURN_ALONE_MS;
}

/* What an account may use before it waits. */
static size_t most_of(const struct ct_turns *turns)
{
    return ct_turns_is_alone(turns) ? CT_TURN_ALONE : CT_TURN_BURST;
}

/* What it has used and not got back yet by turns that passed. */
static size_t used_of(const struct ct_turns *turns, struct ct_turn_account *account)
{
    uint64_t passed = turns->number - account->number;
    size_t share = ct_turns_is_alone(turns) ? CT_TURN_ALONE : CT_TURN_BYTES;

    account->number = turns->number;
    if (passed >= CT_TURN_DEBT || account->used <= passed * share)
        account->used = 0;
    else
        account->used -= passed * share;
    return account->used;
}

void ct_turns_charge(struct ct_conn *conn, size_t bytes)
{
    struct ct_turns *turns = conn->turns;

    if (conn->turn == NULL)
        return;
    if (turns->latest != conn->turn) {
        if (turns->latest != NULL)
            turns->mixed_ms = uv_now(turns->loop);
        turns->latest = conn->turn;
    }
    turns->charged += bytes;
    conn->turn->used = CT_MIN(used_of(turns, conn->turn) + bytes, (size_t)CT_TURN_ALONE);
}

void ct_turns_begin(const struct ct_conn *conn)
{
    if (conn->turn == NULL)
        return;
    conn->turns->began_ns = uv_hrtime();
    conn->turns->charged = 0;
}

void ct_turns_settle(struct ct_conn *conn)
{
    if (conn->turn == NULL)
        return;
    uint64_t took_ns = uv_hrtime() - conn->turns->began_ns;
    if (took_ns > conn->turns->charged)
        ct_turns_charge(conn, took_ns - conn->turns->charged);
}

bool ct_turns_is_over(struct ct_conn *conn)
{
    return conn->turn != NULL && used_of(conn->turns, conn->turn) >= most_of(conn->turns);
}

size_t ct_turns_queue(struct ct_conn *conn, size_t before, size_t now)
{
    if (conn->turn == NULL)
        return SIZE_MAX;
    conn->turn->queued += now - before; /* modulo 2^64, as sizes are */
    return conn->turn->queued;
}

/* ---- waiting ---- */

static void on_timer(uv_timer_t *timer)
{
    (void)timer; /* that the loop turns is enough: on_turn comes next */
}

/* Have the loop come back for those that wait: in the next turn, of one that is alone at once. */
static void await(struct ct_turns *turns)
{
    if (turns->first != NULL)
        (void)uv_timer_start(&turns->timer, on_timer, ct_turns_is_alone(turns) ? 0 : 1, 0);
}

static void put_last(struct ct_turns *turns, struct ct_turn_account *account)
{
    account->waits = true;
    account->later = NULL;
    if (turns->last != NULL)
        turns->last->later = account;
    else
        turns->first = account;
    turns->last = account;
}

void ct_turns_wait(struct ct_conn *conn, bool served)
{
    struct ct_turn_account *account = conn->turn;
    int number = served ? SERVED : STARVED;
    struct ct_turn_queue *queue = &account->queues[number];

    CT_ASSERT(account != NULL && !conn->waits_for_turn);
    (void)uv_read_stop(&conn->io.stream);
    conn->waits_for_turn = true;
    conn->turn_queue = number;
    conn->turn_before = queue->last;
    conn->turn_behind = NULL;
    if (queue->last != NULL)
        queue->last->turn_behind = conn;
    else
        queue->first = conn;
    queue->last = conn;
    if (!account->waits)
        put_last(conn->turns, account);
}

/* Those that got nothing are to read before those go on of which something is left: the latter
 * would take the turn at once. They alternate. */
static struct ct_turn_queue *choose(struct ct_turn_account *account)
{
    int next = account->chosen == STARVED ? SERVED : STARVED;

    if (account->queues[next].first != NULL)
        account->chosen = next;
    return &account->queues[account->chosen];
}

/* Who is resumed may have to wait again: behind all others, and for the next turn. */
static void serve(struct ct_turns *turns, struct ct_turn_account *account)
{
    struct ct_conn *resumed[CT_TURN_RESUMED];
    size_t count = 0;

    if (used_of(turns, account) < most_of(turns))
        for (struct ct_turn_queue *queue = choose(account);
             count < CT_TURN_RESUMED && queue->first != NULL;) {
            resumed[count] = queue->first;
            strike(account, resumed[count++]);
        }
    if (account->queues[STARVED].first != NULL || account->queues[SERVED].first != NULL)
        put_last(turns, account);
    for (size_t i = 0; i < count; i++) /* none of them is freed meanwhile, see conn_uv.h */
        ct_conn_resume(resumed[i]);
}

static void on_turn(uv_prepare_t *prepare)
{
    struct ct_turns *turns = prepare->data;
    struct ct_turn_account *last = turns->last;
    uint64_t passed_ms = uv_now(turns->loop) - turns->ms;
    uint64_t passed = ct_turns_is_alone(turns) && passed_ms == 0 ? 1 : passed_ms;

    turns->ms += passed_ms;
    turns->number += passed;
    if (passed == 0) {
        await(turns);
        return;
    }
    for (int i = 0; i < CT_TURN_ACCOUNTS && turns->first != NULL; i++) {
        struct ct_turn_account *account = turns->first;
        turns->first = account->later;
        if (turns->first == NULL)
            turns->last = NULL;
        account->waits = false;
        serve(turns, account);
        if (account == last)
            break; /* all had theirs */
    }
    await(turns);
}

/* ---- begin and end ---- */

void ct_turns_init(struct ct_turns *turns, uv_loop_t *loop)
{
    *turns = (struct ct_turns){.loop = loop, .ms = uv_now(loop)};
    (void)uv_prepare_init(loop, &turns->prepare);
    (void)uv_timer_init(loop, &turns->timer);
    turns->prepare.data = turns;
    (void)uv_prepare_start(&turns->prepare, on_turn);
    uv_unref((uv_handle_t *)&turns->prepare);
}

void ct_turns_close(struct ct_turns *turns, void *data, uv_close_cb on_closed)
{
    turns->prepare.data = turns->timer.data = data;
    uv_close((uv_handle_t *)&turns->prepare, on_closed);
    uv_close((uv_handle_t *)&turns->timer, on_closed);
}
