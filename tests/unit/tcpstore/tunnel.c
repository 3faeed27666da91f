#include "tunnel.h"

#include "client.h"
#include "server.h"

#include <criterion/criterion.h>
#include <string.h>

struct tunnel tunnel;

const struct ct_key tunnel_key = {.secret = "0123456789abcdef0123456789abcdeA"};

void tunnel_set_up(void)
{
    memset(&tunnel, 0, sizeof tunnel);
    host_set_up();
}

void tunnel_tear_down(void)
{
    for (int i = 0; i < RELAYS; i++)
        ct_tcpstore_relay_stop(tunnel.relays[i]);
    ct_tcpstore_hub_stop(tunnel.hub);
    host_tear_down();
}

static void on_lost(void *user, const struct ct_tcpstore_lost *lost)
{
    cr_assert_eq(user, &tunnel);
    host.lost++;
    host.last = *lost;
    host.last.peer = host.last.host = NULL;
    host.why = lost->why != NULL ? *lost->why : (struct ct_error){0};
}

void tunnel_on_cut(void *user, const struct ct_error *why)
{
    cr_assert_eq(user, &tunnel);
    tunnel.cut++;
    tunnel.why = *why;
}

static void on_broken(void *user, const struct ct_error *why)
{
    cr_assert_eq(user, &tunnel);
    cr_assert_neq(why->code, 0);
    tunnel.broken++;
}

void tunnel_start_hub_at(const struct ct_endpoint *endpoint)
{
    const struct ct_tcpstore_hub_options options = {
        .server = host.server,
        .generation = GENERATION,
        .job = "digits",
        .key = &tunnel_key,
        .on_lost = on_lost,
        .user = &tunnel,
    };
    struct ct_error err = {0};

    cr_assert_eq(ct_tcpstore_hub_start(&host.loop, endpoint, &options, &tunnel.hub, &err), 0, "%s",
                 err.text);
}

void tunnel_start_hub(void)
{
    tunnel_start_hub_at(&(struct ct_endpoint){.host = "127.0.0.1"});
}

/* What a relay of the job would be given. */
struct ct_tcpstore_relay_options tunnel_relay_options(void)
{
    return (struct ct_tcpstore_relay_options){
        .hub = *ct_tcpstore_hub_endpoint(tunnel.hub),
        .generation = GENERATION,
        .job = "digits",
        .key = &tunnel_key,
        .resume_ms = 200,
        .on_broken = on_broken,
        .on_cut = tunnel_on_cut,
        .user = &tunnel,
    };
}

void tunnel_start_relay(int index, const struct ct_tcpstore_relay_options *options)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_tcpstore_relay_start(&host.loop, options, &tunnel.relays[index], &err), 0, "%s",
                 err.text);
}

/* A server, a hub and both relays. */
void tunnel_start_all(void)
{
    host_start(NULL);
    tunnel_start_hub();
    for (int i = 0; i < RELAYS; i++) {
        const struct ct_tcpstore_relay_options options = tunnel_relay_options();
        tunnel_start_relay(i, &options);
    }
}

int tunnel_dial(int index)
{
    return dial_port(ct_tcpstore_relay_endpoint(tunnel.relays[index])->port);
}

int tunnel_greet(int index)
{
    int fd = tunnel_dial(index);

    write_fd(fd, "\x00\xCE\xF7\x85\x3C", 5);
    return fd;
}
