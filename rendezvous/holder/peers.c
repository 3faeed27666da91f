/* See peers.h. */
#include "rendezvous/holder/peers.h"

#include "base/number/hash.h"
#include "net/endpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* All interfaces of whoever reads it: nobody's address. */
static bool is_everywhere(const char *host)
{
    return host[0] == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* An address as all write it: "h0" is "h0:29400". */
static int read_one(const char *text, char address[CT_ENDPOINT_TEXT], struct ct_error *err)
{
    struct ct_endpoint endpoint;
    int code = ct_endpoint_parse(text, CT_PEERS_PORT, &endpoint, err);

    if (code)
        return code;
    if (endpoint.is_unix || is_everywhere(endpoint.host) || endpoint.port == 0)
        return ct_error_set(
            err, CT_EUSAGE,
            "%s cannot be one of --peers: each is HOST:PORT, as the others reach it", text);
    (void)ct_endpoint_print(&endpoint, address);
    if (strlen(address) >= CT_REPLICA_ADDRESS_BYTES)
        return ct_error_set(err, CT_EUSAGE, "the address %s of --peers is too long", text);
    return 0;
}

/* Put it where it belongs by its address. */
static int add(struct ct_peers *peers, const char *address, struct ct_error *err)
{
    size_t at = peers->count;

    for (size_t i = 0; i < peers->count; i++)
        if (strcmp(peers->list[i].address, address) == 0)
            return ct_error_set(err, CT_EUSAGE, "--peers names %s twice", address);
    if (peers->count == CT_REPLICA_SERVERS)
        return ct_error_set(err, CT_EUSAGE, "--peers names more than %d daemons",
                            CT_REPLICA_SERVERS);
    for (; at > 0 && strcmp(peers->list[at - 1].address, address) > 0; at--)
        peers->list[at] = peers->list[at - 1];
    peers->list[at] = (struct ct_replica_server){.id = ct_hash_str(address) | 1};
    memcpy(peers->list[at].address, address, strlen(address) + 1);
    peers->count++;
    return 0;
}

static int check_count(const struct ct_peers *peers, struct ct_error *err)
{
    if (peers->count % 2 == 0)
        return ct_error_set(err, CT_EUSAGE,
                            "--peers names %zu daemons, an even number, which survives no more "
                            "deaths than %zu do: name 3, 5, 7 or 9",
                            peers->count, peers->count - 1);
    if (peers->count < CT_PEERS_LEAST)
        return ct_error_set(err, CT_EUSAGE,
                            "--peers names one daemon alone: name 3, 5, 7 or 9, or leave it out "
                            "for a single ctrund with a journal");
    return 0;
}

/* Which of them listens at one of these endpoints. */
static int find_own(struct ct_peers *peers, const char *list, const char *const *listen,
                    size_t listen_count, struct ct_error *err)
{
    for (size_t i = 0; i < listen_count; i++) {
        struct ct_endpoint endpoint;
        char address[CT_ENDPOINT_TEXT];

        if (ct_endpoint_parse(listen[i], -1, &endpoint, NULL) != 0)
            continue;
        (void)ct_endpoint_print(&endpoint, address);
        for (size_t k = 0; k < peers->count; k++) {
            if (strcmp(peers->list[k].address, address) == 0) {
                peers->own = k;
                peers->listener = i;
                return 0;
            }
        }
    }
    return ct_error_set(err, CT_EUSAGE,
                        "this ctrund listens on %s, which is none of --peers %s: give it --listen "
                        "with its own address of that list",
                        listen_count > 0 ? listen[0] : "nothing", list);
}

/* What follows from the list, whatever its order was. */
static void name_list(struct ct_peers *peers)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < peers->count; i++)
        hash = ct_hash64(peers->list[i].address, strlen(peers->list[i].address) + 1, hash);
    peers->era = (uint64_t)1 << 32 | (uint32_t)hash;
    (void)snprintf(peers->name, sizeof peers->name, "peers %016" PRIx64, hash);
}

int ct_peers_read(struct ct_peers *ret_peers, const char *list, const char *const *listen,
                  size_t listen_count, struct ct_error *err)
{
    struct ct_peers peers = {0};
    const char *rest = list;
    char one[CT_ENDPOINT_TEXT], address[CT_ENDPOINT_TEXT];
    int code = 0;

    do {
        ct_endpoint_next(&rest, one);
        code = read_one(one, address, err);
        if (code == 0)
            code = add(&peers, address, err);
    } while (code == 0 && *rest != '\0');
    if (code == 0)
        code = check_count(&peers, err);
    if (code == 0)
        code = find_own(&peers, list, listen, listen_count, err);
    if (code)
        return code;
    name_list(&peers);
    *ret_peers = peers;
    return 0;
}
