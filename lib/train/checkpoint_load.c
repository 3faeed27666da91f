/* Loading a checkpoint; see checkpoint.h. */
#include "train/checkpoint.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/hash.h"
#include "train/checkpoint_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* state.json is a few hundred bytes; more is not one of ours. */
#define STATE_LIMIT ((size_t)64 << 10)

/* Fill `block` as far as the file goes; the count, or a negative errno. */
static ssize_t read_block(int fd, char *block)
{
    size_t have = 0;

    while (have < CT_CKPT_BLOCK) {
        ssize_t got = read(fd, block + have, CT_CKPT_BLOCK - have);
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

static int check_content(int fd, const char *path, const struct ct_ckpt_sum *sum, char *block,
                         struct ct_error *err)
{
    uint64_t xxh3 = 0;

    for (;;) {
        ssize_t got = read_block(fd, block);
        if (got < 0)
            return ct_error_set(err, CT_ENOINPUT, "%s: cannot be read: %s", path,
                                strerror((int)-got));
        if (got == 0)
            break;
        xxh3 = ct_hash64(block, (size_t)got, xxh3);
    }
    if (xxh3 != sum->xxh3)
        return ct_error_set(err, CT_EDATA,
                            "%s: damaged: its checksum is %016" PRIx64 ", but %016" PRIx64
                            " was written",
                            path, xxh3, sum->xxh3);
    return 0;
}

static int check_file(const char *folder, const struct ct_ckpt_sum *sum, char *block,
                      struct ct_error *err)
{
    char path[PATH_MAX];
    struct stat info;
    int code = ct_ckpt_join(path, folder, sum->name, err);

    if (code != 0)
        return code;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ct_error_set(err, CT_ENOINPUT, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        code = ct_error_set(err, CT_ENOINPUT, "%s: is not a file", path);
    else if ((uint64_t)info.st_size != sum->bytes)
        code = ct_error_set(err, CT_EDATA, "%s: %s: it has %jd bytes, but %" PRIu64 " were written",
                            path, (uint64_t)info.st_size < sum->bytes ? "truncated" : "damaged",
                            (intmax_t)info.st_size, sum->bytes);
    else
        code = check_content(fd, path, sum, block, err);
    (void)close(fd);
    return code;
}

int ct_ckpt_state_read(struct ct_ckpt_state *ret, struct ct_ckpt_sums *ret_sums, const char *path,
                       struct ct_error *err)
{
    char state_path[PATH_MAX];
    struct ct_buf text;
    int code = ct_ckpt_join(state_path, path, CT_CKPT_STATE, err);

    if (code != 0)
        return code;
    if (access(path, F_OK) != 0)
        return ct_error_set(err, CT_ENOINPUT, "checkpoint %s: cannot be read: %s", path,
                            strerror(errno));
    if (access(state_path, F_OK) != 0)
        return ct_error_set(err, CT_EDATA, "%s: is no checkpoint: it holds no %s", path,
                            CT_CKPT_STATE);
    ct_buf_init(&text, 0);
    code = ct_fs_read(state_path, STATE_LIMIT, &text, err);
    if (code == 0)
        code = ct_ckpt_state_parse(ret, ret_sums, state_path, &text, err);
    ct_buf_deinit(&text);
    return code;
}

int ct_ckpt_open(const char *path, struct ct_ckpt_state *ret, struct ct_error *err)
{
    struct ct_ckpt_state state;
    struct ct_ckpt_sums sums = {0};
    int code = ct_ckpt_state_read(&state, &sums, path, err);
    char *block = code == 0 ? malloc(CT_CKPT_BLOCK) : NULL;

    if (code == 0 && block == NULL)
        code = ct_error_set(err, CT_ENOMEM, "%s: out of memory", path);
    for (size_t i = 0; code == 0 && i < sums.count; i++)
        code = check_file(path, &sums.files[i], block, err);
    free(block);
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
