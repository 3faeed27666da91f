/* Who manages the machines (Slurm) may know that the others are dead, where silence is no proof: a
 * holder that waits for all others asks now and again.
 *
 *      all others are silent -> are their nodes, and all other nodes of the job, down?
 *                                  yes    this one goes on alone, as at an operator's word
 *                                  no     the answer is a part of what it says that it waits for
 *
 * Not only the holders that this one knows have to be down: they may have given the record to a
 * node that this one never heard of, before they died. */
#include "rendezvous/holder/holder_state.h"

#include "base/str.h"

enum { ASK_MS = 5000 };

void holder_note_host(struct ct_holder *holder, uint64_t id, const char *host)
{
    size_t last = CT_REPLICA_SERVERS - 1, at = 0;

    while (at < last && holder->hosts[at].id != id)
        at++;
    for (; at > 0; at--)
        holder->hosts[at] = holder->hosts[at - 1];
    holder->hosts[0].id = id;
    (void)ct_str_copy(holder->hosts[0].name, sizeof holder->hosts[0].name, host);
}

const char *holder_host_of(const struct ct_holder *holder, uint64_t id)
{
    for (size_t i = 0; i < CT_REPLICA_SERVERS; i++)
        if (holder->hosts[i].id == id)
            return holder->hosts[i].name;
    return NULL;
}

/* Does it hold the record, and has it heard none of the others for a lease? */
static bool waits_for_all(const struct ct_holder *holder)
{
    if (holder->service != NULL || holder->voter_count == 0 || holder->removed ||
        ct_replica_leader(holder->replica) != 0 || !holder_votes(holder))
        return false;
    for (size_t i = 0; i < holder->voter_count; i++)
        if (!holder_is_dead(holder, holder->voters[i].id) &&
            holder->now_ms - holder->voters[i].heard_ms < holder_silence_ms(holder))
            return false;
    return true;
}

void holder_ask_nodes(struct ct_holder *holder)
{
    const char *hosts[CT_REPLICA_SERVERS];
    size_t count = 0;

    if (holder->io.ask_nodes == NULL || holder->peers != NULL)
        return;
    if (!waits_for_all(holder)) {
        holder->nodes_text[0] = '\0';
        return;
    }
    if (holder->now_ms < holder->ask_ms)
        return;
    holder->ask_ms = holder->now_ms + ASK_MS;
    for (size_t i = 0; i < holder->voter_count; i++) {
        hosts[count] = holder_host_of(holder, holder->voters[i].id);
        if (hosts[count++] == NULL)
            return;
    }
    holder->io.ask_nodes(holder->io.context, hosts, count);
}

void holder_nodes_known(struct ct_holder *holder, bool down, const char *text)
{
    if (holder->peers != NULL || !waits_for_all(holder))
        return;
    (void)ct_str_copy(holder->nodes_text, sizeof holder->nodes_text, text);
    if (down)
        holder_go_on_alone(holder, "Slurm reports the nodes of all others down");
}
