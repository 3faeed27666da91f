/* See grant.h. */
#include "keys/grant.h"

#include "base/assert.h"
#include "base/str.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned rights;
} roles[CT_ROLES] = {
#define KEY_ROLE(NAME, name, rights, words) {name, rights},
#include "keys/key_role.def"
#undef KEY_ROLE
};

static const char names[] =
#define KEY_ROLE(NAME, name, rights, words) ", " name
#include "keys/key_role.def"
#undef KEY_ROLE
    ;

const char *ct_role_name(enum ct_role role)
{
    CT_ASSERT(role < CT_ROLES);
    return roles[role].name;
}

enum ct_role ct_role_find(const char *name)
{
    size_t role = 0;

    while (role < CT_ROLES && strcmp(roles[role].name, name) != 0)
        role++;
    return (enum ct_role)role;
}

const char *ct_role_names(void)
{
    return names + strlen(", ");
}

static const char *words_of(enum ct_right right)
{
    switch (right) {
    case CT_RIGHT_JOIN:
        return "join a job with a node";
    case CT_RIGHT_RELAY:
        return "reach PyTorch's store";
    case CT_RIGHT_READ:
        return "look at jobs";
    case CT_RIGHT_ORDER:
        return "give orders";
    case CT_RIGHT_HOLD:
        return "hold the record of jobs";
    case CT_RIGHT_NEW:
        break;
    }
    return "do this";
}

static bool matches(const char *patterns, const char *job)
{
    char pattern[CT_GRANT_JOBS];

    if (strcmp(patterns, "*") == 0)
        return true;
    for (const char *at = patterns; at[0] != '\0';) {
        size_t size = strcspn(at, ",");
        memcpy(pattern, at, size);
        pattern[size] = '\0';
        if (fnmatch(pattern, job, 0) == 0)
            return true;
        at += size + (at[size] == ',');
    }
    return false;
}

static bool is_user(const struct ct_grant *grant, int64_t uid)
{
    for (uint32_t i = 0; i < grant->user_count; i++)
        if (grant->users[i] == uid)
            return true;
    return grant->user_count == 0;
}

static const char *kind_of(const struct ct_grant *grant)
{
    return grant->by == CT_KEY_CERTIFICATE ? "certificate" : "key";
}

static const char *name_of(const struct ct_grant *grant)
{
    return grant->name[0] != '\0' ? grant->name : grant->id;
}

static bool has_right(const struct ct_grant *grant, enum ct_right right)
{
    return (roles[grant->role].rights & (unsigned)right) != 0;
}

static bool allows(const struct ct_grant *grant, enum ct_right right, const char *job, int64_t uid)
{
    return has_right(grant, right) && (job == NULL || matches(grant->jobs, job)) &&
           is_user(grant, uid);
}

static int refuse(const struct ct_grant *grant, enum ct_right right, const char *job, int64_t uid,
                  struct ct_error *err)
{
    const char *kind = kind_of(grant), *name = name_of(grant);

    if (!has_right(grant, right))
        return ct_error_set(err, CT_EAUTH, "%s %s has the role %s, which may not %s", kind, name,
                            roles[grant->role].name, words_of(right));
    if (job != NULL && !matches(grant->jobs, job))
        return ct_error_set(err, CT_EAUTH, "%s %s is for the jobs %s, not for %s", kind, name,
                            grant->jobs, job);
    if (uid < 0)
        return ct_error_set(err, CT_EAUTH,
                            "%s %s is for certain users of this machine, and who asks is not seen "
                            "to run here",
                            kind, name);
    return ct_error_set(err, CT_EAUTH, "%s %s is not for user %lld", kind, name, (long long)uid);
}

int ct_grant_may(const struct ct_grant *grant, enum ct_right right, const char *job, int64_t uid,
                 struct ct_error *err)
{
    const struct ct_grant *nearest = grant; /* what lacks least */

    if (right == CT_RIGHT_NEW && grant != NULL && grant->expired)
        return ct_error_set(err, CT_EAUTH,
                            "certificate %s has expired: it may come back to a job that it is in, "
                            "and begin nothing new; renew it",
                            name_of(grant));
    if (right == CT_RIGHT_NEW || grant == NULL)
        return 0;
    for (const struct ct_grant *at = grant; at != NULL; at = at->next) {
        if (allows(at, right, job, uid))
            return 0;
        if (has_right(at, right) && !has_right(nearest, right))
            nearest = at;
    }
    return refuse(nearest, right, job, uid, err);
}

int ct_grant_read_jobs(struct ct_grant *grant, const char *text, struct ct_error *err)
{
    size_t size = strlen(text);
    bool is_empty = size == 0 || text[0] == ',' || text[size - 1] == ',';

    if (is_empty || strstr(text, ",,") != NULL)
        return ct_error_set(err, CT_EUSAGE, "jobs \"%s\" has an empty pattern: give '*' for all",
                            text);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == 127)
            return ct_error_set(err, CT_EUSAGE,
                                "jobs has a space or control character at byte %zu: patterns have "
                                "commas between them",
                                i + 1);
    if (!ct_str_copy(grant->jobs, sizeof grant->jobs, text))
        return ct_error_set(err, CT_EUSAGE, "jobs has %zu bytes, %d at most", size,
                            CT_GRANT_JOBS - 1);
    return 0;
}

int ct_grant_read_users(struct ct_grant *grant, const char *text, struct ct_error *err)
{
    const char *at = text;

    grant->user_count = 0;
    if (strcmp(text, "*") == 0)
        return 0;
    for (;; at++) {
        char *end = NULL;
        unsigned long long value = at[0] >= '0' && at[0] <= '9' ? strtoull(at, &end, 10) : 0;

        if (end == NULL || value >= UINT32_MAX || (end[0] != ',' && end[0] != '\0'))
            return ct_error_set(err, CT_EUSAGE,
                                "users \"%.100s\" is neither '*' nor user numbers with commas "
                                "between",
                                text);
        if (grant->user_count == CT_GRANT_USERS)
            return ct_error_set(err, CT_EUSAGE, "users names more than %d", CT_GRANT_USERS);
        grant->users[grant->user_count++] = (uint32_t)value;
        at = end;
        if (at[0] == '\0')
            return 0;
    }
}

int ct_grant_read_name(struct ct_grant *grant, const char *text, struct ct_error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";

    if (text[0] == '\0' || text[strspn(text, allowed)] != '\0' ||
        !ct_str_copy(grant->name, sizeof grant->name, text))
        return ct_error_set(err, CT_EUSAGE,
                            "name \"%.40s\" is none: 1 to %d letters, digits, '.', '_' and '-'",
                            text, CT_GRANT_NAME - 1);
    return 0;
}

bool ct_grant_equal(const struct ct_grant *a, const struct ct_grant *b)
{
    return strcmp(a->id, b->id) == 0 && a->role == b->role && strcmp(a->jobs, b->jobs) == 0 &&
           a->user_count == b->user_count &&
           memcmp(a->users, b->users, a->user_count * sizeof a->users[0]) == 0;
}
