/* The port that rank 0's process group listens on (MASTER_PORT), reserved by the agent.
 *
 * The socket stays bound, but does not listen, as long as the round lasts: the kernel assigns the
 * port to no other socket, but a worker that binds it with SO_REUSEADDR, as PyTorch's store does,
 * gets it. Until the worker listens, another user who binds that number explicitly could get it as
 * well. */
#ifndef CT_CTRUN_AGENT_PORT_H
#define CT_CTRUN_AGENT_PORT_H

#include <stdint.h>

struct port {
    int fd; /* -1: none */
    uint16_t number;
};

/* Release the old reservation, if any, and make a new one; number 0 when no port is free. */
void port_renew(struct port *port);

void port_release(struct port *port);

#endif
