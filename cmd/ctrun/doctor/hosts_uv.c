/* See hosts_uv.h.
 *
 *   resolve all names --> route to each address (a UDP socket that is connected, and sends nothing)
 *   --> a connection to each address: HELLO and ADMIN status, as `ctrun status` asks --> the answer
 */
#include "cmd/ctrun/doctor/hosts_uv.h"

#include "base/str.h"
#include "cmd/ctrun/doctor/look.h"
#include "net/address.h"
#include "net/conn_uv.h"
#include "rendezvous/service/admin.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_MS = 1500, REACH_MS = 3000 };

/* ---- routes ---- */

/* The interface that has this address. */
static void find_interface(const char *source, char *name, size_t room)
{
    struct ifaddrs *list = NULL;
    char text[CT_ADDRESS_TEXT];

    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL ||
            (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6))
            continue;
        if (strcmp(ct_address_host(at->ifa_addr, text), source) == 0)
            (void)ct_str_copy(name, room, at->ifa_name);
    }
    freeifaddrs(list);
}

static void look_route(const struct sockaddr *to, struct doctor_address *ret)
{
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_4 = to->sa_family == AF_INET;
    struct sockaddr_storage source;
    socklen_t size = sizeof source, mtu_size = sizeof ret->mtu;
    char text[CT_ADDRESS_TEXT];

    if (fd < 0 || connect(fd, to, ct_address_size(to)) != 0 ||
        getsockname(fd, (struct sockaddr *)&source, &size) != 0) {
        ret->route = errno;
    } else {
        (void)ct_str_copy(ret->source, sizeof ret->source,
                          ct_address_host((const struct sockaddr *)&source, text));
        if (getsockopt(fd, is_4 ? IPPROTO_IP : IPPROTO_IPV6, is_4 ? IP_MTU : IPV6_MTU, &ret->mtu,
                       &mtu_size) != 0)
            ret->mtu = 0;
        if (strcmp(ret->source, ret->text) == 0)
            (void)ct_str_copy(ret->interface, sizeof ret->interface, "lo"); /* itself */
        else
            find_interface(ret->source, ret->interface, sizeof ret->interface);
    }
    if (fd >= 0)
        (void)close(fd);
}

/* ---- who answers ---- */

struct probe {
    const struct doctor_question *question;
    struct doctor_address *to;
    struct ct_conn *conn;
    uv_timer_t timer;
    uint32_t protocol; /* that HELLO offers */
    bool is_over;      /* `to` has the outcome */
};

static void finish(struct probe *probe, int code, const char *sentence)
{
    if (probe->is_over)
        return;
    probe->is_over = true;
    probe->to->code = code;
    (void)ct_str_copy(probe->to->sentence, sizeof probe->to->sentence, sentence);
    if (probe->conn != NULL)
        ct_conn_close(probe->conn, 0, NULL);
}

static void on_open(struct ct_conn *conn)
{
    struct probe *probe = ct_conn_user(conn);
    struct ct_message hello = {.type = CT_MSG_HELLO,
                               .hello = {.protocol = probe->protocol,
                                         .job = probe->question->job,
                                         .host = probe->question->author,
                                         .role = "admin"}};
    struct ct_message ask = {
        .type = CT_MSG_ADMIN,
        .admin = {
            .verb = CT_ADMIN_STATUS, .host = "", .reason = "", .author = probe->question->author}};
    struct ct_error err = {0};

    probe->to->reached = DOCTOR_ADMITTED;
    if (ct_conn_send(conn, &hello, &err) != 0 || ct_conn_send(conn, &ask, &err) != 0)
        finish(probe, err.code, err.text);
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct probe *probe = ct_conn_user(conn);

    if (message->type != CT_MSG_REFUSE && message->type != CT_MSG_ADMIN_REPLY)
        return;
    if (!probe->is_over)
        probe->to->reached = DOCTOR_ANSWERED;
    if (message->type == CT_MSG_REFUSE)
        finish(probe, message->refuse.code, message->refuse.text);
    else
        finish(probe, message->admin_reply.code, ct_strerror(message->admin_reply.code));
}

static void on_waiting(struct ct_conn *conn, uint64_t waited_ms, const char *what, bool accepted)
{
    struct probe *probe = ct_conn_user(conn);

    (void)waited_ms;
    (void)what;
    if (accepted && probe->to->reached == DOCTOR_NOT_CONNECTED)
        probe->to->reached = DOCTOR_CONNECTED;
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct probe *probe = ct_conn_user(conn);

    probe->conn = NULL;
    finish(probe, why->code, why->text);
    uv_close((uv_handle_t *)&probe->timer, NULL);
}

