/* Saving a checkpoint; see checkpoint.h.
 *
 *   save      DIR/step_N.tmp/  files, each written through a block and flushed | state.json | fsync
 *             rename to DIR/step_N | fsync DIR
 *   publish   replace DIR/latest | remove what is older than `keep`
 *
 * Any failure before the rename removes step_N.tmp and touches nothing else. */
#include "train/checkpoint.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/str.h"
#include "train/checkpoint_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file being written: bytes gather in a block, which is hashed and written when full. */
struct writer {
    int fd;
    char *block; /* CT_CKPT_BLOCK bytes */
    size_t used;
    uint64_t bytes;
    uint64_t xxh3;
};

static int flush_block(struct writer *writer)
{
    if (writer->used == 0)
        return 0;
    writer->xxh3 = ct_hash64(writer->block, writer->used, writer->xxh3);
    writer->bytes += writer->used;
    int code = ct_fs_write_all(writer->fd, writer->block, writer->used);
    writer->used = 0;
    return code;
}

static int put(struct writer *writer, const void *data, uint64_t size)
{
    int code = 0;

    for (uint64_t done = 0; code == 0 && done < size;) {
        size_t part = (size_t)CT_MIN(size - done, (uint64_t)(CT_CKPT_BLOCK - writer->used));
        memcpy(writer->block + writer->used, (const char *)data + done, part);
        writer->used += part;
        done += part;
        if (writer->used == CT_CKPT_BLOCK)
            code = flush_block(writer);
    }
    return code;
}

static int put_tensors(struct writer *writer, const struct ct_ckpt_file *file)
{
    static const char *const metadata[] = {"format", "ctrun", NULL};
    struct ct_buf head;

    ct_buf_init(&head, 0);
    int code = ct_st_header(&head, file->tensors, file->count, metadata);
    if (code == 0)
        code = put(writer, head.data, head.size);
    ct_buf_deinit(&head);
    for (size_t i = 0; code == 0 && i < file->count; i++)
        code = put(writer, file->tensors[i].data, ct_st_bytes(&file->tensors[i]));
    return code != 0 ? code : flush_block(writer);
}

/* Write one file of the folder and note its sum. 0 or a negative code. */
static int write_file(const char *folder, const struct ct_ckpt_file *file, char *block,
                      struct ct_ckpt_sum *sum)
{
    char path[PATH_MAX];
    struct writer writer = {.block = block};

    if (ct_ckpt_join(path, folder, file->name, NULL) != 0 ||
        !ct_str_copy(sum->name, sizeof sum->name, file->name))
        return -ENAMETOOLONG;
    writer.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (writer.fd < 0)
        return -errno;
    int code = put_tensors(&writer, file);
    if (code == 0 && fsync(writer.fd) != 0)
        code = -errno;
    if (close(writer.fd) != 0 && code == 0)
        code = -errno;
    sum->bytes = writer.bytes;
    sum->xxh3 = writer.xxh3;
    return code;
}

static int write_state(const char *folder, const struct ct_ckpt_state *state,
                       const struct ct_ckpt_sums *sums)
{
    char path[PATH_MAX];
    struct ct_buf text;
    int code = ct_ckpt_join(path, folder, CT_CKPT_STATE, NULL) != 0 ? -ENAMETOOLONG : 0;

    if (code != 0)
        return code;
    ct_buf_init(&text, 0);
    code = ct_ckpt_state_print(&text, state, sums);
    int fd = code == 0 ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : -1;
    if (code == 0 && fd < 0)
        code = -errno;
    if (code == 0)
        code = ct_fs_write_all(fd, text.data, text.size);
    if (code == 0 && fsync(fd) != 0)
        code = -errno;
    if (fd >= 0 && close(fd) != 0 && code == 0)
        code = -errno;
    ct_buf_deinit(&text);
    return code != 0 ? code : ct_fs_sync_parent(path);
}

/* Everything inside `folder`, on disk when this returns 0. */
static int write_folder(const struct ct_ckpt_save *save, const char *folder, uint64_t *ret_digest)
{
    struct ct_ckpt_sums sums = {0};
    char *block = malloc(CT_CKPT_BLOCK);
    int code = block != NULL ? 0 : CT_ENOMEM;

    CT_ASSERT(save->file_count <= CT_CKPT_MAX_FILES);
    if (code == 0 && mkdir(folder, 0755) != 0)
        code = -errno;
    for (; code == 0 && sums.count < save->file_count; sums.count++)
        code = write_file(folder, &save->files[sums.count], block, &sums.files[sums.count]);
    if (code == 0)
        code = write_state(folder, &save->state, &sums);
    for (size_t i = 0; i < sums.count; i++)
        *ret_digest = ct_mix64(*ret_digest ^ sums.files[i].xxh3);
    free(block);
    return code;
}

