/* What the holder of a key or certificate may do: a role, on some jobs, as some users. Pure.
 *
 * One who proved no key has no grant (NULL): then the peer is this user or root, on this machine,
 * and may do everything. */
#ifndef CT_KEYS_GRANT_H
#define CT_KEYS_GRANT_H

#include "base/error.h"
#include "keys/key.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_right {
    CT_RIGHT_JOIN = 1,  /* as a node */
    CT_RIGHT_RELAY = 2, /* PyTorch's store of a job */
    CT_RIGHT_READ = 4,
    CT_RIGHT_ORDER = 8, /* drain, cordon, uncordon, take over */
    CT_RIGHT_HOLD = 16, /* the record of jobs, among --peers */
    CT_RIGHT_NEW = 32,  /* what does not belong to a job that it is in: while it has not expired */
};

enum ct_role {
#define KEY_ROLE(NAME, name, rights, words) CT_ROLE_##NAME,
#include "keys/key_role.def"
#undef KEY_ROLE
    CT_ROLES,
};

enum {
    CT_GRANT_ID = 17, /* the tag of a key: 16 hex digits and a terminator */
    CT_GRANT_NAME = 33,
    CT_GRANT_JOBS = 256,
    CT_GRANT_USERS = 16,
    CT_GRANT_USER = 33,
};

struct ct_grant {
    char id[CT_GRANT_ID];     /* or "munge"; of a certificate: of its SHA-256 */
    char name[CT_GRANT_NAME]; /* "": it has none */
    enum ct_key_kind by;
    bool expired; /* the certificate, when it was shown */
    enum ct_role role;
    char jobs[CT_GRANT_JOBS]; /* patterns of fnmatch(3) with commas between; "*": all */
    uint32_t users[CT_GRANT_USERS];
    uint32_t user_count;         /* 0: any user */
    char user[CT_GRANT_USER];    /* the name of the one user, whom munge named; "": of a key */
    const struct ct_grant *next; /* what the same holder may besides; NULL: nothing */
};

/* Return the name of a role. Find one by its name: CT_ROLES when there is none. List all names,
 * with commas between. */
const char *ct_role_name(enum ct_role role);
enum ct_role ct_role_find(const char *name);
const char *ct_role_names(void);

/* Return whether the grant (NULL: everything) allows `right` on `job` (NULL: on some job) to a peer
 * that runs as `uid` (-1: not known). CT_EAUTH with the sentence in `err` (may be NULL)
 * otherwise. */
int ct_grant_may(const struct ct_grant *grant, enum ct_right right, const char *job, int64_t uid,
                 struct ct_error *err);

/* Read patterns of jobs: none empty, printable, of a bounded length. 0; CT_EUSAGE. */
int ct_grant_read_jobs(struct ct_grant *grant, const char *text, struct ct_error *err);

/* Read users: "*", or numbers with commas between. 0; CT_EUSAGE. */
int ct_grant_read_users(struct ct_grant *grant, const char *text, struct ct_error *err);

/* Read a name: letters, digits, '.', '_' and '-', at most 32. 0; CT_EUSAGE. */
int ct_grant_read_name(struct ct_grant *grant, const char *text, struct ct_error *err);

/* Are both the same, but for their names? */
bool ct_grant_equal(const struct ct_grant *a, const struct ct_grant *b);

#endif
