/* The addresses of this machine, as other nodes reach it. */
#ifndef CT_CTRUN_AGENT_OWN_ADDRESS_H
#define CT_CTRUN_AGENT_OWN_ADDRESS_H

#include "cmd/ctrun/agent/job/launch_job.h"
#include "net/address.h"
#include "net/endpoint.h"

/* The address that a packet to `to` would be sent from; nothing is sent. False: there is no route.
 */
bool own_source(const struct sockaddr *to, char text[CT_ADDRESS_TEXT]);

/* The first address that is not loopback, 127.0.0.1 when there is none: for a server on all
 * interfaces. */
void own_interface(char text[CT_ADDRESS_TEXT]);

/* How other nodes reach this one, in digits: as asked for (local_addr), or as seen on the way to
 * the endpoint. 0; CT_EUSAGE for a name that cannot be resolved; CT_EUNAVAILABLE without a
 * route. */
int own_address(const struct ct_endpoint *endpoint, const struct job *job,
                char text[CT_ADDRESS_TEXT], struct ct_error *err);

/* Is the endpoint an address of this machine? A name that cannot be resolved is none. */
bool own_is_here(const struct ct_endpoint *endpoint);

#endif
