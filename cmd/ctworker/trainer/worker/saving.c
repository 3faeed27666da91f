/* See saving.h. */
#include "saving.h"

#include "agree.h"
#include "parts.h"
#include "shared_folder.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_first(const struct ct_worker *worker)
{
    return worker->me->rank == 0;
}

/* ---- the writer ------------------------------------------------------------------------------ */

static void *write_portion(void *argument)
{
    struct ct_saving *saving = argument;

    saving->code =
        ct_ckpt_write(&saving->save, &saving->places, saving->portion.parts, saving->portion.count,
                      &saving->cancel, &saving->shares, &saving->why);
    atomic_store(&saving->done, true);
    return NULL;
}

/* On a thread, or here when there is to be none or none can be made. */
static void run_writer(struct ct_saving *saving, bool async)
{
    saving->code = 0;
    saving->why = (struct ct_error){.code = 0};
    atomic_store(&saving->done, false);
    atomic_store(&saving->cancel, false);
    saving->threaded = async && pthread_create(&saving->thread, NULL, write_portion, saving) == 0;
    if (!saving->threaded)
        (void)write_portion(saving);
}

static void join_writer(struct ct_saving *saving)
{
    if (saving->threaded)
        (void)pthread_join(saving->thread, NULL);
    saving->threaded = false;
}

bool ct_saving_is_written(const struct ct_saving *saving)
{
    return saving->active && atomic_load(&saving->done);
}

/* ---- start ----------------------------------------------------------------------------------- */

void ct_saving_enter(struct ct_saving *saving)
{
    saving->mode = CT_SAVING_UNKNOWN;
}

static int choose_mode(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_saving *saving = &worker->saving;
    bool shared = false;

    if (saving->mode != CT_SAVING_UNKNOWN)
        return 0;
    if (ct_plan_holds_all(&worker->plan)) {
        saving->mode = CT_SAVING_ALONE;
        return 0;
    }
    int code = ct_shared_folder(worker, worker->run_dir.checkpoints, &shared, err);
    if (code == 0)
        saving->mode = shared ? CT_SAVING_PARTS : CT_SAVING_GATHER;
    return code;
}

/* What this rank writes, in memory. */
static int stage(struct ct_worker *worker, struct ct_error *err)
{
    static const enum ct_portion_of of[] = {[CT_SAVING_ALONE] = CT_PORTION_HELD,
                                            [CT_SAVING_PARTS] = CT_PORTION_OWNED,
                                            [CT_SAVING_GATHER] = CT_PORTION_WHOLE};
    struct ct_saving *saving = &worker->saving;
    const struct ct_snapshot *snapshot = &worker->snapshot;
    bool gathers = saving->mode == CT_SAVING_GATHER;
    int code = 0;

    saving->writes = is_first(worker) || saving->mode == CT_SAVING_PARTS;
    ct_ckpt_places_deinit(&saving->places);
    if (saving->writes) {
        code = ct_ckpt_place(&saving->places, snapshot->files, snapshot->file_count, err);
        if (code == 0)
            code = ct_portion_list(&saving->portion, snapshot, &worker->plan, &saving->places,
                                   of[saving->mode], err);
    }
    if (code == 0 && saving->writes && !gathers)
        ct_portion_copy_out(&saving->portion, worker->exec);
    return code;
}

/* The names of the files are what is kept of `save`'s: its tensors are the round's. */
static void keep(struct ct_saving *saving, const struct ct_ckpt_save *save)
{
    saving->save = *save;
    for (size_t i = 0; i < save->file_count; i++)
        saving->files[i] = (struct ct_ckpt_file){.name = save->files[i].name};
    saving->save.files = saving->files;
}

/* Rank 0's code is everybody's. */
static int broadcast_code(struct ct_worker *worker, int *code, struct ct_error *err)
{
    int64_t word = *code;

    if (worker->saving.mode == CT_SAVING_ALONE)
        return 0;
    int sent = ct_agree_word(worker, &word, err);
    *code = (int)word;
    return sent;
}

