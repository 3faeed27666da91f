/* See hook_target.h. */
#include "hook/hook_target.h"

#include "base/find_program.h"
#include "base/str.h"

#include <string.h>
#include <unistd.h>

/* "https://hooks.example": without a user, his password, and what follows the host. */
static const char *name_of_url(const char *url, struct ct_arena *arena)
{
    size_t scheme = (size_t)(strstr(url, "://") + 3 - url);
    const char *host = url + scheme;
    size_t length = strcspn(host, "/?#");
    const char *user = memrchr(host, '@', length);

    if (user != NULL) {
        length -= (size_t)(user + 1 - host);
        host = user + 1;
    }
    return length > 0 ? ct_arena_printf(arena, "%.*s%.*s", (int)scheme, url, (int)length, host)
                      : NULL;
}

static int find_url(const char *value, const char *path, struct ct_arena *arena,
                    struct ct_hook_target *ret_target, struct ct_error *err)
{
    const struct ct_hook_target target = {.path = ct_find_program("curl", path, arena),
                                          .url = ct_arena_strdup(arena, value),
                                          .name = name_of_url(value, arena)};

    if (!ct_starts_with(value, "http://") && !ct_starts_with(value, "https://"))
        return ct_error_set(err, CT_EUSAGE,
                            "on_event: %.100s is neither a program nor a URL that begins with "
                            "http:// or https://",
                            value);
    if (target.name == NULL)
        return ct_error_set(err, CT_EUSAGE, "on_event: the URL %.100s names no host", value);
    if (target.path == NULL)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "on_event: curl, which posts events to %.200s, is not in PATH; install "
                            "it (apt install curl), or name a program",
                            target.name);
    *ret_target = target;
    return 0;
}

int ct_hook_target_find(const char *value, const char *path, struct ct_arena *arena,
                        struct ct_hook_target *ret_target, struct ct_error *err)
{
    *ret_target = (struct ct_hook_target){.path = NULL};
    if (value[0] == '\0')
        return 0;
    if (strstr(value, "://") != NULL)
        return find_url(value, path, arena, ret_target, err);
    const char *program = ct_find_program(value, path, arena);
    if (program == NULL)
        return ct_error_set(err, CT_ENOINPUT,
                            "on_event: the program %.200s %s; name one that can be executed, or a "
                            "URL (https://...)",
                            value,
                            strchr(value, '/') == NULL ? "is not in PATH"
                            : access(value, F_OK) == 0 ? "is not executable"
                                                       : "does not exist");
    *ret_target = (struct ct_hook_target){.path = ct_arena_strdup(arena, program)};
    ret_target->name = ret_target->path;
    return 0;
}

/* A string of curl's configuration: in quotes, where \ and " have a \ in front. */
static void put_quoted(struct ct_buf *to, const char *key, const char *text)
{
    (void)ct_buf_printf(to, "%s = \"", key);
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\\' || *at == '"')
            (void)ct_buf_puts(to, "\\");
        if (*at == '\n')
            (void)ct_buf_puts(to, "\\n");
        else if (*at != '\r')
            (void)ct_buf_append(to, at, 1);
    }
    (void)ct_buf_puts(to, "\"\n");
}

void ct_hook_put_curl(const struct ct_hook_target *target, const char *record, uint64_t timeout_ms,
                      struct ct_buf *to)
{
    put_quoted(to, "url", target->url);
    put_quoted(to, "data-binary", record);
    /* A redirection is followed with the event, not with a GET. */
    (void)ct_buf_printf(to,
                        "header = \"Content-Type: application/json\"\n"
                        "user-agent = \"ctrun\"\n"
                        "max-time = %.3f\n"
                        "proto = \"=http,https\"\n"
                        "location\npost301\npost302\npost303\nmax-redirs = 3\n"
                        "fail\nsilent\nshow-error\ngloboff\n"
                        "output = \"/dev/null\"\n",
                        (double)timeout_ms / 1000);
}
