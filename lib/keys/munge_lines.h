/* The lines of a key ring for users whom munge names, instead of a key:
 *
 *     munge NAME ROLE JOBS USERS -
 *
 * One line counts for a user: the first that has the user's number, else the first with '*'. In
 * JOBS "%u" is the user's name. Pure. */
#ifndef CT_KEYS_MUNGE_LINES_H
#define CT_KEYS_MUNGE_LINES_H

#include "base/error.h"
#include "keys/grant.h"
#include "keys/key.h"
#include "keys/munge.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a grant of such a line. */
#define CT_MUNGE_ID "munge"

struct ct_munge_lines {
    struct ct_grant *at; /* in the order of the file */
    size_t count, room;
    bool has_own;               /* the server's own user and root may do everything, too */
    uint32_t own;               /* unless a line says what that user may do */
    char socket[CT_KEY_SOCKET]; /* of munged, as in struct ct_key */
};

/* Add a line. 0; CT_EUSAGE when there is one of that name; CT_ENOMEM. */
int ct_munge_lines_add(struct ct_munge_lines *lines, const struct ct_grant *line,
                       struct ct_error *err);

/* Let in this process's own user and root by `key`, which says how munged is reached. */
void ct_munge_lines_own(struct ct_munge_lines *lines, const struct ct_key *key);

void ct_munge_lines_deinit(struct ct_munge_lines *lines);

/* Return whether anybody is let in. */
bool ct_munge_lines_any(const struct ct_munge_lines *lines);

/* Find what a user may do: a grant for that user alone, with the name put in for "%u". 0;
 * CT_EAUTH. */
int ct_munge_lines_find(const struct ct_munge_lines *lines, const struct ct_munge_user *user,
                        struct ct_grant *ret_grant, struct ct_error *err);

/* Return whether such a grant is what is found now. */
bool ct_munge_lines_have(const struct ct_munge_lines *lines, const struct ct_grant *grant);

#endif
