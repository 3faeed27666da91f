/* Saving and publishing; see checkpoint.h.
 *
 *   save      begin, write, end of checkpoint_parts.h
 *   publish   replace DIR/latest and DIR/best | remove what is outdated and what was never ended
 *
 * Any failure before the rename removes the temporary folder and touches nothing else. */
#include "train/checkpoint/checkpoint.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "train/checkpoint/checkpoint_dir.h"
#include "train/checkpoint/checkpoint_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char temporary_end[] = ".tmp";

int ct_ckpt_temporary(const struct ct_ckpt_save *save, char folder[PATH_MAX], struct ct_error *err)
{
    char name[32];

    ct_ckpt_name(save->state.step, name);
    int length = snprintf(folder, PATH_MAX, "%s/%s.%" PRIu64 "%s", save->dir, name,
                          save->state.generation, temporary_end);
    if (length < 0 || length >= PATH_MAX)
        return ct_error_set(err, CT_EUSAGE, "checkpoint path %.64s...: longer than %d bytes",
                            save->dir, PATH_MAX);
    return 0;
}

int ct_ckpt_state_write(const char *folder, const struct ct_ckpt_state *state,
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

/* Did a later round of the same run write the checkpoint at `path`? */
static bool is_later(const char *path, const struct ct_ckpt_state *mine)
{
    struct ct_ckpt_state theirs;
    struct ct_ckpt_sums sums = {.count = 0};

    return ct_ckpt_state_read(&theirs, &sums, path, NULL) == 0 &&
           theirs.generation > mine->generation && strcmp(theirs.run_id, mine->run_id) == 0;
}

int ct_ckpt_complete(const char *temporary, const char *path, const struct ct_ckpt_state *mine)
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

/* ---- publishing ------------------------------------------------------------------------------ */

/* Remove all but the newest `keep` of the checkpoints up to that of `save`, the best one, and those
 * of every keep_every-th step. Later ones, which a run that was rolled back left behind, are not
 * this run's to remove. What cannot be removed stays. */
static void prune(const struct ct_ckpt_save *save)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    uint64_t best = 0;
    char name[32], path[PATH_MAX];
    bool has_best = ct_ckpt_named(save->dir, CT_CKPT_BEST, &best);

    if (save->keep == 0 || ct_ckpt_list(save->dir, &steps, &count) != 0)
        return;
    while (count > 0 && steps[count - 1] > save->state.step)
        count--;
    for (size_t i = 0; i + save->keep < count; i++) {
        if ((save->keep_every != 0 && steps[i] % save->keep_every == 0) ||
            (has_best && steps[i] == best) || steps[i] == save->state.best.step)
            continue;
        ct_ckpt_name(steps[i], name);
        if (ct_ckpt_join(path, save->dir, name, NULL) == 0)
            (void)ct_fs_remove_tree(path);
    }
    free(steps);
}

/* Is `name` a temporary folder of a step up to that of `mine`, of its round or an older one? */
static bool is_left_over(const char *name, const struct ct_ckpt_state *mine)
{
    char text[64];
    uint64_t step = 0, generation = 0;
    size_t length = strlen(name), end = sizeof temporary_end - 1;

    if (length <= end || strcmp(name + length - end, temporary_end) != 0 ||
        !ct_str_copy(text, sizeof text, name))
        return false;
    text[length - end] = '\0';
    char *dot = strchr(text, '.');
    if (dot != NULL)
        *dot++ = '\0';
    return ct_ckpt_name_step(text, &step) && step <= mine->step &&
           (dot == NULL || ct_parse_u64(dot, &generation) == 0) && generation <= mine->generation;
}

/* Remove what writers that were lost never ended. */
static void sweep(const struct ct_ckpt_save *save)
{
    const struct dirent *entry;
    char path[PATH_MAX];
    DIR *folder = opendir(save->dir);

    if (folder == NULL)
        return;
    while ((entry = readdir(folder)) != NULL)
        if (is_left_over(entry->d_name, &save->state) &&
            ct_ckpt_join(path, save->dir, entry->d_name, NULL) == 0)
            (void)ct_fs_remove_tree(path);
    (void)closedir(folder);
}

/* Have the file `name` of the folder name the checkpoint of `step`. */
static int point(const struct ct_ckpt_save *save, const char *name, uint64_t step,
                 struct ct_error *err)
{
    char folder[32], line[40], path[PATH_MAX];
    int code = ct_ckpt_join(path, save->dir, name, err);

    ct_ckpt_name(step, folder);
    int length = snprintf(line, sizeof line, "%s\n", folder);
    return code == 0 ? ct_fs_replace(path, line, (size_t)length, err) : code;
}

/* A best one that could not be written leaves the one before. */
static int point_best(const struct ct_ckpt_save *save, struct ct_error *err)
{
    const struct ct_best *best = &save->state.best;
    char path[PATH_MAX];
    uint64_t named = 0;
    bool same = ct_ckpt_named(save->dir, CT_CKPT_BEST, &named) && named == best->step;

    if (best->metric == CT_BEST_NONE || best->step == 0 || same ||
        ct_ckpt_path(save->dir, best->step, path, NULL) != 0 || access(path, F_OK) != 0)
        return 0;
    return point(save, CT_CKPT_BEST, best->step, err);
}

int ct_ckpt_publish(const struct ct_ckpt_save *save, struct ct_error *err)
{
    char latest[PATH_MAX], before[PATH_MAX];
    int code = ct_ckpt_join(latest, save->dir, CT_CKPT_LATEST, err);

    if (code != 0)
        return code;
    if (ct_ckpt_latest(save->dir, before, NULL) == 0 && is_later(before, &save->state))
        return ct_error_set(err, CT_EFENCED, "%s: a later round has published %s", latest, before);
    code = point(save, CT_CKPT_LATEST, save->state.step, err);
    if (code == 0)
        code = point_best(save, err);
    if (code == 0) {
        prune(save);
        sweep(save);
    }
    return code;
}
