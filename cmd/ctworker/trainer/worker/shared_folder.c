/* See shared_folder.h. */
#include "shared_folder.h"

#include "agree.h"
#include "base/fs.h"
#include "base/number/rng.h"
#include "parts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool name_of(const char *dir, uint64_t number, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/.shared-%016" PRIx64, dir, number) < PATH_MAX;
}

/* Rank 0's file, a zero for each rank. Its number; 0 when it cannot be made. */
static uint64_t leave(const struct ct_worker *worker, const char *dir)
{
    uint64_t now = ct_clock_wall_ns(worker->clock);
    uint64_t number = ct_mix64(now ^ (uint64_t)getpid() << 40) | 1;
    char path[PATH_MAX];

    if (ct_fs_make_dirs(dir, NULL) != 0 || !name_of(dir, number, path))
        return 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return 0;
    bool made = ftruncate(fd, worker->me->world) == 0;
    return close(fd) == 0 && made ? number : 0;
}

/* Write this rank's byte; whether the file is there. */
static bool mark(const struct ct_worker *worker, const char *dir, uint64_t number)
{
    static const char one = 1;
    char path[PATH_MAX];
    struct stat info;

    if (number == 0 || !name_of(dir, number, path))
        return false;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool done = fstat(fd, &info) == 0 && info.st_size == worker->me->world &&
                pwrite(fd, &one, 1, worker->me->rank) == 1 && fsync(fd) == 0;
    return close(fd) == 0 && done;
}

/* The first rank whose byte rank 0 does not find, or -1. */
static int missing(const struct ct_worker *worker, const char *dir, uint64_t number)
{
    struct ct_buf bytes;
    char path[PATH_MAX];
    int rank = 0, world = worker->me->world;

    ct_buf_init(&bytes, 0);
    if (name_of(dir, number, path) && ct_fs_read(path, (size_t)world, &bytes, NULL) == 0)
        while (rank < world && (size_t)rank < bytes.size && bytes.data[rank] == 1)
            rank++;
    ct_buf_deinit(&bytes);
    (void)unlink(path);
    return rank == world ? -1 : rank;
}

int ct_shared_folder(struct ct_worker *worker, const char *dir, bool *ret_shared,
                     struct ct_error *err)
{
    bool first = worker->me->rank == 0;
    int64_t word = first ? (int64_t)leave(worker, dir) : 0;
    int code = ct_agree_word(worker, &word, err);
    uint64_t number = (uint64_t)word;

    if (code != 0)
        return code;
    (void)mark(worker, dir, number);
    code = ct_group_explain(worker->group, ct_barrier(worker->group, NULL), err);
    if (code != 0)
        return code;
    word = first && number != 0 ? missing(worker, dir, number) : 0;
    code = ct_agree_word(worker, &word, err);
    *ret_shared = code == 0 && word < 0;
    if (code == 0 && first && word > 0)
        ct_log_event(worker->log, CT_LOG_INFO, "gather",
                     "checkpoint.dir %s is not the same folder on all ranks (rank %d does not see "
                     "what rank 0 writes there): rank 0 gathers and writes",
                     dir, (int)word);
    return code;
}
