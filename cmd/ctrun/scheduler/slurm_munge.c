/* Munge in place of a key file, on a cluster whose Slurm has it; see slurm_layer.h. */
#include "slurm_layer.h"

#include "base/fs.h"
#include "base/str.h"
#include "keys/munge.h"
#include "slurm/slurm_conf.h"

#include <stdio.h>
#include <string.h>

enum { CONF_BYTES = 4 << 20 };

/* The configuration that Slurm's commands would read, or nothing. */
static int read_conf(char *const *env, struct ct_buf *text)
{
    static const char *const places[] = {"/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf"};
    const char *named = ct_env_find(env, "SLURM_CONF");

    if (named != NULL)
        return ct_fs_read(named, CONF_BYTES, text, NULL);
    int code = ct_fs_read(places[0], CONF_BYTES, text, NULL);
    return code == 0 ? 0 : ct_fs_read(places[1], CONF_BYTES, text, NULL);
}

/* Does munged answer here, as it must on a node of such a cluster? A container may not reach it. */
static bool answers(const char *path)
{
    struct ct_munge_credential credential;
    struct ct_key key;
    bool good = ct_munge_parse(path, &key, NULL) == 0 &&
                ct_munge_seal(&key, &credential, NULL) == 0 &&
                ct_munge_open(key.munge.socket, &credential, NULL) == 0;

    if (good)
        ct_net_key_wipe(&credential.key);
    return good;
}

const char *slurm_munge(char *const *env, struct ct_arena *arena)
{
    char socket[CT_SLURM_SOCKET] = "";
    struct ct_buf text;
    const char *path = NULL;

    ct_buf_init(&text, 0);
    if (read_conf(env, &text) == 0 && ct_slurm_conf_munge(ct_buf_str(&text), socket))
        path = ct_arena_printf(arena, socket[0] != '\0' ? "munge::%s" : "munge:%s", socket);
    ct_buf_deinit(&text);
    return path != NULL && answers(path) ? path : NULL;
}
