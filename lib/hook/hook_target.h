/* What `launch.on_event` names: a program, or a URL.
 *
 *   notify.sh, /usr/bin/notify    is executed for each event, with its JSON as standard input
 *   http://..., https://...       gets it by POST, from curl(1) of this machine: TLS, proxies and
 *                                 certificates are as its users set them up
 *
 * A URL may hold a secret: curl reads it from its standard input, where no other user sees it, and
 * messages name only its host. */
#ifndef CT_HOOK_TARGET_H
#define CT_HOOK_TARGET_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/error.h"

#include <stdint.h>

struct ct_hook_target {
    const char *path; /* to execute; NULL: there is no hook */
    const char *url;  /* NULL: a program */
    const char *name; /* for messages */
};

/* Find what `value` names; "": no hook. `path` is PATH, or NULL. Texts live in `arena`. 0;
 * CT_ENOINPUT for a program that is not there, CT_EUNAVAILABLE without curl, CT_EUSAGE for another
 * kind of URL, CT_ENOMEM. */
int ct_hook_target_find(const char *value, const char *path, struct ct_arena *arena,
                        struct ct_hook_target *ret_target, struct ct_error *err);

/* Append what curl's standard input has to say: the URL, `record`, and that it may take
 * `timeout_ms`. */
void ct_hook_put_curl(const struct ct_hook_target *target, const char *record, uint64_t timeout_ms,
                      struct ct_buf *to);

#endif
