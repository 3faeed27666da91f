/* The disk that all daemons of the job share: one file a tenure.
 *
 * Creating the file of an epoch succeeds once, which is what decides between
 * two daemons. A record is durable when append returns; before that the daemon
 * looks whether a newer file exists. A crash in the middle of a record leaves
 * any part of it, followed by nothing, by zeros or by rubbish. A full disk
 * takes a part of the record and refuses; a slow one keeps the daemon waiting,
 * and in that time another daemon may claim the next epoch (race_next). */
#include "sim.h"

#include "base/assert.h"
#include "chance.h"

#include <string.h>

uint64_t sim_disk_claim(struct sim *sim)
{
    CT_ASSERT(sim->disk.newest + 1 < SIM_EPOCHS);
    return ++sim->disk.newest;
}

bool sim_disk_is_newest(const struct sim *sim, const struct sim_daemon *daemon)
{
    return sim->disk.newest == daemon->epoch;
}

static int on_replay(void *context, const void *record, size_t size, struct ct_error *err)
{
    struct sim_daemon *daemon = context;
    return ct_service_restore(daemon->service, sim_local_ms(daemon->sim, daemon->index), record,
                              size, err);
}

int sim_disk_replay(struct sim *sim, struct sim_daemon *daemon, struct ct_error *err)
{
    uint64_t epoch = daemon->epoch - 1;
    while (epoch > 0 && sim->disk.files[epoch].bytes.size == 0)
        epoch--;
    if (epoch == 0)
        return 0;
    const struct file *file = &sim->disk.files[epoch];
    struct ct_journal_tail tail;
    size_t valid = 0;
    return ct_journal_scan(file->bytes.data, file->bytes.size, on_replay, daemon, &tail, &valid,
                           err);
}

/* ---- snapshots ---- */

struct rewrite {
    struct ct_buf bytes;
    struct ct_journal_tail tail;
};

static int emit(void *context, const void *record, size_t size)
{
    struct rewrite *rewrite = context;
    ct_journal_frame(&rewrite->tail, record, size, &rewrite->bytes);
    return rewrite->bytes.failed ? CT_ENOMEM : 0;
}

/* Replace the file by a snapshot, all or nothing, as a rename does. */
static int rewrite(struct sim *sim, struct sim_daemon *daemon)
{
    struct file *file = &sim->disk.files[daemon->epoch];
    if (sim->disk.full > 0)
        return CT_EIO;
    struct rewrite fresh = {.tail = {.seq = file->tail.seq}};
    ct_buf_init(&fresh.bytes, 0);
    CT_ASSERT(ct_service_snapshot(daemon->service, emit, &fresh) == 0);
    ct_buf_deinit(&file->bytes);
    *file = (struct file){.bytes = fresh.bytes, .tail = fresh.tail};
    return 0;
}

/* Another daemon starts now, if there is one to start. */
static void race(struct sim *sim, const struct sim_daemon *daemon)
{
    uint32_t other = 1 - daemon->index;
    if (!sim->processes[other].alive)
        sim_daemon_start(sim, other);
}

/* Before an effect may be seen: is this still the newest daemon? */
static int check(struct sim *sim, struct sim_daemon *daemon)
{
    if (sim_disk_is_newest(sim, daemon))
        return 0;
    daemon->fenced = daemon->dying = true;
    return CT_EFENCED;
}

/* A record is not kept: some effects are shown even so, but not by a daemon that is none any more.
 */
static int failed(struct sim *sim, struct sim_daemon *daemon)
{
    int rc = check(sim, daemon);
    return rc != 0 ? rc : CT_EIO;
}

int sim_disk_begin(struct sim *sim, struct sim_daemon *daemon)
{
    int rc = rewrite(sim, daemon);
    if (rc != 0 && sim_disk_is_newest(sim, daemon))
        sim->disk.newest--; /* given back */
    return rc != 0 ? rc : check(sim, daemon);
}

/* ---- records ---- */

/* What a crash leaves of a record that was being written from `before` on. */
static void tear(struct sim *sim, struct sim_daemon *daemon, struct file *file, size_t before)
{
    size_t size = file->bytes.size;
    size_t written = before + ct_rng_below(&sim->disk_rng, size - before + 1);
    uint64_t rest = ct_rng_below(&sim->disk_rng, 3);
    for (size_t i = written; i < size; i++)
        file->bytes.data[i] = rest == 0 ? 0 : (char)ct_rng_next(&sim->disk_rng);
    if (rest == 2)
        file->bytes.size = written;
    sim->disk.tear_next = false;
    daemon->dying = true;
    sim_log(sim, "daemon %u dies after %zu of %zu bytes of a record", daemon->index,
            written - before, size - before);
}

int sim_disk_append(struct sim *sim, struct sim_daemon *daemon, struct ct_journal_record record)
{
    struct disk *disk = &sim->disk;
    struct file *file = &disk->files[daemon->epoch];
    uint64_t when = ct_rng_below(&sim->disk_rng, 2);
    bool is_race = disk->race_next && sim_disk_is_newest(sim, daemon);
    if (is_race) {
        disk->race_next = false;
        if (when == 0)
            race(sim, daemon);
    }
    bool wants_snapshot = file->doubtful || rng_chance(&sim->disk_rng, 20);
    if (file->doubtful && !record.may_compact)
        return failed(sim, daemon);
    if (wants_snapshot && record.may_compact && rewrite(sim, daemon) != 0)
        return failed(sim, daemon);
    size_t before = file->bytes.size;
    ct_journal_frame(&file->tail, record.data, record.size, &file->bytes);
    if (disk->full > 0) {
        file->bytes.size -= ct_rng_below(&sim->disk_rng, file->bytes.size - before) + 1;
        file->doubtful = true;
        return failed(sim, daemon);
    }
    if (disk->tear_next && !is_race)
        tear(sim, daemon, file, before);
    if (disk->slow > 0)
        daemon->slow_until =
            sim->now + ct_rng_below(&sim->disk_rng, 2 * (uint64_t)sim->params.lease_ms);
    if (is_race && when == 1)
        race(sim, daemon);
    return check(sim, daemon);
}

void sim_disk_free(struct sim *sim)
{
    for (size_t i = 0; i <= sim->disk.newest; i++)
        ct_buf_deinit(&sim->disk.files[i].bytes);
}