static void on_late(uv_timer_t *timer)
{
    finish(timer->data, CT_ETIMEOUT, "nothing came within 3 s");
}

static const struct ct_conn_callbacks callbacks = {
    .on_open = on_open, .on_message = on_message, .on_close = on_close, .on_waiting = on_waiting};

static void start(struct probe *probe, uv_loop_t *loop, uint16_t port)
{
    struct ct_endpoint endpoint = {.port = port};
    const struct ct_key *key = probe->question->key;
    const struct ct_conn_options options = {.from = CT_FROM_SERVER,
                                            .key = key,
                                            .job = key != NULL ? probe->question->job : NULL,
                                            .once = true,
                                            .connect_ms = REACH_MS};
    struct ct_error err = {0};

    (void)ct_str_copy(endpoint.host, sizeof endpoint.host, probe->to->text);
    (void)uv_timer_init(loop, &probe->timer);
    probe->timer.data = probe;
    (void)uv_timer_start(&probe->timer, on_late, REACH_MS, 0);
    if (ct_conn_connect(loop, &endpoint, &options, &callbacks, probe, &probe->conn, &err) != 0) {
        finish(probe, err.code, err.text);
        uv_close((uv_handle_t *)&probe->timer, NULL);
    }
}

/* ---- all of it ---- */

/* Ask all that were not asked in a protocol that they know. Returns how many were. */
static size_t ask(struct probe *probes, struct doctor_host *hosts, size_t count, uint32_t protocol,
                  uv_loop_t *loop)
{
    size_t asked = 0;

    for (size_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < hosts[i].name.count; k++) {
            struct probe *probe = &probes[i * DOCTOR_ADDRESSES + k];
            bool is_refused = probe->protocol != 0 && probe->to->reached == DOCTOR_ANSWERED &&
                              probe->to->code == CT_EPROTOCOL;

            if (hosts[i].at[k].route != 0 || (probe->protocol != 0 && !is_refused))
                continue;
            *probe = (struct probe){
                .question = probe->question, .to = &hosts[i].at[k], .protocol = protocol};
            hosts[i].protocol = protocol;
            start(probe, loop, hosts[i].port);
            asked++;
        }
    (void)uv_run(loop, UV_RUN_DEFAULT);
    return asked;
}

static int reach(struct doctor_host *hosts, size_t count, const struct doctor_question *question)
{
    struct probe *probes = calloc(count * DOCTOR_ADDRESSES, sizeof *probes);
    uint32_t protocol = CT_WIRE_PROTOCOL;
    uv_loop_t loop;
    int rc = probes != NULL ? uv_loop_init(&loop) : -ENOMEM;

    for (size_t i = 0; i < count * DOCTOR_ADDRESSES && rc == 0; i++)
        probes[i].question = question;
    while (rc == 0 && ask(probes, hosts, count, protocol, &loop) > 0) {
        protocol = ct_wire_next_older(protocol);
        if (protocol == CT_WIRE_PROTOCOL)
            break;
    }
    if (rc == 0)
        rc = uv_loop_close(&loop);
    free(probes);
    return rc;
}

int doctor_look_hosts(struct doctor_host *hosts, size_t count,
                      const struct doctor_question *question)
{
    struct doctor_resolution *names = calloc(count, sizeof *names);
    char text[CT_ADDRESS_TEXT];

    if (names == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        names[i] = (struct doctor_resolution){.lookup = &hosts[i].name, .port = hosts[i].port};
    doctor_resolve(names, count, NAME_MS);
    for (size_t i = 0; i < count; i++) {
        hosts[i].protocol = CT_WIRE_PROTOCOL;
        hosts[i].has_key = question->key != NULL;
        hosts[i].by_munge = question->key != NULL && question->key->kind == CT_KEY_MUNGE;
        for (uint32_t k = 0; k < hosts[i].name.count; k++) {
            const struct sockaddr *address = (const struct sockaddr *)&names[i].at[k];
            struct doctor_address *to = &hosts[i].at[k];

            (void)ct_str_copy(to->text, sizeof to->text, ct_address_host(address, text));
            to->loopback = ct_address_is_loopback(address);
            look_route(address, to);
        }
    }
    free(names);
    return reach(hosts, count, question);
}
