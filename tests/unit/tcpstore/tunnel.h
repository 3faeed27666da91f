/* A store with a hub, and relays of one job before it, all in the loop of server.h. */
#ifndef TESTS_UNIT_TCPSTORE_TUNNEL_H
#define TESTS_UNIT_TCPSTORE_TUNNEL_H

#include "rendezvous/tcpstore/hub_uv.h"
#include "rendezvous/tcpstore/relay_uv.h"
#include "rendezvous/tcpstore/tunnel_uv.h"

enum { RELAYS = 2, GENERATION = 7 };

struct tunnel {
    struct ct_tcpstore_hub *hub;
    struct ct_tcpstore_relay *relays[RELAYS];
    int cut, broken;
    struct ct_error why;
};

extern struct tunnel tunnel;
extern const struct ct_key tunnel_key;

void tunnel_set_up(void);
void tunnel_tear_down(void);

void tunnel_on_cut(void *user, const struct ct_error *why);

void tunnel_start_hub_at(const struct ct_endpoint *endpoint);
void tunnel_start_hub(void);

/* Return the options of a relay of the job. */
struct ct_tcpstore_relay_options tunnel_relay_options(void);

void tunnel_start_relay(int index, const struct ct_tcpstore_relay_options *options);

/* A server, a hub and both relays. */
void tunnel_start_all(void);

int tunnel_dial(int index);

/* A client of today's numbering. */
int tunnel_greet(int index);

#endif