/* Did a later round of the same run write the checkpoint at `path`? */
static bool is_later(const char *path, const struct ct_ckpt_state *mine)
{
    struct ct_ckpt_state theirs;
    struct ct_ckpt_sums sums = {0};

    return ct_ckpt_state_read(&theirs, &sums, path, NULL) == 0 &&
           theirs.generation > mine->generation && strcmp(theirs.run_id, mine->run_id) == 0;
}

/* Put `temporary` in the place of `path`. An older checkpoint of the same step is exchanged and
 * then removed; where the file system cannot exchange, it is removed first. */
static int move_into_place(const char *temporary, const char *path,
                           const struct ct_ckpt_state *mine)
{
    if (rename(temporary, path) == 0)
        return ct_fs_sync_parent(path);
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -errno;
    if (is_later(path, mine))
        return CT_EFENCED;
    int code = 0;
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        code = ct_fs_remove_tree(temporary);
    } else {
        code = ct_fs_remove_tree(path);
        if (code == 0 && rename(temporary, path) != 0)
            code = -errno;
    }
    return code != 0 ? code : ct_fs_sync_parent(path);
}

/* Remove all but the newest `keep` of the checkpoints up to that of `save`, and those of every
 * keep_every-th step. Later ones, which a run that was rolled back left behind, are not this run's
 * to remove. What cannot be removed stays. */
static void prune(const struct ct_ckpt_save *save)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    char name[32], path[PATH_MAX];

    if (save->keep == 0 || ct_ckpt_list(save->dir, &steps, &count) != 0)
        return;
    while (count > 0 && steps[count - 1] > save->state.step)
        count--;
    for (size_t i = 0; i + save->keep < count; i++) {
        if (save->keep_every != 0 && steps[i] % save->keep_every == 0)
            continue;
        ct_ckpt_name(steps[i], name);
        if (ct_ckpt_join(path, save->dir, name, NULL) == 0)
            (void)ct_fs_remove_tree(path);
    }
    free(steps);
}

/* The sentence of a save that failed: what, why, and what is still there. */
static int refuse(const char *dir, const char *path, int code, struct ct_error *err)
{
    char newest[PATH_MAX] = "";
    bool older = ct_ckpt_latest(dir, newest, NULL) == 0;

    return ct_error_set(err, CT_EIO, "checkpoint %s: cannot be written: %s; %s%s", path,
                        code < -1000 ? ct_strerror(code) : strerror(-code),
                        older ? "the older ones are intact, the newest is "
                              : "there is no older one in this folder",
                        newest);
}

int ct_ckpt_save(const struct ct_ckpt_save *save, uint64_t *ret_digest, struct ct_error *err)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    uint64_t digest = 0;
    int code = ct_fs_make_dirs(save->dir, err);

    if (code == 0)
        code = ct_ckpt_path(save->dir, save->state.step, path, err);
    if (code != 0)
        return code;
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
        return refuse(save->dir, path, -ENAMETOOLONG, err);

    (void)ct_fs_remove_tree(temporary);
    code = write_folder(save, temporary, &digest);
    if (code == 0)
        code = move_into_place(temporary, path, &save->state);
    if (code != 0)
        (void)ct_fs_remove_tree(temporary);
    if (code == CT_EFENCED)
        return ct_error_set(err, code, "checkpoint %s: a later round has written it already", path);
    if (code != 0)
        return refuse(save->dir, path, code, err);
    if (ret_digest != NULL)
        *ret_digest = digest;
    return 0;
}

int ct_ckpt_publish(const struct ct_ckpt_save *save, struct ct_error *err)
{
    char name[32], line[40], latest[PATH_MAX], before[PATH_MAX];
    int code = ct_ckpt_join(latest, save->dir, CT_CKPT_LATEST, err);

    if (code != 0)
        return code;
    if (ct_ckpt_latest(save->dir, before, NULL) == 0 && is_later(before, &save->state))
        return ct_error_set(err, CT_EFENCED, "%s: a later round has published %s", latest, before);
    ct_ckpt_name(save->state.step, name);
    int length = snprintf(line, sizeof line, "%s\n", name);
    code = ct_fs_replace(latest, line, (size_t)length, err);
    if (code == 0)
        prune(save);
    return code;
}
