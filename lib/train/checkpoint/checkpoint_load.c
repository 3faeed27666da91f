/* Loading a checkpoint; see checkpoint.h. */
#include "train/checkpoint/checkpoint.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/number/hash.h"
#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/checkpoint_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* state.json is a few hundred bytes; more is not one of ours. */
#define STATE_LIMIT ((size_t)64 << 10)

/* ---- sums ------------------------------------------------------------------------------------ */

/* One file that is checked. */
struct reader {
    char path[PATH_MAX];
    int fd;
    char *block; /* CT_CKPT_BLOCK bytes */
};

/* Fill the block as far as bytes `at` to `end` of the file go; the count, or a negative errno. */
static ssize_t read_block(const struct reader *reader, uint64_t at, uint64_t end)
{
    size_t have = 0, most = (size_t)CT_MIN(end - at, (uint64_t)CT_CKPT_BLOCK);

    while (have < most) {
        ssize_t got = pread(reader->fd, reader->block + have, most - have, (off_t)(at + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

/* What the bytes from `at` to `end` of a file of `size` add to its checksum: of version 1, the
 * whole file's. */
static int add_up(const struct reader *reader, uint64_t version, uint64_t at, uint64_t end,
                  uint64_t size, uint64_t *ret, struct ct_error *err)
{
    uint64_t sum = 0;

    while (at < end) {
        ssize_t got = read_block(reader, at, end);
        if (got < 0)
            return ct_error_set(err, CT_ENOINPUT, "%s: cannot be read: %s", reader->path,
                                strerror((int)-got));
        if (got == 0)
            break;
        at += (uint64_t)got;
        sum = version == 1 ? ct_hash64(reader->block, (size_t)got, sum)
                           : sum ^ ct_crc32c_share(reader->block, (size_t)got, size - at);
    }
    *ret = sum;
    return 0;
}

static int judge_sum(const char *path, uint64_t have, uint64_t want, struct ct_error *err)
{
    if (have == want)
        return 0;
    return ct_error_set(err, CT_EDATA,
                        "%s: damaged: its checksum is %" PRIx64 ", but %" PRIx64 " was written",
                        path, have, want);
}

static int open_file(struct reader *reader, const char *folder, const struct ct_ckpt_sum *sum,
                     struct ct_error *err)
{
    struct stat info;
    int code = ct_ckpt_join(reader->path, folder, sum->name, err);

    if (code != 0)
        return code;
    reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (reader->fd < 0)
        return ct_error_set(err, CT_ENOINPUT, "%s: cannot be opened: %s", reader->path,
                            strerror(errno));
    if (fstat(reader->fd, &info) != 0 || !S_ISREG(info.st_mode))
        code = ct_error_set(err, CT_ENOINPUT, "%s: is not a file", reader->path);
    else if ((uint64_t)info.st_size != sum->bytes)
        code = ct_error_set(err, CT_EDATA, "%s: %s: it has %jd bytes, but %" PRIu64 " were written",
                            reader->path,
                            (uint64_t)info.st_size < sum->bytes ? "truncated" : "damaged",
                            (intmax_t)info.st_size, sum->bytes);
    if (code != 0)
        (void)close(reader->fd);
    return code;
}

/* Number `share` of `shares` of each file. */
struct division {
    uint64_t share, shares;
};

static int sum_files(const char *folder, const struct ct_ckpt_sums *sums, struct division division,
                     uint64_t values[CT_CKPT_MAX_FILES], struct ct_error *err)
{
    struct reader reader = {.block = malloc(CT_CKPT_BLOCK)};
    int code = reader.block != NULL ? 0 : ct_error_set(err, CT_ENOMEM, "%s: out of memory", folder);

    for (size_t i = 0; code == 0 && i < sums->count; i++) {
        uint64_t size = sums->files[i].bytes, each = size / division.shares;
        uint64_t end = division.share + 1 == division.shares ? size : each * (division.share + 1);
        code = open_file(&reader, folder, &sums->files[i], err);
        if (code != 0)
            break;
        code = add_up(&reader, sums->version, each * division.share, end, size, &values[i], err);
        (void)close(reader.fd);
    }
    free(reader.block);
    return code;
}

/* Are these the sums of what was written? */
static int judge(const char *folder, const struct ct_ckpt_sums *sums,
                 const uint64_t values[CT_CKPT_MAX_FILES], struct ct_error *err)
{
    char path[PATH_MAX];
    int code = 0;

    for (size_t i = 0; code == 0 && i < sums->count; i++) {
        uint64_t zeros = sums->version == 1 ? 0 : ct_crc32c_zeros(sums->files[i].bytes);
        code = ct_ckpt_join(path, folder, sums->files[i].name, err);
        if (code == 0)
            code = judge_sum(path, values[i] ^ zeros, sums->files[i].value, err);
    }
    return code;
}

int ct_ckpt_verify(const char *path, int share, int shares, struct ct_ckpt_shares *ret,
                   struct ct_error *err)
{
    struct ct_ckpt_state state;
    struct ct_ckpt_sums sums = {.count = 0};
    uint64_t values[CT_CKPT_MAX_FILES] = {0};
    int code = ct_ckpt_state_read(&state, &sums, path, err);

    if (code == 0)
        code = sum_files(path, &sums, (struct division){(uint64_t)share, (uint64_t)shares}, values,
                         err);
    for (size_t i = 0; i < CT_CKPT_MAX_FILES; i++)
        ret->crc32c[i] = (uint32_t)values[i];
    return code;
}

int ct_ckpt_judge(const char *path, const struct ct_ckpt_shares *all, struct ct_error *err)
{
    struct ct_ckpt_state state;
    struct ct_ckpt_sums sums = {.count = 0};
    uint64_t values[CT_CKPT_MAX_FILES];
    int code = ct_ckpt_state_read(&state, &sums, path, err);

    for (size_t i = 0; i < CT_CKPT_MAX_FILES; i++)
        values[i] = all->crc32c[i];
    return code == 0 ? judge(path, &sums, values, err) : code;
}

/* ---- state ----------------------------------------------------------------------------------- */

int ct_ckpt_state_read(struct ct_ckpt_state *ret, struct ct_ckpt_sums *ret_sums, const char *path,
                       struct ct_error *err)
{
    char state_path[PATH_MAX];
    struct ct_buf text;
    int code = ct_ckpt_join(state_path, path, CT_CKPT_STATE, err);

    if (code != 0)
        return code;
    if (access(path, F_OK) != 0)
        return ct_error_set(
            err, CT_ENOINPUT,
            "checkpoint %s: cannot be read: %s; name another with checkpoint.resume, or start "
            "anew with none",
            path, strerror(errno));
    if (access(state_path, F_OK) != 0)
        return ct_error_set(err, CT_EDATA, "%s: is no checkpoint: it holds no %s", path,
                            CT_CKPT_STATE);
    ct_buf_init(&text, 0);
    code = ct_fs_read(state_path, STATE_LIMIT, &text, err);
    if (code == 0)
        code = ct_ckpt_state_parse(ret, ret_sums, state_path, &text, err);
    if (code == 0)
        ret_sums->identity = ct_hash64(text.data, text.size, 0);
    ct_buf_deinit(&text);
    return code;
}

int ct_ckpt_peek(const char *path, struct ct_ckpt_state *ret, bool *ret_divisible,
                 struct ct_error *err)
{
    struct ct_ckpt_sums sums = {.count = 0};
    int code = ct_ckpt_state_read(ret, &sums, path, err);

    *ret_divisible = sums.version > 1;
    return code;
}

bool ct_ckpt_identity(const char *path, uint64_t *ret)
{
    struct ct_ckpt_state state;
    struct ct_ckpt_sums sums = {.count = 0};
    bool found = ct_ckpt_state_read(&state, &sums, path, NULL) == 0;

    if (found)
        *ret = sums.identity;
    return found;
}

int ct_ckpt_open(const char *path, struct ct_ckpt_state *ret, struct ct_error *err)
{
    struct ct_ckpt_state state;
    struct ct_ckpt_sums sums = {.count = 0};
    uint64_t values[CT_CKPT_MAX_FILES] = {0};
    int code = ct_ckpt_state_read(&state, &sums, path, err);

    if (code == 0)
        code = sum_files(path, &sums, (struct division){0, 1}, values, err);
    if (code == 0)
        code = judge(path, &sums, values, err);
    if (code == 0)
        *ret = state;
    return code;
}

bool ct_ckpt_holds(const char *path, const char *name)
{
    char full[PATH_MAX];

    return ct_ckpt_join(full, path, name, NULL) == 0 && access(full, F_OK) == 0;
}

int ct_ckpt_load(const char *path, const struct ct_ckpt_file *files, size_t file_count,
                 struct ct_error *err)
{
    int code = 0;

    for (size_t i = 0; code == 0 && i < file_count; i++) {
        char name[PATH_MAX];
        struct ct_st_table table = {0};
        int fd = -1;
        code = ct_ckpt_join(name, path, files[i].name, err);
        if (code == 0)
            code = ct_st_open(&fd, &table, name, err);
        if (code != 0)
            return code;
        code = ct_st_load(fd, &table, name, files[i].tensors, files[i].count, err);
        ct_st_table_deinit(&table);
        (void)close(fd);
    }
    return code;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int find_file(struct ct_ckpt_places *places, const char *path,
                     const struct ct_ckpt_file *file, struct ct_error *err)
{
    struct ct_st_table table = {0};
    uint64_t *at = calloc(file->count + 1, sizeof *at);
    int fd = -1;

    places->at[places->count] = at;
    if (at == NULL)
        return ct_error_set(err, CT_ENOMEM, "%s: out of memory", path);
    int code = ct_st_open(&fd, &table, path, err);
    if (code != 0)
        return code;
    (void)close(fd);
    code = ct_st_match(&table, path, file->tensors, file->count, err);
    for (size_t i = 0; code == 0 && i < file->count; i++)
        at[i] = ct_st_find(&table, file->tensors[i].name)->offset;
    for (size_t i = 0; i < file->count; i++)
        places->size[places->count] =
            CT_MAX(places->size[places->count], at[i] + ct_st_bytes(&file->tensors[i]));
    places->count++;
    ct_st_table_deinit(&table);
    return code;
}

int ct_ckpt_find(struct ct_ckpt_places *ret, const char *path, const struct ct_ckpt_file *files,
                 size_t file_count, struct ct_error *err)
{
    struct ct_ckpt_places places = {.count = 0};
    char name[PATH_MAX];
    int code = 0;

    CT_ASSERT(file_count <= CT_CKPT_MAX_FILES);
    for (size_t i = 0; code == 0 && i < file_count; i++) {
        code = ct_ckpt_join(name, path, files[i].name, err);
        if (code == 0)
            code = find_file(&places, name, &files[i], err);
    }
    if (code != 0)
        ct_ckpt_places_deinit(&places);
    else
        *ret = places;
    return code;
}

int ct_ckpt_read(const char *path, const struct ct_ckpt_file *files,
                 const struct ct_ckpt_part *parts, size_t count, struct ct_error *err)
{
    char name[PATH_MAX];
    size_t file = CT_CKPT_MAX_FILES;
    int fd = -1, code = 0;

    for (size_t i = 0; code == 0 && i < count; i++) {
        if (parts[i].file != file) {
            file = parts[i].file;
            if (fd >= 0)
                (void)close(fd);
            fd = -1;
            code = ct_ckpt_join(name, path, files[file].name, err);
            if (code == 0 && (fd = open(name, O_RDONLY | O_CLOEXEC)) < 0)
                code = ct_error_set(err, CT_ENOINPUT, "%s: cannot be opened: %s", name,
                                    strerror(errno));
        }
        if (code == 0)
            code = ct_st_read(fd, name, parts[i].data, parts[i].bytes, parts[i].at, err);
    }
    if (fd >= 0)
        (void)close(fd);
    return code;
}