int ct_saving_start(struct ct_worker *worker, const struct ct_ckpt_save *save, bool async,
                    struct ct_error *err)
{
    struct ct_saving *saving = &worker->saving;
    struct ct_ckpt_shares shares = {{0}};
    int code = choose_mode(worker, err);

    if (code == 0)
        code = stage(worker, err);
    if (code == 0 && saving->mode == CT_SAVING_GATHER)
        code = ct_exec_collect(worker->exec, is_first(worker) ? saving->portion.data : NULL, err);
    if (code != 0)
        return code;
    if (is_first(worker))
        code = ct_ckpt_begin(save, &shares, err);
    int begun = code, sent = broadcast_code(worker, &begun, err);
    if (sent != 0 || begun != 0)
        return sent != 0 ? sent : code;
    keep(saving, save);
    saving->first = is_first(worker);
    saving->shares = shares;
    saving->active = true;
    if (saving->writes)
        run_writer(saving, async);
    else
        atomic_store(&saving->done, true);
    return 0;
}

/* ---- end ------------------------------------------------------------------------------------- */

/* What a rank tells of its writing. */
struct result {
    int64_t code;
    struct ct_ckpt_shares shares;
    char why[400];
};

static struct result result_of(const struct ct_saving *saving)
{
    struct result result = {.code = saving->code, .shares = saving->shares};

    (void)snprintf(result.why, sizeof result.why, "%.*s", (int)sizeof result.why - 1,
                   saving->why.text);
    return result;
}

/* The shares of all together, and the sentence of the first that failed. */
static void add_up(struct ct_saving *saving, const struct result *all, int world)
{
    saving->shares = (struct ct_ckpt_shares){{0}};
    saving->code = 0;
    for (int rank = 0; rank < world; rank++) {
        for (size_t i = 0; i < CT_CKPT_MAX_FILES; i++)
            saving->shares.crc32c[i] ^= all[rank].shares.crc32c[i];
        if (all[rank].code != 0 && saving->code == 0)
            saving->code =
                ct_error_set(&saving->why, (int)all[rank].code, "rank %d: %s", rank, all[rank].why);
    }
}

static int gather_results(struct ct_worker *worker, struct ct_error *err)
{
    int world = worker->me->world;
    struct result *all = calloc((size_t)world, sizeof *all);

    if (all == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %d ranks", world);
    all[worker->me->rank] = result_of(&worker->saving);
    int code = ct_all_gather(worker->group, ct_inplace(all, sizeof *all, CT_U8), NULL);
    if (code == 0)
        add_up(&worker->saving, all, world);
    free(all);
    return ct_group_explain(worker->group, code, err);
}

uint64_t ct_saving_bytes(const struct ct_saving *saving)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < saving->places.count; i++)
        bytes += saving->places.size[i];
    return bytes;
}

int ct_saving_end(struct ct_worker *worker, uint64_t *ret_digest, struct ct_error *err)
{
    struct ct_saving *saving = &worker->saving;
    int code = 0;

    join_writer(saving);
    if (saving->mode == CT_SAVING_PARTS)
        code = gather_results(worker, err);
    if (code != 0) {
        ct_saving_discard(saving);
        return code;
    }
    saving->active = false;
    if (!saving->first)
        return 0;
    return saving->code != 0
               ? ct_ckpt_abandon(&saving->save, saving->why.text, err)
               : ct_ckpt_end(&saving->save, &saving->places, &saving->shares, ret_digest, err);
}

void ct_saving_discard(struct ct_saving *saving)
{
    if (!saving->active)
        return;
    atomic_store(&saving->cancel, true);
    join_writer(saving);
    if (saving->first)
        (void)ct_ckpt_abandon(&saving->save, "", NULL);
    saving->active = false;
}

void ct_saving_deinit(struct ct_saving *saving)
{
    ct_saving_discard(saving);
    ct_ckpt_places_deinit(&saving->places);
    ct_portion_deinit(&saving->portion);
}
