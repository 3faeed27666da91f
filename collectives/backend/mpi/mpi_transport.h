/* The transport of message.h over MPI. A message is done when all its requests are; a receive can
 * be cancelled, and a send that MPI does not complete gives the engine up (mpi_engine.h). */
#ifndef CT_COLL_MPI_TRANSPORT_H
#define CT_COLL_MPI_TRANSPORT_H

#include "backend/mpi/mpi_engine.h"

struct ct_mpi_ticket;

/* A group's part in the engine: the context of its transport. */
struct ct_mpi_port {
    struct ct_mpi *mpi;
    uint32_t number;               /* of the group; 0: it has none yet */
    int *ranks;                    /* of the members, in the world */
    struct ct_mpi_ticket *tickets; /* unused */
    uint64_t pause_ns;             /* of the next ct_mpi_pause */
};

extern const struct ct_message_transport ct_mpi_transport;

/* Free the memory of its messages, which are done or cancelled. */
void ct_mpi_port_deinit(struct ct_mpi_port *port);

/* Sleep for a moment, `timeout_ns` at most, as MPI wakes no thread: longer each time until
 * something has moved (ct_mpi_pause_reset). */
void ct_mpi_pause(struct ct_mpi_port *port, uint64_t timeout_ns);
void ct_mpi_pause_reset(struct ct_mpi_port *port);

#endif
