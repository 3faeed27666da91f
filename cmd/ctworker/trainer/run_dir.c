/* See run_dir.h. */
#include "run_dir.h"

#include "base/fs.h"
#include "base/rng.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "runs/digits_mlp" for "configs/digits_mlp.yaml". */
static void default_path(const char *file, char path[PATH_MAX])
{
    const char *slash = strrchr(file, '/');
    const char *name = slash != NULL ? slash + 1 : file;
    const char *dot = strrchr(name, '.');
    size_t length = dot != NULL && dot > name ? (size_t)(dot - name) : strlen(name);

    (void)snprintf(path, PATH_MAX, "runs/%.*s", (int)length, name);
}

static int write_config(const char *folder, const struct ct_config *cfg, struct ct_error *err)
{
    char path[PATH_MAX], here[PATH_MAX] = "";
    struct ct_buf text;

    if (snprintf(path, sizeof path, "%s/config.yaml", folder) >= (int)sizeof path)
        return ct_error_set(err, CT_ECANTCREAT, "%s: the path is too long", folder);
    ct_buf_init(&text, 0);
    ct_config_print(cfg, getcwd(here, sizeof here), &text);
    int code = ct_fs_replace(path, ct_buf_str(&text), text.size, err);
    ct_buf_deinit(&text);
    return code;
}

/* The line in `path`, when there is one. */
static bool read_run(const char *path, char run[128])
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    bool known = ct_fs_read(path, 127, &text, NULL) == 0 && text.size > 1;
    if (known) {
        (void)ct_str_copy(run, 128, text.data);
        run[strcspn(run, "\n")] = '\0';
    }
    ct_buf_deinit(&text);
    return known;
}

static int name_run(struct ct_run_dir *dir, const char *run_id, bool restarted,
                    struct ct_error *err)
{
    char path[PATH_MAX], line[160];
    uint64_t now = ct_clock_wall_ns(&ct_clock_system);

    if (snprintf(path, sizeof path, "%s/run", dir->path) >= (int)sizeof path)
        return ct_error_set(err, CT_ECANTCREAT, "%s: the path is too long", dir->path);
    if (restarted && read_run(path, dir->run))
        return 0;
    (void)snprintf(dir->run, sizeof dir->run, "%.100s/%016" PRIx64, run_id,
                   ct_mix64(now ^ (uint64_t)getpid() << 40));
    int length = snprintf(line, sizeof line, "%s\n", dir->run);
    return ct_fs_replace(path, line, (size_t)length, err);
}

static int folder_path(const struct ct_config *cfg, char path[PATH_MAX], struct ct_error *err)
{
    if (cfg->log.dir[0] == '\0')
        default_path(cfg->command.file, path);
    else if (!ct_str_copy(path, PATH_MAX, cfg->log.dir))
        return ct_error_set(err, CT_ECANTCREAT, "log.dir %.64s...: the path is too long",
                            cfg->log.dir);
    return 0;
}

int ct_run_dir_path(const struct ct_config *cfg, const char *name, char path[PATH_MAX],
                    struct ct_error *err)
{
    char folder[PATH_MAX];
    int code = folder_path(cfg, folder, err);

    if (code == 0 && snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        code = ct_error_set(err, CT_ECANTCREAT, "%s: the path is too long", folder);
    return code;
}

int ct_run_dir_open(struct ct_run_dir *ret, const struct ct_config *cfg, const char *run_id,
                    bool restarted, struct ct_error *err)
{
    int code = folder_path(cfg, ret->path, err);

    if (code == 0)
        code = ct_fs_make_dirs(ret->path, err);
    if (code == 0)
        code = write_config(ret->path, cfg, err);
    if (code == 0)
        code = name_run(ret, run_id, restarted, err);
    return code;
}
