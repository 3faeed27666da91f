/* See munge_lines.h. */
#include "keys/munge_lines.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ct_munge_lines_add(struct ct_munge_lines *lines, const struct ct_grant *line,
                       struct ct_error *err)
{
    for (size_t i = 0; i < lines->count; i++)
        if (strcmp(lines->at[i].name, line->name) == 0)
            return ct_error_set(err, CT_EUSAGE, "there is a munge line of the name %s already",
                                line->name);
    if (lines->count == lines->room) {
        size_t room = CT_MAX(2 * lines->room, (size_t)8);
        struct ct_grant *more = realloc(lines->at, room * sizeof more[0]);

        if (more == NULL)
            return ct_error_set(err, CT_ENOMEM, "no memory for a key ring");
        lines->at = more;
        lines->room = room;
    }
    lines->at[lines->count] = *line;
    (void)ct_str_copy(lines->at[lines->count++].id, CT_GRANT_ID, CT_MUNGE_ID);
    return 0;
}

void ct_munge_lines_own(struct ct_munge_lines *lines, const struct ct_key *key)
{
    lines->has_own = true;
    lines->own = geteuid();
    memcpy(lines->socket, key->munge.socket, sizeof lines->socket);
}

void ct_munge_lines_deinit(struct ct_munge_lines *lines)
{
    free(lines->at);
    *lines = (struct ct_munge_lines){.count = 0};
}

bool ct_munge_lines_any(const struct ct_munge_lines *lines)
{
    return lines->has_own || lines->count > 0;
}

static bool names(const struct ct_grant *line, uint32_t uid)
{
    for (uint32_t i = 0; i < line->user_count; i++)
        if (line->users[i] == uid)
            return true;
    return false;
}

/* The line that counts for a user. NULL: none does. */
static const struct ct_grant *line_for(const struct ct_munge_lines *lines, uint32_t uid)
{
    const struct ct_grant *any = NULL;

    for (size_t i = 0; i < lines->count; i++) {
        if (names(&lines->at[i], uid))
            return &lines->at[i];
        if (any == NULL && lines->at[i].user_count == 0)
            any = &lines->at[i];
    }
    return any;
}

/* Patterns with the user's name for "%u". False: they have no room. */
static bool put_jobs(const char *patterns, const char *user, char ret_jobs[CT_GRANT_JOBS])
{
    struct ct_buf jobs;

    ct_buf_init(&jobs, 0);
    for (const char *at = patterns; at[0] != '\0';) {
        bool is_user = at[0] == '%' && at[1] == 'u';

        if (is_user)
            (void)ct_buf_puts(&jobs, user);
        else
            (void)ct_buf_append(&jobs, at, 1);
        at += is_user ? 2 : 1;
    }
    bool fits = !jobs.failed && ct_str_copy(ret_jobs, CT_GRANT_JOBS, ct_buf_str(&jobs));
    ct_buf_deinit(&jobs);
    return fits;
}

static int refuse(const struct ct_munge_lines *lines, const struct ct_munge_user *user,
                  struct ct_error *err)
{
    if (lines->count > 0)
        return ct_error_set(err, CT_EAUTH,
                            "munge says that the peer is user %s (%u), for whom the key ring has "
                            "no line",
                            user->name, user->uid);
    return ct_error_set(err, CT_EAUTH,
                        "munge says that the peer is user %s (%u), who is neither this one (%u) "
                        "nor root: a line of munge in a --key_ring lets others in",
                        user->name, user->uid, lines->own);
}

int ct_munge_lines_find(const struct ct_munge_lines *lines, const struct ct_munge_user *user,
                        struct ct_grant *ret_grant, struct ct_error *err)
{
    static const struct ct_grant all = {.id = CT_MUNGE_ID, .role = CT_ROLE_ALL, .jobs = "*"};
    const struct ct_grant *line = line_for(lines, user->uid);
    bool is_own = lines->has_own && (user->uid == lines->own || user->uid == 0);

    if (is_own && (line == NULL || line->user_count == 0))
        line = &all;
    if (line == NULL)
        return refuse(lines, user, err);
    struct ct_grant grant = *line;
    if (!put_jobs(line->jobs, user->name, grant.jobs))
        return ct_error_set(err, CT_EAUTH,
                            "the jobs of munge line %s are too long with the name of user %s in "
                            "them",
                            line->name, user->name);
    grant.user_count = 1;
    grant.users[0] = user->uid;
    (void)ct_str_copy(grant.user, sizeof grant.user, user->name);
    *ret_grant = grant;
    return 0;
}

bool ct_munge_lines_have(const struct ct_munge_lines *lines, const struct ct_grant *grant)
{
    struct ct_munge_user user = {.uid = grant->users[0]};
    struct ct_grant now;

    (void)ct_str_copy(user.name, sizeof user.name, grant->user);
    return ct_munge_lines_find(lines, &user, &now, NULL) == 0 && ct_grant_equal(&now, grant);
}
