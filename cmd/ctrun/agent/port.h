/* The port that rank 0's process group listens on (MASTER_PORT), reserved by the agent.
 *
 * The socket stays bound, but does not listen, as long as the round lasts: the kernel gives the
 * port to nobody else, while a worker that binds it with SO_REUSEADDR, as PyTorch's store does,
 * gets it. So could another user who requests that very number, until the worker listens. */
#ifndef CT_CTRUN_AGENT_PORT_H
#define CT_CTRUN_AGENT_PORT_H

#include <stdint.h>

struct port {
    int fd; /* -1: none */
    uint16_t number;
};

/* Give up the old reservation, if any, and make a new one; number 0 when there is none to have. */
void port_renew(struct port *port);

void port_release(struct port *port);

#endif
