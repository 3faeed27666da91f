/* A communicator of the fake NCCL, for nccl.c and child.c alone. */
#ifndef FAKENCCL_COMM_H
#define FAKENCCL_COMM_H

#include "fake.h"

struct ct_nccl_comm {
    struct fake_world *world;
    struct ct_nccl_id id;
    int rank, size, splits;
    struct child *child; /* that is being made */
    struct ct_nccl_window *windows;
    struct ct_nccl_window *registering, **ret_window;
    _Atomic int state;     /* what ncclCommGetAsyncError says */
    _Atomic int broken;    /* of its connections: it says this then, and nothing takes it away */
    _Atomic int under_way; /* batches that streams have not done */
    atomic_bool stop;      /* the abort flag of its kernels */
    bool forming, revoking, revoked, finishing, finished;
    int polls; /* until the batch that waits goes */
    struct batch *waits;
};

extern struct fake_count {
    atomic_int ids, splits, shrinks, comms;
} fake_count;

bool fake_has_fault(const char *name, int rank);
bool fake_is_fine(const struct ct_nccl_config *config);

/* Return the state; an error of its connections shows when no call is in progress. */
int fake_state_of(struct ct_nccl_comm *comm);

struct ct_nccl_comm *fake_comm_new(const struct ct_nccl_id *id, int rank, int size);
void fake_comm_end(struct ct_nccl_comm *comm);

/* ---- child.c: what is being made of it, or registered with it ---- */

void fake_child_advance(struct ct_nccl_comm *comm);
void fake_child_end(struct ct_nccl_comm *comm);
void fake_window_advance(struct ct_nccl_comm *comm);

#endif
