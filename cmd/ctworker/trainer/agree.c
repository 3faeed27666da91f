/* See agree.h. */
#include "agree.h"

#include "base/assert.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>

/* What is compared, with the words for an error. */
static const char *const subjects[] = {
    "shared part of the configuration (model, data, optim, batch, train, ...)",
    "training data (content of the files)",
    "evaluation data (content of the files)",
};
enum { SUBJECTS = CT_COUNT(subjects) };

/* Gather `count` words of every rank; `all` is [world, count] and has this rank's words already. */
static int gather(struct ct_worker *worker, uint64_t *all, size_t count, struct ct_error *err)
{
    int code = ct_all_gather(worker->group, ct_inplace(all, count, CT_I64), NULL);

    return ct_group_explain(worker->group, code, err);
}

/* The first rank whose words differ from rank 0's, and which word; -1 when all are equal. */
static int first_difference(const uint64_t *all, int world, size_t count, size_t *ret_word)
{
    for (int rank = 1; rank < world; rank++) {
        for (size_t word = 0; word < count; word++) {
            if (all[(size_t)rank * count + word] == all[word])
                continue;
            *ret_word = word;
            return rank;
        }
    }
    return -1;
}

/* Compare `count` words of this rank with those of all others; *ret_rank is -1 when equal. */
static int compare(struct ct_worker *worker, const uint64_t *words, size_t count, int *ret_rank,
                   size_t *ret_word, struct ct_error *err)
{
    int world = worker->me->world;
    uint64_t *all = calloc((size_t)world * count, sizeof *all);

    if (all == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d ranks", world);
    for (size_t i = 0; i < count; i++)
        all[(size_t)worker->me->rank * count + i] = words[i];
    int code = gather(worker, all, count, err);
    if (code == 0)
        *ret_rank = first_difference(all, world, count, ret_word);
    free(all);
    return code;
}

void ct_agree_prepare(struct ct_worker *worker)
{
    worker->train_hash = ct_dataset_digest(&worker->train);
    worker->eval_hash = ct_dataset_digest(&worker->eval);
}

int ct_agree_inputs(struct ct_worker *worker, struct ct_error *err)
{
    const uint64_t words[SUBJECTS] = {ct_config_hash(worker->cfg), worker->train_hash,
                                      worker->eval_hash};
    int rank = -1;
    size_t word = 0;

    if (worker->group == NULL)
        return 0;
    int code = compare(worker, words, SUBJECTS, &rank, &word, err);
    if (code != 0 || rank < 0)
        return code;
    worker->scope = CT_SCOPE_JOB;
    return ct_error_set(err, CT_EMISMATCH, "rank %d has another %s than rank 0", rank,
                        subjects[word]);
}

int ct_agree_odd(const uint64_t *digests, int world, int *ret_common)
{
    int common = 0, most = 0;

    for (int rank = 0; rank < world; rank++) {
        int equal = 0;
        for (int other = 0; other < world; other++)
            equal += digests[other] == digests[rank];
        if (equal > most) {
            most = equal;
            common = rank;
        }
    }
    *ret_common = common;
    for (int rank = 0; rank < world; rank++)
        if (digests[rank] != digests[common])
            return rank;
    return -1;
}

int ct_agree_replicas(struct ct_worker *worker, struct ct_error *err)
{
    int world = worker->me->world, common = 0;

    if (worker->group == NULL)
        return 0;
    uint64_t *digests = calloc((size_t)world, sizeof *digests);
    if (digests == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d ranks", world);
    digests[worker->me->rank] = ct_exec_digest(worker->exec);
    int code = gather(worker, digests, 1, err);
    int odd = code == 0 ? ct_agree_odd(digests, world, &common) : -1;
    free(digests);
    if (odd < 0)
        return code;
    worker->scope = CT_SCOPE_JOB;
    return ct_error_set(
        err, CT_EDIVERGED,
        "after step %" PRIu64
        " the parameters of rank %d are no longer those of rank %d: a device or its "
        "memory computes wrongly, or there is a bug",
        worker->step, odd, common);
}
