/* What secures a connection, and what its peer has proved by that; see conn_uv.h. */
#include "net/conn_inner_uv.h"

/* May a peer that has proved no key cost a handshake by certificate? */
static bool may_shake_hands(void *user)
{
    struct ct_conn *conn = user;

    return ct_listener_may_shake_hands(conn->listener, conn);
}

int ct_conn_secure(struct ct_conn *conn, const struct ct_conn_secret *secret, struct ct_error *err)
{
    if (secret->ring == NULL && secret->key->kind == CT_KEY_MUNGE)
        return ct_conn_seal(conn, secret->key, err);
    int code = secret->ring != NULL
                   ? ct_tls_new_server(&conn->tls, secret->ring, err)
                   : ct_tls_new_client(&conn->tls, secret->key, conn->options.job, err);

    if (code == 0 && conn->listener != NULL)
        ct_tls_set_gate(conn->tls, may_shake_hands, conn);
    if (code == 0 && conn->options.accept_expired)
        ct_tls_accept_expired(conn->tls);
    return code;
}

bool ct_conn_is_accepted(const struct ct_conn *conn, const struct ct_key_ring *ring)
{
    return conn->tls != NULL && ct_tls_is_accepted(conn->tls, ring);
}

void *ct_conn_user(const struct ct_conn *conn)
{
    return conn->user;
}

void ct_conn_set_user(struct ct_conn *conn, void *user)
{
    conn->user = user;
}

const char *ct_conn_peer(const struct ct_conn *conn)
{
    return conn->peer;
}

const struct ct_grant *ct_conn_grant(const struct ct_conn *conn)
{
    return conn->tls != NULL ? ct_tls_grant(conn->tls) : NULL;
}

bool ct_conn_user_of_peer(const struct ct_conn *conn, unsigned *ret_uid)
{
    int64_t known = ct_conn_known_user(conn);
    int fd;

    if (known >= 0)
        *ret_uid = (unsigned)known;
    return known >= 0 ||
           (uv_fileno(&conn->io.handle, &fd) == 0 && ct_address_find_peer_user(fd, ret_uid) == 0);
}

int64_t ct_conn_known_user(const struct ct_conn *conn)
{
    unsigned uid;

    return conn->tls != NULL && ct_tls_user(conn->tls, &uid) ? (int64_t)uid : conn->uid;
}

int ct_conn_may(const struct ct_conn *conn, enum ct_right right, const char *job,
                struct ct_error *err)
{
    const struct ct_grant *grant = ct_conn_grant(conn);
    unsigned uid;

    if (grant == NULL)
        return 0;
    if (job != NULL && !ct_tls_is_for(conn->tls, job))
        return ct_error_set(err, CT_EAUTH, "the peer has proved its key for another job than %s",
                            job);
    bool is_known = grant->user_count > 0 && ct_conn_user_of_peer(conn, &uid);
    return ct_grant_may(grant, right, job, is_known ? (int64_t)uid : -1, err);
}

void ct_conn_set_frame_limit(struct ct_conn *conn, uint32_t limit)
{
    conn->options.frame_limit = conn->reader.limit = limit;
}
