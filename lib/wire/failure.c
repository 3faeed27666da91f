/* See failure.h. */
#include "wire/failure.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

const struct ct_wire_failure ct_failure_none = {
    .rank = -1, .local_rank = -1, .host = "", .text = "", .error_file = ""};

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

void ct_failure_keep(struct ct_wire_failure *kept, const struct ct_wire_failure *failure,
                     char *room, size_t room_bytes)
{
    char *host = room, *path = host + CT_FAILURE_HOST_BYTES, *text = path + CT_FAILURE_PATH_BYTES;
    const char *own_path = or_empty(failure->error_file);

    CT_ASSERT(room_bytes > CT_FAILURE_ROOM(0));
    size_t text_bytes = room_bytes - CT_FAILURE_ROOM(0);
    *kept = *failure;
    (void)ct_str_copy(host, CT_FAILURE_HOST_BYTES, or_empty(failure->host));
    if (!ct_str_copy(path, CT_FAILURE_PATH_BYTES, own_path))
        path[0] = '\0';
    (void)ct_str_copy(text, text_bytes, ct_str_last_lines(or_empty(failure->text), text_bytes - 1));
    kept->host = host;
    kept->error_file = path;
    kept->text = text;
}

const char *ct_failure_end(const struct ct_wire_failure *failure, char *to)
{
    const char *name = sigabbrev_np(failure->signal);

    if (failure->code == CT_EHUNG)
        (void)snprintf(to, CT_FAILURE_END, "hung");
    else if (failure->signal != 0)
        (void)snprintf(to, CT_FAILURE_END, "was ended by SIG%s", name != NULL ? name : "?");
    else
        (void)snprintf(to, CT_FAILURE_END, "exited with status %d", failure->status);
    return to;
}
