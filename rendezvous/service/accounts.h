/* Quotas: of each thing that users of a daemon take up (quota.def) a total, and a share of it for
 * each account. Pure.
 *
 *      links, jobs, stores ---- take n ----> account "user 1000"  used 768 -+
 *                                            account "10.0.0.7"   used   3 -+--> all: 771 of 1024
 *
 * An account may have at most `share` percent of what it has and what is free, together (dynamic
 * thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). With a share of
 * 75, one that is alone gets 75 % of the total, two that want all get 43 % each, and whoever comes
 * later finds room, however many there are before: each leaves a quarter of what it found. What an
 * account has is not taken from it. A share of 100 is none: first come, first served. */
#ifndef CT_RENDEZVOUS_SERVICE_ACCOUNTS_H
#define CT_RENDEZVOUS_SERVICE_ACCOUNTS_H

#include "base/error.h"
#include "base/number/pace.h"

#include <stdbool.h>
#include <stdint.h>

enum ct_quota {
#define QUOTA(NAME, name, total, what, room) CT_QUOTA_##NAME,
#include "rendezvous/service/quota.def"
#undef QUOTA
    CT_QUOTAS,
};

enum {
    CT_ACCOUNT_TEXT = 80,
    CT_ACCOUNTS_SHARE = 75,      /* percent, by default */
    CT_ACCOUNTS_RETRY_MS = 1000, /* until the first who was refused asks again */
    CT_ACCOUNTS_SPREAD_MS = 20,  /* and how much later each one after it */
    CT_ACCOUNTS_LATEST_MS = 60000,
    CT_ACCOUNTS_WINDOW_MS = 10000, /* those refused within it are counted together */
};

/* Whose something is. */
struct ct_account_name {
    uint64_t id; /* alike for all that is one account's */
    char text[CT_ACCOUNT_TEXT];
};

/* What is known of a peer. */
struct ct_account_of {
    const char *key;     /* the name of the key that it proved; NULL: none, or one that all have */
    int64_t uid;         /* of a user of this machine; -1: not known */
    const char *network; /* its address, or its /64: ct_address_network */
};

/* Name its account after the most specific of these. */
void ct_account_name(const struct ct_account_of *of, struct ct_account_name *ret_name);

struct ct_account {
    struct ct_account *next; /* in its bucket */
    uint64_t id;
    uint64_t used[CT_QUOTAS];
    uint64_t refused;         /* so often */
    uint32_t holds;           /* links and jobs */
    struct ct_pace operators; /* of its operators' questions and orders */
    struct ct_pace lines;     /* that its jobs have in the log */
    uint32_t left_out;        /* lines that were not written */
    char text[CT_ACCOUNT_TEXT];
};

/* Zero is a default. The texts say who set a number ("--jobs", a file) and outlive the accounts;
 * NULL: nobody. */
struct ct_quotas {
    uint64_t total[CT_QUOTAS];
    const char *set_by[CT_QUOTAS];
    uint32_t share; /* percent, 1 to 100 */
    const char *share_set_by;
};

struct ct_accounts {
    struct ct_quotas quotas; /* with the defaults filled in */
    uint64_t used[CT_QUOTAS];
    struct ct_account **buckets;
    uint32_t bucket_count, count;
    uint64_t window_ms; /* in which `refused` were */
    uint32_t refused;
};

/* Zeroed at first. */
void ct_accounts_init(struct ct_accounts *accounts, const struct ct_quotas *quotas);
void ct_accounts_deinit(struct ct_accounts *accounts);

/* Return the account of that name, with a hold on it that ct_accounts_leave gives up; NULL without
 * memory. An account without a hold is forgotten: nothing is charged to it then. */
struct ct_account *ct_accounts_enter(struct ct_accounts *accounts,
                                     const struct ct_account_name *name);
void ct_accounts_hold(struct ct_account *account);
void ct_accounts_leave(struct ct_accounts *accounts, struct ct_account *account);

/* Take `amount`: 0, or CT_ELIMIT with the sentence, then nothing is taken. Account NULL: nobody's,
 * which no share binds. */
int ct_accounts_take(struct ct_accounts *accounts, struct ct_account *account, enum ct_quota quota,
                     uint64_t amount, struct ct_error *err);

/* Check it only: the same, and nothing is taken. */
int ct_accounts_check(struct ct_accounts *accounts, struct ct_account *account, enum ct_quota quota,
                      uint64_t amount, struct ct_error *err);

/* Return whether ct_accounts_take would take it; this counts as no refusal. */
bool ct_accounts_has_room(const struct ct_accounts *accounts, const struct ct_account *account,
                          enum ct_quota quota, uint64_t amount);

/* Return whether `amount` would be refused because all is used up, and not because of its share. */
bool ct_accounts_is_full(const struct ct_accounts *accounts, enum ct_quota quota, uint64_t amount);

/* Charge what is there already, above any limit: of a journal, or of somebody else. */
void ct_accounts_charge(struct ct_accounts *accounts, struct ct_account *account,
                        enum ct_quota quota, uint64_t amount);
void ct_accounts_give(struct ct_accounts *accounts, struct ct_account *account, enum ct_quota quota,
                      uint64_t amount);

/* Return when somebody who is refused now may ask again: later, the more there are of them. */
uint32_t ct_accounts_retry_ms(struct ct_accounts *accounts, uint64_t now_ms);

/* Return the account behind `after`, in no order; NULL: the first, and no more. */
const struct ct_account *ct_accounts_next(const struct ct_accounts *accounts,
                                          const struct ct_account *after);

const char *ct_quota_name(enum ct_quota quota); /* "jobs" */

#endif
