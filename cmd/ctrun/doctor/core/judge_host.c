/* See doctor.h: the checks of another machine. A host is reached by the first of its addresses that
 * works, as ctrun tries them in turn. */
#include "cmd/ctrun/doctor/core/finding.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { MTU_LEAST = 1280 };

/* The address that came furthest. */
static const struct doctor_address *best(const struct doctor_host *host)
{
    const struct doctor_address *found = &host->at[0];

    for (uint32_t i = 1; i < host->name.count; i++)
        if (host->at[i].reached > found->reached ||
            (host->at[i].reached == found->reached && found->route != 0 && host->at[i].route == 0))
            found = &host->at[i];
    return found;
}

/* Returns whether the next check makes sense; likewise below. */
static bool judge_host_name(const struct doctor_host *host, struct doctor_finding *to)
{
    const struct doctor_lookup *name = &host->name;

    if (name->failure[0] != '\0') {
        finding_fail(to, CT_EUNAVAILABLE, "the name %s does not resolve: %s", name->name,
                     name->failure);
        finding_remedy(to, "correct the name, or add it to DNS or to /etc/hosts of every node");
        return false;
    }
    if (strcmp(name->name, name->first) == 0)
        finding_ok(to, "an address that needs no resolver");
    else
        finding_ok(to, "%s resolves to %s%s", name->name, name->first,
                   name->count > 1 ? " and more" : "");
    if (name->loopback && strcmp(name->name, name->first) != 0 &&
        strcmp(name->name, "localhost") != 0) {
        finding_warn(to, "%s resolves to loopback alone (%s): only this machine is reached by it",
                     name->name, name->first);
        finding_remedy(to, "have /etc/hosts give %s the address that other machines know",
                       name->name);
    }
    return true;
}

static bool judge_host_route(const struct doctor_host *host, struct doctor_finding *to)
{
    const struct doctor_address *address = best(host);

    if (address->route != 0) {
        finding_fail(to, CT_EUNAVAILABLE, "there is no route to %s: %s", address->text,
                     ct_strerror(-address->route));
        finding_remedy(to,
                       "see `ip route get %s` and `ip link`; both machines need an address in "
                       "a network that they share, or a gateway",
                       address->text);
        return false;
    }
    if (address->mtu > 0 && address->mtu < MTU_LEAST) {
        finding_warn(to, "%s is reached through %s, from %s, with an MTU of %d only", address->text,
                     address->interface, address->source, address->mtu);
        finding_remedy(to,
                       "ip link set %s mtu 1500, and the same on all machines and switches "
                       "between",
                       address->interface);
        return true;
    }
    finding_ok(to, "%s is reached through %s, from %s, MTU %d", address->text, address->interface,
               address->source, address->mtu);
    return true;
}

/* Nobody has accepted. */
static void judge_closed(const struct doctor_host *host, const struct doctor_address *address,
                         struct doctor_finding *to)
{
    if (address->code == -ECONNREFUSED) {
        finding_warn(to, "%s is there, but nothing listens at port %u", address->text, host->port);
        finding_remedy(to, "none, if the job's first node or ctrund has yet to be started there; "
                           "else see its port");
    } else if (address->code == CT_ETIMEOUT) {
        finding_fail(to, CT_ETIMEOUT, "%s does not answer at port %u within 3 s", address->text,
                     host->port);
        finding_remedy(to,
                       "it is down, or a firewall drops TCP to port %u: open that port, and "
                       "those above 1024 between the nodes (see `nft list ruleset` on both)",
                       host->port);
    } else {
        finding_fail(to, CT_EUNAVAILABLE, "%s cannot be connected with: %s", address->text,
                     address->sentence);
        finding_remedy(to, "see `ip route get %s`, and whether that machine is up", address->text);
    }
}

/* Somebody listens, who has not answered, or not as wanted. */
static void judge_answer(const struct doctor_host *host, const struct doctor_address *address,
                         struct doctor_finding *to)
{
    bool is_key = address->code == CT_EAUTH;

    if (address->code == CT_ETIMEOUT)
        finding_fail(to, CT_ETIMEOUT, "%s port %u accepts connections, but does not answer: %s",
                     address->text, host->port, address->sentence);
    else if (strstr(address->sentence, address->text) != NULL)
        finding_fail(to, address->code, "%s", address->sentence);
    else
        finding_fail(to, address->code, "%s port %u: %s", address->text, host->port,
                     address->sentence);
    if (is_key)
        finding_remedy(to, "%s",
                       host->by_munge
                           ? "munge:ACCOUNT names the account that ctrun or ctrund runs under "
                             "there, whose log says whom it refuses; both machines need the same "
                             "munge.key"
                       : host->has_key ? "every node and ctrund need the same key file: compare "
                                         "`sha256sum FILE` on both"
                                       : "give the job's key: --key_file FILE");
    else if (address->reached == DOCTOR_ANSWERED && address->code == CT_EPROTOCOL)
        finding_remedy(to,
                       "the oldest protocol of this ctrun is %" PRIu32
                       ": install releases of ctrun "
                       "that follow each other, or the same one, on all machines",
                       host->protocol);
    else
        finding_remedy(to, "%s",
                       host->has_key ? "see that ctrun or ctrund listens there, and with a key"
                                     : "see that ctrun or ctrund listens there, not another "
                                       "program; with a key it needs --key_file FILE here");
}

static bool judge_host_port(const struct doctor_host *host, struct doctor_finding *to)
{
    const struct doctor_address *address = best(host);

    if (address->reached == DOCTOR_NOT_CONNECTED)
        judge_closed(host, address, to);
    else if (address->reached == DOCTOR_ANSWERED &&
             (address->code == 0 || address->code == CT_ENOTFOUND ||
              address->code == CT_EUNAVAILABLE))
        finding_ok(to, "a rendezvous answers at port %u: protocol %" PRIu32 "%s%s", host->port,
                   host->protocol, host->has_key ? ", the key is accepted" : "",
                   address->code == 0              ? ""
                   : address->code == CT_ENOTFOUND ? "; it has no such job yet"
                                                   : "; another one leads");
    else
        judge_answer(host, address, to);
    return true;
}

static const struct {
    const char *name;
    bool (*judge)(const struct doctor_host *host, struct doctor_finding *to);
} checks[] = {
#define DOCTOR_HOST_CHECK(name, function) {#name, function},
#include "cmd/ctrun/doctor/core/checks.def"
};

size_t doctor_judge_host(const struct doctor_host *host, struct doctor_finding *ret_findings)
{
    size_t count = 0;
    bool go_on = true;

    while (count < CT_COUNT(checks) && go_on) {
        ret_findings[count] = (struct doctor_finding){.check = checks[count].name};
        go_on = checks[count].judge(host, &ret_findings[count]);
        count++;
    }
    return count;
}
