/* See checkpoint_parts.h: writing. A part goes to its file in blocks, each of which is summed up
 * while it is in the cache. */
#include "train/checkpoint/checkpoint_parts.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "train/checkpoint/checkpoint_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const metadata[] = {"format", "ctrun", NULL};

/* ---- where tensors lie ----------------------------------------------------------------------- */

static int place_file(struct ct_ckpt_places *places, const struct ct_ckpt_file *file)
{
    uint64_t *at = calloc(file->count + 1, sizeof *at);
    struct ct_buf head;

    places->at[places->count] = at;
    if (at == NULL)
        return CT_ENOMEM;
    ct_buf_init(&head, 0);
    int code = ct_st_header(&head, file->tensors, file->count, metadata);
    uint64_t end = head.size;
    ct_buf_deinit(&head);
    for (size_t i = 0; i < file->count; i++) {
        at[i] = end;
        end += ct_st_bytes(&file->tensors[i]);
    }
    places->size[places->count++] = end;
    return code;
}

int ct_ckpt_place(struct ct_ckpt_places *ret, const struct ct_ckpt_file *files, size_t file_count,
                  struct ct_error *err)
{
    struct ct_ckpt_places places = {.count = 0};
    int code = 0;

    CT_ASSERT(file_count <= CT_CKPT_MAX_FILES);
    for (size_t i = 0; code == 0 && i < file_count; i++)
        code = place_file(&places, &files[i]);
    if (code != 0) {
        ct_ckpt_places_deinit(&places);
        return ct_error_set(err, code, "checkpoint: %s", ct_strerror(code));
    }
    *ret = places;
    return 0;
}

void ct_ckpt_places_deinit(struct ct_ckpt_places *places)
{
    for (size_t i = 0; i < CT_CKPT_MAX_FILES; i++)
        free(places->at[i]);
    *places = (struct ct_ckpt_places){.count = 0};
}

/* ---- a file ---------------------------------------------------------------------------------- */

