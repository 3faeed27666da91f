/* Names in a checkpoint folder; see checkpoint_dir.h. */
#include "train/checkpoint/checkpoint_dir.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char prefix[] = "step_";

void ct_ckpt_name(uint64_t step, char name[32])
{
    (void)snprintf(name, 32, "%s%08" PRIu64, prefix, step);
}

bool ct_ckpt_name_step(const char *name, uint64_t *ret_step)
{
    return ct_starts_with(name, prefix) && ct_parse_u64(name + sizeof prefix - 1, ret_step) == 0;
}

static int compare_steps(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

int ct_ckpt_list(const char *dir, uint64_t **ret_steps, size_t *ret_count)
{
    struct ct_buf steps;
    const struct dirent *entry;
    DIR *folder = opendir(dir);

    *ret_steps = NULL;
    *ret_count = 0;
    if (folder == NULL)
        return errno == ENOENT ? 0 : -errno;
    ct_buf_init(&steps, 0);
    while ((entry = readdir(folder)) != NULL) {
        uint64_t step = 0;
        if (ct_ckpt_name_step(entry->d_name, &step))
            (void)ct_buf_append(&steps, &step, sizeof step);
    }
    (void)closedir(folder);
    if (steps.failed) {
        ct_buf_deinit(&steps);
        return CT_ENOMEM;
    }
    *ret_steps = (void *)steps.data;
    *ret_count = steps.size / sizeof **ret_steps;
    if (*ret_count > 0)
        qsort(*ret_steps, *ret_count, sizeof **ret_steps, compare_steps);
    return 0;
}

int ct_ckpt_join(char path[PATH_MAX], const char *dir, const char *name, struct ct_error *err)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", dir, name);

    if (length < 0 || length >= PATH_MAX)
        return ct_error_set(err, CT_EUSAGE, "checkpoint path %.64s...: longer than %d bytes", dir,
                            PATH_MAX);
    return 0;
}

bool ct_ckpt_named(const char *dir, const char *name, uint64_t *ret_step)
{
    char path[PATH_MAX];
    struct ct_buf text;
    struct stat info;
    bool found = false;
    uint64_t step = 0;

    ct_buf_init(&text, 0);
    if (ct_ckpt_join(path, dir, name, NULL) == 0 && ct_fs_read(path, 64, &text, NULL) == 0) {
        while (text.size > 0 && isspace((unsigned char)text.data[text.size - 1]))
            text.data[--text.size] = '\0';
        found = ct_ckpt_name_step(ct_buf_str(&text), &step);
    }
    ct_buf_deinit(&text);
    if (!found || ct_ckpt_path(dir, step, path, NULL) != 0 || stat(path, &info) != 0 ||
        !S_ISDIR(info.st_mode))
        return false;
    *ret_step = step;
    return true;
}

int ct_ckpt_latest(const char *dir, char ret_path[PATH_MAX], struct ct_error *err)
{
    uint64_t step = 0;

    if (!ct_ckpt_named(dir, CT_CKPT_LATEST, &step)) {
        uint64_t *steps = NULL;
        size_t count = 0;
        int code = ct_ckpt_list(dir, &steps, &count);
        if (code != 0)
            return ct_error_set(err, CT_ENOINPUT, "checkpoint folder %s: cannot be read: %s", dir,
                                ct_strerror(code));
        if (count > 0)
            step = steps[count - 1];
        free(steps);
        if (count == 0)
            return ct_error_set(err, CT_ENOTFOUND, "%s: holds no checkpoint", dir);
    }
    return ct_ckpt_path(dir, step, ret_path, err);
}

int ct_ckpt_best(const char *dir, char ret_path[PATH_MAX], struct ct_error *err)
{
    uint64_t step = 0;

    if (!ct_ckpt_named(dir, CT_CKPT_BEST, &step))
        return ct_error_set(err, CT_ENOTFOUND,
                            "%s: no best checkpoint was kept there (checkpoint.best)", dir);
    return ct_ckpt_path(dir, step, ret_path, err);
}

int ct_ckpt_path(const char *dir, uint64_t step, char ret_path[PATH_MAX], struct ct_error *err)
{
    char name[32];

    ct_ckpt_name(step, name);
    return ct_ckpt_join(ret_path, dir, name, err);
}
