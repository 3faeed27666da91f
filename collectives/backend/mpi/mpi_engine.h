/* A process that mpirun started: the facts of its MPI library (rank, world size, the machine of
 * each rank), a store for groups to form by, and the shared part of transports (mpi_transport.h).
 *
 *   mpirun -np 4 ctworker FILE.yaml
 *      environment: rank, world size, which MPI                  mpi_launch.h
 *      library loaded, MPI_Init, names exchanged                 ct_mpi_open
 *      store: setting a key broadcasts it; a wait polls what has arrived
 *      collectives: MPI_Isend and MPI_Irecv under message.h
 *      all arrive, messages are received, MPI_Finalize           ct_mpi_close
 *
 * In MPI no rank survives another's death, no call has a timeout, and no send can be cancelled. So:
 *  - Only start and end wait inside MPI: requests are tested, deadlines are ours.
 *  - A message that can neither end nor be cancelled gives the engine up: MPI is not called again,
 *    so that it touches no buffer any more, every call fails with CT_ECLOSED, and the end does not
 *    wait. The process then ends with an error, by which mpirun ends the others.
 *  - A rank that has reported a failure (ct_mpi_give_up) does not wait at the end either.
 *
 * Any thread: a lock orders the calls, MPI_THREAD_SERIALIZED is enough. */
#ifndef CT_COLL_MPI_ENGINE_H
#define CT_COLL_MPI_ENGINE_H

#include "backend/message/message.h"
#include "backend/mpi/mpi_launch.h"
#include "backend/mpi/mpi_library.h"
#include "job/job_resource.h"
#include "kv.h"

#include <pthread.h>

enum { CT_MPI_NAME_MAX = 128, CT_MPI_HOST_MAX = 64, CT_MPI_FIRST_TAG = 2 };

struct ct_mpi {
    int rank, world, tag_max;
    char (*hosts)[CT_MPI_HOST_MAX]; /* the machines of all ranks */
    char name[CT_MPI_NAME_MAX];     /* "Open MPI v4.1.4 (libmpi.so.40)" */

    pthread_mutex_t lock; /* of all below, and of every call of MPI */
    struct ct_mpi_library lib;
    uint32_t groups;                         /* that this process has led */
    struct ct_mpi_own_message *own_messages; /* in flight: the engine's, not a group's */
    struct ct_mpi_entry *store;
    int ended; /* how many other ranks have ended */
    bool given_up;
};

/* Load the library (CTRUN_MPI, or the usual names) and start MPI. Wait for the other processes as
 * MPI_Init does. 0, or a code with its sentence. */
int ct_mpi_open(const struct ct_mpi_launch *launch, struct ct_mpi **ret_mpi, struct ct_error *err);

/* Wait for the other processes, unless given up, and free. NULL is fine. */
void ct_mpi_close(struct ct_mpi *mpi);

/* Note that this process has failed and will end: it waits for no other rank any more. */
void ct_mpi_give_up(struct ct_mpi *mpi);

/* Return the store that groups form by. */
struct ct_kv ct_mpi_kv(struct ct_mpi *mpi);

/* The struct ct_mpi of a job that MPI has started (job_resource.h). */
extern const struct ct_job_resource_type ct_mpi_resource;

/* Draw a number for a group that this process leads, from 1, unlike those of all other groups; with
 * the channel it makes the tag of its messages. A number is reused when the library's tags are used
 * up, but not before CT_MPI_GROUPS_LEAST others. 0, or CT_ELIMIT. */
enum { CT_MPI_GROUPS_LEAST = 16 };
int ct_mpi_group_number(struct ct_mpi *mpi, uint32_t *ret_number, struct ct_error *err);

/* For transports, under the lock: make progress with the engine's own messages; and receive
 * whatever has arrived with a tag, to store or to discard it. */
enum ct_mpi_own_kind { CT_MPI_SENT, CT_MPI_STORED, CT_MPI_DISCARDED, CT_MPI_ENDED };
void ct_mpi_work(struct ct_mpi *mpi);
void ct_mpi_receive_all(struct ct_mpi *mpi, int tag, enum ct_mpi_own_kind kind);

#endif
