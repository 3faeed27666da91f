/* The audit log: a record a line of each order, whatever came of it, and of each refusal.
 *
 *   {"time":"...","kind":"audit","deed":"cordon","verdict":"done","text":"done",
 *    "peer":"10.0.0.7:41230","uid":1000,"key":"6f1c0e2a9b3d4857","key_name":"ada",
 *    "key_role":"operator","role":"operator","job":"night",
 *    "host":"node3","author":"ada@login1","reason":"its fan"}
 *
 * `peer`, `uid` (of one on this machine) and the `key` that it proved (its id, the name that the
 * key ring gives it, what it may do) are what this side found out; role, job, host, author and
 * reason are what the other side says, as strings of JSON: no name can end one. Refusals, which
 * strangers cause, are limited (log_limit.h), and those left out are counted in a record; orders
 * are not: operators are few and have a pace (admin.h). */
#include "rendezvous/server/server_state_uv.h"

#include "base/log/record.h"
#include "base/number/hash.h"

#include <string.h>

static void put_string(struct ct_buf *line, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0')
        ct_record_string(line, key, text);
}

/* A certificate may have several. */
static void put_roles(struct ct_buf *line, const struct ct_grant *grant)
{
    struct ct_buf roles;

    ct_buf_init(&roles, 0);
    for (const struct ct_grant *at = grant; at != NULL; at = at->next)
        (void)ct_buf_printf(&roles, "%s%s", at != grant ? "," : "", ct_role_name(at->role));
    put_string(line, "key_role", ct_buf_str(&roles));
    ct_buf_deinit(&roles);
}

static void put_origin(struct ct_buf *line, const struct ct_server_origin *from)
{
    unsigned uid;

    put_string(line, "peer", from->peer);
    if (from->conn != NULL && ct_conn_user_of_peer(from->conn, &uid))
        ct_record_whole(line, "uid", uid);
    if (from->grant == NULL)
        return;
    put_string(line, "key", from->grant->id);
    put_string(line, "key_name", from->grant->name);
    put_roles(line, from->grant);
}

static void write_line(const struct ct_rdzv_server *server, struct ct_buf *line)
{
    ct_record_end(line);
    if (!line->failed)
        server->audit->write(server->audit->context, line->data, line->size);
    ct_buf_deinit(line);
}

static void begin(const struct ct_rdzv_server *server, struct ct_buf *line, const char *deed)
{
    ct_buf_init(line, 0);
    ct_record_begin(line, ct_clock_wall_ns(server->clock), "audit");
    ct_record_string(line, "deed", deed);
}

/* Of a kind of refusal and an address without its port: a stranger's connections count together. */
static uint64_t kind_of(const struct ct_server_origin *from, const struct ct_service_deed *deed)
{
    const char *port = strrchr(from->peer, ':');
    size_t size = port != NULL ? (size_t)(port - from->peer) : strlen(from->peer);

    return ct_hash_str(deed->deed) ^ ct_hash64(from->peer, size, 0) ^ (uint64_t)deed->code;
}

/* False: too many of this kind were refused lately. */
static bool may_write(struct ct_rdzv_server *server, const struct ct_server_origin *from,
                      const struct ct_service_deed *deed)
{
    uint32_t left_out = 0;
    struct ct_buf line;

    if (deed->is_order)
        return true;
    bool pass = ct_log_limit_pass(&server->audit_limit, ct_server_now_ms(server),
                                  kind_of(from, deed), &left_out);
    if (left_out > 0) {
        begin(server, &line, "left_out");
        ct_record_whole(&line, "refusals", left_out);
        write_line(server, &line);
    }
    return pass;
}

void ct_server_audit(struct ct_rdzv_server *server, const struct ct_server_origin *from,
                     const struct ct_service_deed *deed)
{
    struct ct_buf line;

    if (server->audit == NULL || !may_write(server, from, deed))
        return;
    begin(server, &line, deed->deed);
    ct_record_string(&line, "verdict", deed->code == 0 ? "done" : "refused");
    put_string(&line, "text", deed->text);
    put_origin(&line, from);
    put_string(&line, "role", deed->role);
    put_string(&line, "job", deed->job);
    put_string(&line, "host", deed->host);
    put_string(&line, "author", deed->author);
    put_string(&line, "reason", deed->reason);
    write_line(server, &line);
}

struct ct_server_origin ct_server_origin_of(const struct ct_conn *conn)
{
    return (struct ct_server_origin){
        .peer = ct_conn_peer(conn), .conn = conn, .grant = ct_conn_grant(conn)};
}

void ct_rdzv_server_audit(struct ct_rdzv_server *server, const char *peer,
                          const struct ct_service_deed *deed)
{
    ct_server_audit(server, &(struct ct_server_origin){.peer = peer}, deed);
}
