/* See agree.h. */
#include "agree.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/str.h"

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

/* Of kind `kind`: whether `a` and `b` should hold the same. */
static bool is_common(const struct ct_exec_common *a, const struct ct_exec_common *b, int kind)
{
    return a->holders[kind] != 0 && a->holders[kind] == b->holders[kind];
}

/* Among those that should hold the same as `rank`: how many there are, how many have its digest. */
static int count_equal(const struct ct_exec_common *all, int world, int rank, int kind,
                       int *ret_holders)
{
    int equal = 0;

    *ret_holders = 0;
    for (int other = 0; other < world; other++)
        if (is_common(&all[other], &all[rank], kind)) {
            ++*ret_holders;
            equal += all[other].digest[kind] == all[rank].digest[kind];
        }
    return equal;
}

/* The rank whose digest is that of most, of those that should hold the same as `rank`. */
static int most_common(const struct ct_exec_common *all, int world, int rank, int kind)
{
    int common = rank, most = 0, holders;

    for (int other = 0; other < world; other++) {
        int equal = is_common(&all[other], &all[rank], kind)
                        ? count_equal(all, world, other, kind, &holders)
                        : 0;
        if (equal > most) {
            most = equal;
            common = other;
        }
    }
    return common;
}

int ct_agree_odd(const struct ct_exec_common *all, int world, int *ret_other, bool *ret_shared)
{
    int holders;

    *ret_shared = false;
    for (int kind = 0; kind < CT_EXEC_KINDS; kind++)
        for (int rank = 0; rank < world; rank++) {
            int equal = count_equal(all, world, rank, kind, &holders);
            *ret_shared = *ret_shared || holders > 1;
            if (equal == holders)
                continue;
            *ret_other = most_common(all, world, rank, kind);
            if (all[rank].digest[kind] != all[*ret_other].digest[kind])
                return rank;
        }
    return -1;
}

/* Nothing to compare is no agreement. */
static void warn_of_nothing(const struct ct_worker *worker)
{
    if (worker->me->rank == 0 && worker->step == (uint64_t)worker->cfg->check.replicas)
        ct_log_event(worker->log, CT_LOG_WARN, "replicas",
                     "check.replicas has nothing to compare: no two workers hold the same");
}

int ct_agree_replicas(struct ct_worker *worker, struct ct_error *err)
{
    int world = worker->me->world, other = 0, odd = -1;
    bool shared = true;

    if (worker->group == NULL)
        return 0;
    struct ct_exec_common *all = calloc((size_t)world, sizeof *all);
    if (all == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d ranks", world);
    ct_exec_common(worker->exec, &all[worker->me->rank]);
    int code = gather(worker, (uint64_t *)(void *)all, sizeof *all / sizeof(uint64_t), err);
    if (code == 0)
        odd = ct_agree_odd(all, world, &other, &shared);
    free(all);
    if (!shared)
        warn_of_nothing(worker);
    if (odd < 0)
        return code;
    worker->scope = CT_SCOPE_JOB;
    return ct_error_set(
        err, CT_EDIVERGED,
        "after step %" PRIu64
        " the parameters of rank %d are no longer those of rank %d: a device or its "
        "memory computes wrongly, or there is a bug",
        worker->step, odd, other);
}

int ct_agree_outcome(struct ct_worker *worker, int code, struct ct_error *err)
{
    struct {
        int64_t code;
        char text[sizeof err->text];
    } first = {.code = code};

    if (code != 0)
        (void)ct_str_copy(first.text, sizeof first.text, err->text);
    if (worker->group != NULL) {
        int sent = ct_broadcast(worker->group, ct_inplace(&first, sizeof first, CT_U8), 0, NULL);
        if (sent != 0)
            return code != 0 ? code : ct_group_explain(worker->group, sent, err);
    }
    if (first.code == 0)
        return 0;
    worker->scope = CT_SCOPE_JOB;
    first.text[sizeof first.text - 1] = '\0';
    return ct_error_set(err, (int)first.code, "%s", first.text);
}

int ct_agree_word(struct ct_worker *worker, int64_t *word, struct ct_error *err)
{
    if (worker->group == NULL)
        return 0;
    int code = ct_broadcast(worker->group, ct_inplace(word, 1, CT_I64), 0, NULL);

    return ct_group_explain(worker->group, code, err);
}
