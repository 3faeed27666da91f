/* A group of backend nccl from the inside: nccl.c works with it, nccl_form.c makes it. */
#ifndef CT_COLL_NCCL_GROUP_H
#define CT_COLL_NCCL_GROUP_H

#include "backend/nccl/nccl_calls.h"
#include "backend/nccl/nccl_check.h"
#include "backend/nccl/nccl_communicator.h"
#include "backend/nccl/nccl_kept.h"
#include "backend/staged/staged.h"

/* Behind the lanes: what was split off for a part, until that takes it. */
enum { CT_NCCL_SEED = CT_NCCL_LANES, CT_NCCL_COMMS };

struct ct_nccl_group {
    struct ct_staged staged;
    struct ct_nccl *nccl;
    struct ct_nccl_check check;
    struct ct_nccl_communicator lanes[CT_NCCL_COMMS];
    bool opened; /* the lanes are listed */
    bool failed;
    int open; /* collectives on the lanes that are not over */
    /* The batch of messages that goes next. */
    struct ct_nccl_message messages[CT_REQUESTS_MAX];
    size_t message_count;
    /* What ct_group_share has told, in its order. */
    struct ct_nccl_memory *shared[CT_NCCL_VIEWS];
    int shared_count;
    struct ct_nccl_origin origin; /* of the first lane's communicator */
};

/* As the functions of a backend. */
int ct_nccl_group_prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                          struct ct_error *err);
int ct_nccl_group_connect(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                          struct ct_error *err);
int ct_nccl_group_split(void *state, int colour, int key, uint64_t deadline_ns,
                        struct ct_error *err);
int ct_nccl_group_share(void *state, void *memory, uint64_t deadline_ns, struct ct_error *err);

#endif
