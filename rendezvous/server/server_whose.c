/* Whose a connection is, for quotas (rendezvous/service/accounts.h): its key's, where the ring
 * names it. A key that all of a daemon's users have, and a line of munge, say nothing of that: then
 * it is the user on this machine, or whom munge names, else the address. */
#include "rendezvous/server/server_state_uv.h"

#include "net/address.h"

bool ct_server_whose(void *context, void *peer, struct ct_account_name *ret_name)
{
    const struct ct_conn *conn = ((const struct ct_server_peer *)peer)->conn;
    char network[CT_ADDRESS_TEXT];

    (void)context;
    if (conn == NULL) /* of this process: the page's */
        return false;
    const struct ct_grant *grant = ct_conn_grant(conn);
    bool is_named = grant != NULL && grant->name[0] != '\0' && grant->user[0] == '\0';
    const struct ct_account_of of = {.key = is_named ? grant->name : NULL,
                                     .uid = ct_conn_known_user(conn),
                                     .network = ct_address_network(ct_conn_peer(conn), network)};
    ct_account_name(&of, ret_name);
    return true;
}
