/* The keys of a server: which it accepts, and what becomes of links when they change.
 *
 * A key file alone is the whole key: it and the keys of roles derived from it are accepted, and
 * links go on when it changes. With a key ring the server accepts what is in it, and its own key,
 * by which peers know each other; links of keys that are no longer in it end. With munge in the
 * key's place this user and root are accepted, and those of the ring's lines of munge. */
#include "rendezvous/server/server_state_uv.h"

#include "base/str.h"

#include <stdio.h>
#include <unistd.h>

static int load(struct ct_rdzv_server *server, struct ct_key_ring **ret_ring,
                struct ct_key *ret_key, struct ct_error *err)
{
    bool has_key = server->key_file[0] != '\0';
    int code = has_key ? ct_net_key_load(server->key_file, ret_key, err) : 0;

    if (code == 0 && server->ring_file[0] == '\0')
        return has_key ? ct_key_ring_of(ret_key, true, ret_ring, err) : 0;
    if (code == 0)
        code = ct_key_ring_load(server->ring_file, has_key ? ret_key : NULL, ret_ring, err);
    return code;
}

int ct_server_load_keys(struct ct_rdzv_server *server, const struct ct_rdzv_server_options *options,
                        struct ct_error *err)
{
    if (options->key_file != NULL &&
        !ct_str_copy(server->key_file, sizeof server->key_file, options->key_file))
        return ct_error_set(err, CT_EUSAGE, "the key file's path is too long");
    if (options->key_ring != NULL &&
        !ct_str_copy(server->ring_file, sizeof server->ring_file, options->key_ring))
        return ct_error_set(err, CT_EUSAGE, "the key ring's path is too long");
    if (options->key_ring != NULL && options->key_file == NULL && options->replica != NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "--peers with --key_ring needs --key_file too: the key by which the "
                            "ctrund know each other");
    return load(server, &server->ring, &server->key, err);
}

int ct_server_check_account(const struct ct_rdzv_server *server, struct ct_error *err)
{
    const struct ct_key *key = &server->key;

    if (key->kind != CT_KEY_MUNGE || key->munge.account == geteuid())
        return 0;
    return ct_error_set(err, CT_EUSAGE,
                        "--key_file %.100s names the account of user %u, and the rendezvous here "
                        "runs as user %u: leave the account out",
                        server->key_file, key->munge.account, (unsigned)geteuid());
}

/* Links of keys that are gone, or that may do something else now. */
static void end_revoked(struct ct_rdzv_server *server)
{
    struct ct_server_peer *next;

    for (struct ct_server_peer *peer = server->peers; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->conn != NULL)
            (void)ct_server_is_revoked(server, peer->conn);
    }
}

bool ct_server_is_revoked(struct ct_rdzv_server *server, struct ct_conn *conn)
{
    const struct ct_grant *grant = ct_conn_grant(conn);
    char text[128];

    if (server->ring_file[0] == '\0' || grant == NULL || ct_key_ring_has(server->ring, grant))
        return false;
    (void)snprintf(text, sizeof text, "key %s (%s) was revoked or changed", grant->name,
                   grant->user[0] != '\0' ? grant->user : grant->id);
    const struct ct_server_origin from = ct_server_origin_of(conn);
    ct_server_audit(server, &from,
                    &(struct ct_service_deed){.deed = "connect", .code = CT_EAUTH, .text = text});
    ct_conn_close(conn, CT_EAUTH, text);
    return true;
}

int ct_rdzv_server_reload(struct ct_rdzv_server *server, struct ct_error *err)
{
    struct ct_key_ring *ring = NULL;
    struct ct_key key = {0};
    int code = load(server, &ring, &key, err);

    if (code == 0 && ring != NULL) {
        for (size_t i = 0; i < server->listener_count; i++)
            ct_listener_change_ring(server->listeners[i], ring);
        ct_key_ring_unref(server->ring);
        server->ring = ring;
        server->key = key; /* of links to peers that are dialled from now on */
        end_revoked(server);
    }
    ct_net_key_wipe(&key);
    return code;
}

struct ct_key_ring *ct_rdzv_server_ring(const struct ct_rdzv_server *server)
{
    return server->ring;
}

bool ct_rdzv_server_has_ring_file(const struct ct_rdzv_server *server)
{
    return server->ring_file[0] != '\0';
}

void ct_server_forget_keys(struct ct_rdzv_server *server)
{
    ct_key_ring_unref(server->ring);
    ct_net_key_wipe(&server->key);
}
