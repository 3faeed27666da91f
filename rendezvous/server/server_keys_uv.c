/* The keys and certificates of a server: which it accepts, and what becomes of links when they
 * change.
 *
 * A key file alone is the whole key: it and the keys of roles derived from it are accepted, and
 * links go on when it changes. With a key ring the server accepts what is in it, and its own key,
 * by which peers know each other; links of keys that are no longer in it end. With munge in the
 * key's place this user and root are accepted, and those of the ring's lines of munge. Certificates
 * are accepted besides, by the CA of now. */
#include "rendezvous/server/server_state_uv.h"

#include "base/clock.h"
#include "base/str.h"
#include "keys/certificates.h"

#include <stdio.h>
#include <unistd.h>

static int load_key(const struct ct_rdzv_server *server, const struct ct_certificate_files *files,
                    struct ct_key *ret_key, struct ct_error *err)
{
    if (server->key_file[0] != '\0')
        return ct_net_key_load(server->key_file, ret_key, err);
    ret_key->kind = CT_KEY_CERTIFICATE;
    return files->chain[0] != '\0' ? ct_certificates_load(files, &ret_key->certificates, err) : 0;
}

/* The certificates of this server beside its key. */
static int add_certificates(struct ct_key_ring *ring, const struct ct_key *key,
                            const struct ct_certificate_files *files, struct ct_error *err)
{
    struct ct_certificates *certificates = ct_certificates_ref(key->certificates);
    int code = certificates == NULL ? ct_certificates_load(files, &certificates, err) : 0;

    if (code == 0)
        ct_key_ring_set_certificates(ring, certificates);
    ct_certificates_unref(certificates);
    return code;
}

static int load(struct ct_rdzv_server *server, struct ct_key_ring **ret_ring,
                struct ct_key *ret_key, struct ct_error *err)
{
    const struct ct_certificate_files files = {server->tls_files[0], server->tls_files[1],
                                               server->tls_files[2]};
    bool has_file = server->key_file[0] != '\0', has_tls = ct_certificate_files_given(&files);
    struct ct_key_ring *ring = NULL;
    int code = load_key(server, &files, ret_key, err);

    if (code == 0 && server->ring_file[0] != '\0')
        code = ct_key_ring_load(server->ring_file, has_file ? ret_key : NULL, &ring, err);
    else if (code == 0 && (has_file || has_tls))
        code = ct_key_ring_of(ret_key, true, &ring, err);
    if (code == 0 && has_tls)
        code = add_certificates(ring, ret_key, &files, err);
    if (code != 0) {
        ct_key_ring_unref(ring);
        return code;
    }
    *ret_ring = ring;
    return 0;
}

/* Certificates that end soon, once at the start and then each day: nothing else would tell
 * before the first new job is refused. */
static void warn_of_end(struct ct_rdzv_server *server)
{
    const struct ct_certificates *own = ct_key_ring_certificates(server->ring);
    struct ct_error text = {0};

    if (own == NULL ||
        ct_certificates_judge_time(own, (int64_t)(ct_clock_wall_ns(server->clock) / 1000000000),
                                   &text) == 0)
        return;
    if (server->log != NULL)
        ct_log_event(server->log, CT_LOG_WARN, "certificate", "%s", text.text);
}

/* A server within ctrun is told by no signal that its files are renewed. */
static void on_certificate_timer(uv_timer_t *timer)
{
    struct ct_rdzv_server *server = timer->data;

    if (server->only_job[0] == '\0' || ct_key_ring_certificates(server->ring) == NULL ||
        ct_rdzv_server_reload(server, NULL) != 0)
        warn_of_end(server);
}

void ct_server_watch_certificates(struct ct_rdzv_server *server)
{
    (void)uv_timer_init(server->loop, &server->certificate_timer);
    server->certificate_timer.data = server;
    (void)uv_timer_start(&server->certificate_timer, on_certificate_timer, 0,
                         CT_CERTIFICATE_AGAIN_MS);
    uv_unref((uv_handle_t *)&server->certificate_timer);
}

static bool copy_path(char to[PATH_MAX], const char *from)
{
    return from == NULL || ct_str_copy(to, PATH_MAX, from);
}

int ct_server_load_keys(struct ct_rdzv_server *server, const struct ct_rdzv_server_options *options,
                        struct ct_error *err)
{
    const struct ct_certificate_files none = {0},
                                      *tls = options->tls != NULL ? options->tls : &none;

    if (!copy_path(server->key_file, options->key_file))
        return ct_error_set(err, CT_EUSAGE, "the key file's path is too long");
    if (!copy_path(server->ring_file, options->key_ring))
        return ct_error_set(err, CT_EUSAGE, "the key ring's path is too long");
    if (!copy_path(server->tls_files[0], tls->chain) ||
        !copy_path(server->tls_files[1], tls->key) || !copy_path(server->tls_files[2], tls->ca))
        return ct_error_set(err, CT_EUSAGE, "the path of a certificate's file is too long");
    if (options->key_ring != NULL && options->key_file == NULL && options->replica != NULL &&
        !ct_certificate_files_given(tls))
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

bool ct_server_has_key(const struct ct_rdzv_server *server)
{
    return server->key_file[0] != '\0' || server->key.certificates != NULL;
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

    if (grant == NULL || (grant->by != CT_KEY_CERTIFICATE && server->ring_file[0] == '\0') ||
        ct_conn_is_accepted(conn, server->ring))
        return false;
    (void)snprintf(text, sizeof text, "%s %s (%s) was revoked or changed",
                   grant->by == CT_KEY_CERTIFICATE ? "certificate" : "key", grant->name,
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
        ct_net_key_wipe(&server->key);
        server->key = key; /* of links to peers that are dialled from now on */
        end_revoked(server);
        warn_of_end(server);
        return 0;
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

int64_t ct_server_certificate_expires_s(void *context)
{
    const struct ct_rdzv_server *server = context;
    const struct ct_certificates *own = ct_key_ring_certificates(server->ring);

    return own != NULL ? ct_certificates_expire_s(own) : 0;
}

void ct_server_forget_keys(struct ct_rdzv_server *server)
{
    ct_key_ring_unref(server->ring);
    ct_net_key_wipe(&server->key);
}
