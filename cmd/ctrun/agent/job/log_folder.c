/* See log_folder.h. */
#include "log_folder.h"

#include "base/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* LOG_DIR/RUN_ID_XXXXXX, a name that nobody else has. */
static int make_own(const struct folder_request *request, const char *base, struct ct_arena *arena,
                    const char **ret_path, struct ct_error *err)
{
    const char *host = request->host != NULL ? request->host : "";
    char *name = ct_arena_printf(arena, "%s%s%s_XXXXXX", request->cfg->launch.rdzv_id,
                                 host[0] != '\0' ? "_" : "", host);
    int rc = ct_fs_make_dirs(base, err);
    char whole[PATH_MAX]; /* workers may go elsewhere */

    if (rc != 0)
        return rc;
    for (char *at = name; at != NULL && *at != '\0'; at++)
        if (*at == '/')
            *at = '_';
    if (realpath(base, whole) == NULL)
        return ct_error_set(err, CT_ECANTCREAT, "%s: %s", base, ct_strerror(-errno));
    char *path = name != NULL ? ct_arena_printf(arena, "%s/%s", whole, name) : NULL;
    if (path == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the name of a folder");
    if (mkdtemp(path) == NULL)
        return ct_error_set(err, CT_ECANTCREAT, "no folder can be made in %s: %s", base,
                            ct_strerror(-errno));
    *ret_path = path;
    return 0;
}

static int make_temporary(const struct folder_request *request, const char *what,
                          struct ct_arena *arena, const char **ret_path, struct ct_error *err)
{
    const char *base = ct_env_find(request->env, "TMPDIR");
    char *path = ct_arena_printf(arena, "%s/%s-XXXXXX",
                                 base != NULL && base[0] == '/' ? base : "/tmp", what);

    if (path == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the name of a folder");
    if (mkdtemp(path) == NULL)
        return ct_error_set(err, CT_ECANTCREAT,
                            "no folder like %s can be made; set TMPDIR, or give --log_dir", path);
    *ret_path = path;
    return 0;
}

int folder_make(const struct folder_request *request, struct ct_arena *arena,
                struct folder *ret_folder, struct ct_error *err)
{
    const struct ct_config *cfg = request->cfg;
    const char *base = cfg->launch.log_dir;
    bool streams = strcmp(cfg->launch.redirects, "0") != 0 || strcmp(cfg->launch.tee, "0") != 0 ||
                   cfg->launch.duplicate_stdout_filters.count > 0 ||
                   cfg->launch.duplicate_stderr_filters.count > 0;
    struct folder folder = {.path = ""};
    int rc = 0;

    if (strcmp(base, "/dev/null") == 0) {
        *ret_folder = folder;
        return 0;
    }
    folder.stays = base[0] != '\0' || streams;
    if (base[0] == '\0' && streams) /* torchrun's --redirects works without a folder, too */
        rc = make_temporary(request, "ctrun-logs", arena, &base, err);
    if (rc == 0 && folder.stays)
        rc = make_own(request, base, arena, &folder.path, err);
    else if (rc == 0 && !request->native)
        rc = make_temporary(request, "ctrun-errors", arena, &folder.path, err);
    if (rc == 0)
        *ret_folder = folder;
    return rc;
}

const char *folder_of_round(const struct folder *folder, uint32_t restarts, uint64_t generation,
                            struct ct_arena *arena)
{
    return ct_arena_printf(arena, "%s/attempt_%u_g%llu", folder->path, restarts,
                           (unsigned long long)generation);
}

void folder_flight_dumps(const struct folder *folder, uint64_t generation, char *to)
{
    int length = snprintf(to, PATH_MAX, "%s/torch_flight.g%llu_rank_", folder->path,
                          (unsigned long long)generation);

    if (folder->path[0] == '\0' || length >= PATH_MAX)
        to[0] = '\0';
}

/* Whoever reads all files of the folder later would wait for a pipe's writer for ever. */
static void remove_pipes(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_type == DT_FIFO)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder != NULL)
        (void)closedir(folder);
}

const char *folder_temporary(const struct folder *folder)
{
    return folder->path == NULL || folder->stays ? "" : folder->path;
}

void folder_drop(const struct folder *folder, bool named)
{
    if (folder->path == NULL || folder->path[0] == '\0')
        return;
    if (folder->stays) {
        remove_pipes(folder->path);
        (void)rmdir(folder->path);
    } else if (!named) {
        (void)ct_fs_remove_tree(folder->path);
    }
}
