/* See nccl_kept.h. */
#include "backend/nccl/nccl_kept.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

void ct_nccl_keep(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                  const struct ct_nccl_origin *origin)
{
    struct ct_nccl_kept *kept = calloc(1, sizeof *kept);

    if (kept == NULL)
        return;
    (void)pthread_mutex_lock(&nccl->lock);
    if (communicator->comm == NULL) { /* another group has aborted it */
        free(kept);
    } else {
        ct_nccl_communicator_revoke(nccl, communicator);
        kept->origin = *origin;
        kept->communicator = (struct ct_nccl_communicator){.comm = communicator->comm,
                                                           .device = communicator->device,
                                                           .revoked = communicator->revoked,
                                                           .leaves = communicator->leaves,
                                                           .view_count = communicator->view_count};
        memcpy(kept->communicator.views, communicator->views, sizeof communicator->views);
        communicator->comm = NULL;
        communicator->view_count = 0;
        kept->next = nccl->kept;
        nccl->kept = kept;
    }
    ct_nccl_unlock(nccl);
}

struct ct_nccl_kept *ct_nccl_kept_find(struct ct_nccl *nccl, const char *name)
{
    (void)pthread_mutex_lock(&nccl->lock);
    struct ct_nccl_kept *kept = nccl->kept;
    while (kept != NULL && strcmp(kept->origin.name, name) != 0)
        kept = kept->next;
    ct_nccl_unlock(nccl);
    return kept;
}

void ct_nccl_kept_end(struct ct_job *job, struct ct_nccl *nccl, struct ct_nccl_kept *kept)
{
    if (kept == NULL)
        return;
    (void)pthread_mutex_lock(&nccl->lock);
    struct ct_nccl_kept **link = &nccl->kept;
    while (*link != kept)
        link = &(*link)->next;
    *link = kept->next;
    kept->communicator.next = nccl->communicators;
    nccl->communicators = &kept->communicator;
    ct_nccl_unlock(nccl);

    struct ct_nccl_end how = {.nccl = nccl, .communicators = &kept->communicator, .count = 1};
    if (ct_nccl_communicators_end(job, &how))
        free(kept);
}

bool ct_nccl_kept_fits(const struct ct_nccl_origin *origins, int count)
{
    if (origins[0].tag == 0 || count >= origins[0].size)
        return false;
    for (int i = 1; i < count; i++)
        if (origins[i].tag != origins[0].tag || origins[i].size != origins[0].size ||
            origins[i].rank <= origins[i - 1].rank)
            return false;
    return origins[0].rank >= 0 && origins[count - 1].rank < origins[0].size;
}

int ct_nccl_kept_missing(const struct ct_nccl_origin *origins, int count, int *ret_ranks)
{
    int missing = 0, next = 0;

    CT_ASSERT(ct_nccl_kept_fits(origins, count));
    for (int rank = 0; rank < origins[0].size; rank++)
        if (next < count && origins[next].rank == rank)
            next++;
        else
            ret_ranks[missing++] = rank;
    return missing;
}
