/* The holder of a ctrund with peers: who votes is fixed, so it founds and chooses nothing. */
#include "rendezvous/holder/holder_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SILENT_ELECTIONS = 3 /* times of an election without a word, until a peer is named */ };

static uint64_t silence_ms(const struct ct_holder *holder)
{
    return SILENT_ELECTIONS * (uint64_t)holder->election_ms;
}

struct ct_replica *holder_new_peer(struct ct_holder *holder)
{
    const struct ct_replica_options options = {
        .id = holder->id,
        .era = holder->peers->era,
        .address = holder->address,
        .seed = ct_rng_next(&holder->rng),
        .election_ms = holder->election_ms,
        .now_ms = holder->now_ms,
        .io = &holder->replica_io,
        .voters = holder->peers->list,
        .voter_count = holder->peers->count,
    };

    return ct_replica_new(&options);
}

int ct_holder_restore(struct ct_holder *holder, const void *record, size_t size,
                      struct ct_error *err)
{
    return ct_replica_restore(holder->replica, record, size, err);
}

int ct_holder_emit(const struct ct_holder *holder, ct_replica_keep_fn emit, void *context)
{
    return ct_replica_emit(holder->replica, emit, context);
}

/* ---- who leads ------------------------------------------------------------------------------ */

/* The peers that have been silent for a while, as a list; returns how many. */
static size_t list_silent(const struct ct_holder *holder, char *text, size_t room)
{
    size_t used = 0, count = 0;
    struct ct_replica_server one;

    text[0] = '\0';
    for (size_t i = 0; ct_replica_server(holder->replica, i, &one); i++) {
        for (size_t k = 0; k < holder->voter_count && used < room; k++) {
            const struct ct_holder_voter *voter = &holder->voters[k];

            if (voter->id != one.id || holder->now_ms - voter->heard_ms < silence_ms(holder))
                continue;
            used += (size_t)snprintf(text + used, room - used, "%s%s", count > 0 ? ", " : "",
                                     one.address);
            count++;
        }
    }
    return count;
}

static void describe_unled(const struct ct_holder *holder, char *text, size_t room)
{
    size_t count = holder->peers->count, majority = count / 2 + 1;
    char silent[320];
    size_t silent_count = list_silent(holder, silent, sizeof silent);

    if (ct_replica_is_mute(holder->replica))
        (void)snprintf(text, room,
                       "the ctrund at %s cannot write its journal, and says nothing until it can",
                       holder->address);
    else if (silent_count == 0)
        (void)snprintf(text, room, "no ctrund leads yet: the %zu peers elect one", count);
    else if (count - silent_count < majority)
        (void)snprintf(text, room,
                       "no ctrund leads: %zu of the %zu peers must hear each other, and %s has not "
                       "heard %s",
                       majority, count, holder->address, silent);
    else
        (void)snprintf(text, room,
                       "no ctrund leads although enough of the peers hear each other: %s has a new "
                       "journal, and votes for none that has a record before it was sent that; %s, "
                       "which may have all of it, is not heard",
                       ct_replica_is_new(holder->replica) ? holder->address : "one of them",
                       silent);
}

void holder_describe_peers(const struct ct_holder *holder, char *text, size_t room)
{
    uint64_t leader = ct_replica_leader(holder->replica);
    struct ct_replica_server one;

    if (holder->service != NULL)
        (void)snprintf(text, room, "the ctrund at %s leads in term %" PRIu64, holder->address,
                       ct_replica_term(holder->replica));
    else
        describe_unled(holder, text, room);
    for (size_t i = 0; ct_replica_server(holder->replica, i, &one); i++)
        if (one.id == leader && leader != holder->id)
            (void)snprintf(text, room, "the ctrund at %s follows the one at %s, which leads",
                           holder->address, one.address);
}

void ct_holder_describe(const struct ct_holder *holder, struct ct_buf *out)
{
    char text[512];

    if (holder->peers == NULL)
        return;
    holder_describe_peers(holder, text, sizeof text);
    (void)ct_buf_printf(out, "%s\n", text);
}

void holder_report_peers(struct ct_holder *holder)
{
    uint64_t leader = ct_replica_leader(holder->replica);
    char text[512];

    if (leader == 0 && holder->unled_ms == 0 && holder->reported_led_by != UINT64_MAX)
        holder->unled_ms = holder->now_ms;
    if (leader != 0)
        holder->unled_ms = 0;
    if (leader != 0 && leader != holder->id && leader != holder->reported_led_by) {
        holder_describe_peers(holder, text, sizeof text);
        holder_log(holder, CT_LOG_INFO, "%s", text);
    }
    if (leader != 0)
        holder->reported_led_by = leader;
    if (holder->unled_ms == 0 || holder->now_ms - holder->unled_ms < silence_ms(holder))
        return;
    holder->unled_ms = 0;
    holder->reported_led_by = UINT64_MAX; /* that nobody leads */
    describe_unled(holder, text, sizeof text);
    holder_log(holder, CT_LOG_WARN, "%s", text);
}

/* ---- peers that connect --------------------------------------------------------------------- */

bool holder_admits_peer(const struct ct_holder *holder, const struct ct_holder_conn *conn,
                        const struct ct_msg_hello *hello)
{
    const struct ct_holder_io *io = &holder->io;
    char text[512];

    bool is_old = hello->protocol < CT_WIRE_OLDEST;

    if (!is_old && strcmp(hello->job, holder->peers->name) == 0 &&
        holder_may(holder, conn->peer, CT_RIGHT_HOLD, hello->job, NULL) == 0)
        return true;
    if (is_old)
        (void)snprintf(
            text, sizeof text,
            "the ctrund on host %s is too old for the one at %s (protocol %u, here %d to "
            "%d): upgrade it by way of a release between the two",
            hello->host, holder->address, hello->protocol, CT_WIRE_OLDEST, CT_WIRE_PROTOCOL);
    else
        (void)snprintf(text, sizeof text,
                       "the ctrund at %s and the one on host %s were given different lists of "
                       "--peers",
                       holder->address, hello->host);
    io->send(
        io->context, conn->peer,
        &(struct ct_message){.type = CT_MSG_REFUSE, .refuse = {.code = CT_EUSAGE, .text = text}});
    io->close(io->context, conn->peer, CT_EUSAGE, text);
    return false;
}