/* All of `size` bytes at `at`; 0 or a negative errno. */
static int write_at(int fd, const char *data, size_t size, uint64_t at)
{
    while (size > 0) {
        ssize_t done = pwrite(fd, data, size, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        data += done;
        at += (uint64_t)done;
        size -= (size_t)done;
    }
    return 0;
}

/* A file's header, and its length with all that follows. */
static int begin_file(const char *path, const struct ct_ckpt_file *file, uint32_t *ret_share)
{
    struct ct_buf head;
    uint64_t data = 0;

    for (size_t i = 0; i < file->count; i++)
        data += ct_st_bytes(&file->tensors[i]);
    ct_buf_init(&head, 0);
    int code = ct_st_header(&head, file->tensors, file->count, metadata);
    int fd = code == 0 ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : -1;
    if (code == 0 && fd < 0)
        code = -errno;
    if (code == 0 && ftruncate(fd, (off_t)(head.size + data)) != 0)
        code = -errno;
    if (code == 0)
        code = write_at(fd, head.data, head.size, 0);
    *ret_share = code == 0 ? ct_crc32c_share(head.data, head.size, data) : 0;
    if (fd >= 0 && close(fd) != 0 && code == 0)
        code = -errno;
    ct_buf_deinit(&head);
    return code;
}

/* What is on its way to one file. */
struct writer {
    int fd;
    uint64_t size; /* of the file */
    const atomic_bool *cancel;
    uint32_t share;
};

static int write_part(struct writer *writer, const struct ct_ckpt_part *part)
{
    int code = 0;

    CT_ASSERT(part->at + part->bytes <= writer->size);
    for (uint64_t done = 0; code == 0 && done < part->bytes; done += CT_CKPT_BLOCK) {
        size_t size = (size_t)CT_MIN(part->bytes - done, (uint64_t)CT_CKPT_BLOCK);
        const char *data = part->data + done;
        uint64_t at = part->at + done;
        if (writer->cancel != NULL && atomic_load(writer->cancel))
            return CT_ECLOSED;
        writer->share ^= ct_crc32c_share(data, size, writer->size - at - size);
        code = write_at(writer->fd, data, size, at);
    }
    return code;
}

/* The parts of one file; one that has none is not touched. */
static int write_file(struct writer *writer, const char *path, size_t file,
                      const struct ct_ckpt_part *parts, size_t count)
{
    size_t first = 0;
    int code = 0;

    while (first < count && parts[first].file != file)
        first++;
    if (first == count)
        return 0;
    writer->fd = open(path, O_WRONLY | O_CLOEXEC);
    if (writer->fd < 0)
        return -errno;
    for (size_t i = first; code == 0 && i < count; i++)
        if (parts[i].file == file)
            code = write_part(writer, &parts[i]);
    if (code == 0 && fsync(writer->fd) != 0)
        code = -errno;
    if (close(writer->fd) != 0 && code == 0)
        code = -errno;
    return code;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static int sync_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int code = fd >= 0 && fsync(fd) == 0 ? 0 : -errno;

    if (fd >= 0)
        (void)close(fd);
    return code;
}

static int begin_folder(const struct ct_ckpt_save *save, const char *folder,
                        struct ct_ckpt_shares *shares)
{
    char path[PATH_MAX];
    int code = mkdir(folder, 0755) == 0 ? 0 : -errno;

    for (size_t i = 0; code == 0 && i < save->file_count; i++) {
        code = ct_ckpt_join(path, folder, save->files[i].name, NULL) != 0 ? -ENAMETOOLONG : 0;
        if (code == 0)
            code = begin_file(path, &save->files[i], &shares->crc32c[i]);
    }
    return code;
}

/* Why a write failed, for the sentence. */
static const char *reason(int code)
{
    return code < -1000 ? ct_strerror(code) : strerror(-code);
}

int ct_ckpt_begin(const struct ct_ckpt_save *save, struct ct_ckpt_shares *ret, struct ct_error *err)
{
    struct ct_ckpt_shares shares = {{0}};
    char folder[PATH_MAX];
    int code = ct_fs_make_dirs(save->dir, err);

    if (code == 0)
        code = ct_ckpt_temporary(save, folder, err);
    if (code != 0)
        return code;
    (void)ct_fs_remove_tree(folder);
    code = begin_folder(save, folder, &shares);
    if (code != 0)
        return ct_ckpt_abandon(save, reason(code), err);
    *ret = shares;
    return 0;
}

int ct_ckpt_write(const struct ct_ckpt_save *save, const struct ct_ckpt_places *places,
                  const struct ct_ckpt_part *parts, size_t count, const atomic_bool *cancel,
                  struct ct_ckpt_shares *shares, struct ct_error *err)
{
    char folder[PATH_MAX], path[PATH_MAX];
    int code = ct_ckpt_temporary(save, folder, err);

    for (size_t i = 0; code == 0 && i < save->file_count; i++) {
        struct writer writer = {.size = places->size[i], .cancel = cancel};
        code = ct_ckpt_join(path, folder, save->files[i].name, err);
        if (code != 0)
            return code;
        code = write_file(&writer, path, i, parts, count);
        shares->crc32c[i] ^= writer.share;
        if (code == CT_ECLOSED)
            return ct_error_set(err, code, "%s: no longer wanted", path);
        if (code != 0)
            return ct_error_set(err, CT_EIO, "%s: %s", save->files[i].name, reason(code));
    }
    return code;
}

/* The entries of state.json, each file being flushed with its header. */
static int sum_up(const struct ct_ckpt_save *save, const struct ct_ckpt_places *places,
                  const struct ct_ckpt_shares *shares, struct ct_ckpt_sums *sums)
{
    char folder[PATH_MAX], path[PATH_MAX];
    int code = ct_ckpt_temporary(save, folder, NULL);

    for (size_t i = 0; code == 0 && i < save->file_count; i++) {
        struct ct_ckpt_sum *sum = &sums->files[sums->count++];
        sum->bytes = places->size[i];
        sum->value = shares->crc32c[i] ^ ct_crc32c_zeros(places->size[i]);
        if (!ct_str_copy(sum->name, sizeof sum->name, save->files[i].name) ||
            ct_ckpt_join(path, folder, save->files[i].name, NULL) != 0)
            return -ENAMETOOLONG;
        code = sync_file(path);
    }
    return code;
}

int ct_ckpt_end(const struct ct_ckpt_save *save, const struct ct_ckpt_places *places,
                const struct ct_ckpt_shares *shares, uint64_t *ret_digest, struct ct_error *err)
{
    struct ct_ckpt_sums sums = {.version = CT_CKPT_VERSION};
    char folder[PATH_MAX], path[PATH_MAX];
    int code = ct_ckpt_temporary(save, folder, err);

    if (code == 0)
        code = ct_ckpt_path(save->dir, save->state.step, path, err);
    if (code != 0)
        return code;
    code = sum_up(save, places, shares, &sums);
    if (code == 0)
        code = ct_ckpt_state_write(folder, &save->state, &sums);
    if (code == 0)
        code = ct_ckpt_complete(folder, path, &save->state);
    if (code == CT_EFENCED) {
        (void)ct_ckpt_abandon(save, "", NULL);
        return ct_error_set(err, code, "checkpoint %s: a later round has written it already", path);
    }
    if (code != 0)
        return ct_ckpt_abandon(save, reason(code), err);
    uint64_t digest = 0;
    for (size_t i = 0; i < sums.count; i++)
        digest = ct_hash64(&sums.files[i].value, sizeof sums.files[i].value, digest);
    if (ret_digest != NULL)
        *ret_digest = digest;
    return 0;
}

int ct_ckpt_abandon(const struct ct_ckpt_save *save, const char *why, struct ct_error *err)
{
    char folder[PATH_MAX], path[PATH_MAX], newest[PATH_MAX] = "";
    bool older = ct_ckpt_latest(save->dir, newest, NULL) == 0;
    int code = ct_ckpt_path(save->dir, save->state.step, path, err);

    if (ct_ckpt_temporary(save, folder, NULL) == 0)
        (void)ct_fs_remove_tree(folder);
    if (code != 0)
        return code;
    return ct_error_set(err, CT_EIO, "checkpoint %s: cannot be written: %s; %s%s", path, why,
                        older ? "the older ones are intact, the newest is "
                              : "there is no older one in this folder",
                        newest);
}
