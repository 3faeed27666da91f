/* Messages (messages) of message.h over MPI. One ends when all its requests have; a dropped receive
 * is cancelled, a send that MPI does not end gives the engine up (mpi_engine.h). */
#ifndef CT_COLL_MPI_TRANSPORT_H
#define CT_COLL_MPI_TRANSPORT_H

#include "backend/mpi/mpi_engine.h"

struct ct_mpi_ticket;

/* A group's part in the engine: what the transport is given. */
struct ct_mpi_port {
    struct ct_mpi *mpi;
    uint32_t number;               /* of the group; 0: it has none yet */
    int *ranks;                    /* of the members, in the world */
    struct ct_mpi_ticket *tickets; /* unused */
    uint64_t pause_ns;             /* the next one */
};

extern const struct ct_message_transport ct_mpi_transport;

/* What its messages have taken goes back to the heap: they are over or dropped. */
void ct_mpi_port_deinit(struct ct_mpi_port *port);

/* Sleep, `timeout_ns` at most: MPI wakes nobody, so it is for a moment, a longer one each time
 * until something has moved (ct_mpi_stir). */
void ct_mpi_pause(struct ct_mpi_port *port, uint64_t timeout_ns);
void ct_mpi_stir(struct ct_mpi_port *port);

#endif
