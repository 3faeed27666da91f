/* The inside of a group of backend nccl: nccl_form.c makes it, nccl.c runs its calls. */
#ifndef CT_COLL_NCCL_GROUP_H
#define CT_COLL_NCCL_GROUP_H

#include "backend/nccl/nccl_calls.h"
#include "backend/nccl/nccl_check.h"
#include "backend/nccl/nccl_communicator.h"
#include "backend/nccl/nccl_kept.h"
#include "backend/staged/staged.h"

/* Behind the communicators by kind: the one that was split off for a part, until the part uses
 * it. */
enum { CT_NCCL_SPLIT_OFF = CT_NCCL_KINDS, CT_NCCL_COMMS };

struct ct_nccl_group {
    struct ct_staged staged;
    struct ct_nccl *nccl;
    struct ct_nccl_check check;
    struct ct_nccl_communicator communicators[CT_NCCL_COMMS];
    bool opened; /* the communicators are listed */
    bool failed;
    int open; /* collectives on the communicators that are not over */
    /* The next batch of messages. */
    struct ct_nccl_message messages[CT_REQUESTS_MAX];
    size_t message_count;
    /* Registered by ct_group_share, in this order. */
    struct ct_nccl_memory *registered[CT_NCCL_VIEWS];
    int registered_count;
    struct ct_nccl_origin origin; /* of the first communicator's communicator */
};

/* The functions of a backend. */
int ct_nccl_group_prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                          struct ct_error *err);
int ct_nccl_group_connect(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                          struct ct_error *err);
int ct_nccl_group_split(void *state, int colour, int key, uint64_t deadline_ns,
                        struct ct_error *err);
int ct_nccl_group_register(void *state, void *memory, uint64_t deadline_ns, struct ct_error *err);

#endif
