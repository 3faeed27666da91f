/* Accounts in a table of chains; see accounts.h. */
#include "rendezvous/service/accounts.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/number/rng.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_BUCKETS = 16 };

static const struct {
    const char *name, *what, *room;
    uint64_t total;
} rows[CT_QUOTAS] = {
#define QUOTA(NAME, name, total, what, room) {#name, what, room, total},
#include "rendezvous/service/quota.def"
#undef QUOTA
};

const char *ct_quota_name(enum ct_quota quota)
{
    return rows[quota].name;
}

/* ---- names ---- */

enum { OF_A_KEY = 1, OF_A_USER, OF_A_NETWORK };

void ct_account_name(const struct ct_account_of *of, struct ct_account_name *ret_name)
{
    if (of->key != NULL) {
        ret_name->id = ct_hash_str(of->key) ^ ct_mix64(OF_A_KEY);
        (void)snprintf(ret_name->text, sizeof(ret_name->text), "key %.64s", of->key);
    } else if (of->uid >= 0) {
        ret_name->id = ct_hash64(&of->uid, sizeof(of->uid), OF_A_USER);
        (void)snprintf(ret_name->text, sizeof(ret_name->text), "user %" PRId64, of->uid);
    } else {
        ret_name->id = ct_hash_str(of->network) ^ ct_mix64(OF_A_NETWORK);
        (void)ct_str_copy(ret_name->text, sizeof(ret_name->text), of->network);
    }
}

/* ---- the table ---- */

void ct_accounts_init(struct ct_accounts *accounts, const struct ct_quotas *quotas)
{
    *accounts = (struct ct_accounts){.quotas = *quotas};
    for (size_t i = 0; i < CT_QUOTAS; i++)
        if (accounts->quotas.total[i] == 0)
            accounts->quotas.total[i] = rows[i].total;
    if (accounts->quotas.share == 0)
        accounts->quotas.share = CT_ACCOUNTS_SHARE;
    CT_ASSERT(accounts->quotas.share <= 100);
}

void ct_accounts_deinit(struct ct_accounts *accounts)
{
    for (uint32_t i = 0; i < accounts->bucket_count; i++)
        for (struct ct_account *one = accounts->buckets[i], *next; one != NULL; one = next) {
            next = one->next;
            free(one);
        }
    free(accounts->buckets);
    accounts->buckets = NULL;
    accounts->bucket_count = 0;
}

static struct ct_account **bucket_of(const struct ct_accounts *accounts, uint64_t id)
{
    return &accounts->buckets[ct_mix64(id) & (accounts->bucket_count - 1)];
}

/* Twice as many buckets; without memory the chains are longer, or there are none at all. */
static void grow(struct ct_accounts *accounts)
{
    struct ct_accounts before = *accounts;
    uint32_t count = before.bucket_count == 0 ? FIRST_BUCKETS : 2 * before.bucket_count;
    struct ct_account **buckets = calloc(count, sizeof(struct ct_account *));

    if (buckets == NULL)
        return;
    accounts->buckets = buckets;
    accounts->bucket_count = count;
    for (uint32_t i = 0; i < before.bucket_count; i++)
        for (struct ct_account *one = before.buckets[i], *next; one != NULL; one = next) {
            struct ct_account **bucket = bucket_of(accounts, one->id);
            next = one->next;
            one->next = *bucket;
            *bucket = one;
        }
    free(before.buckets);
}

struct ct_account *ct_accounts_enter(struct ct_accounts *accounts,
                                     const struct ct_account_name *name)
{
    if (accounts->count >= accounts->bucket_count)
        grow(accounts);
    if (accounts->bucket_count == 0)
        return NULL;
    struct ct_account **bucket = bucket_of(accounts, name->id), *one = *bucket;
    while (one != NULL && one->id != name->id)
        one = one->next;
    if (one == NULL) {
        one = calloc(1, sizeof(*one));
        if (one == NULL)
            return NULL;
        one->id = name->id;
        (void)ct_str_copy(one->text, sizeof(one->text), name->text);
        one->next = *bucket;
        *bucket = one;
        accounts->count++;
    }
    one->holds++;
    return one;
}

void ct_accounts_hold(struct ct_account *account)
{
    if (account != NULL)
        account->holds++;
}

void ct_accounts_leave(struct ct_accounts *accounts, struct ct_account *account)
{
    if (account == NULL)
        return;
    CT_ASSERT(account->holds > 0);
    if (--account->holds > 0)
        return;
    for (size_t i = 0; i < CT_QUOTAS; i++)
        CT_ASSERT(account->used[i] == 0);
    struct ct_account **at = bucket_of(accounts, account->id);
    while (*at != account)
        at = &(*at)->next;
    *at = account->next;
    accounts->count--;
    free(account);
}

const struct ct_account *ct_accounts_next(const struct ct_accounts *accounts,
                                          const struct ct_account *after)
{
    uint32_t i = 0;

    if (after != NULL && after->next != NULL)
        return after->next;
    if (after != NULL)
        i = (uint32_t)(bucket_of(accounts, after->id) - accounts->buckets) + 1;
    while (i < accounts->bucket_count && accounts->buckets[i] == NULL)
        i++;
    return i < accounts->bucket_count ? accounts->buckets[i] : NULL;
}

/* ---- what they have ---- */

static uint64_t free_of(const struct ct_accounts *accounts, enum ct_quota quota)
{
    uint64_t total = accounts->quotas.total[quota];

    return accounts->used[quota] < total ? total - accounts->used[quota] : 0;
}

bool ct_accounts_is_full(const struct ct_accounts *accounts, enum ct_quota quota, uint64_t amount)
{
    return amount > free_of(accounts, quota);
}

/* The most that it may have as things are, by the rule of accounts.h. */
static uint64_t most_of(const struct ct_accounts *accounts, const struct ct_account *account,
                        enum ct_quota quota)
{
    uint64_t percent = accounts->quotas.share;
    uint64_t used = account != NULL ? account->used[quota] : 0;
    uint64_t reach = used + free_of(accounts, quota); /* its own and what nobody has */

    return account == NULL || percent == 100 ? reach
                                             : reach / 100 * percent + reach % 100 * percent / 100;
}

static const char *setter(const char *set_by)
{
    return set_by != NULL ? set_by : "the default";
}

static int refuse(struct ct_accounts *accounts, struct ct_account *account, enum ct_quota quota,
                  uint64_t amount, struct ct_error *err)
{
    const struct ct_quotas *quotas = &accounts->quotas;
    char share[160] = "";

    accounts->refused++;
    if (account != NULL)
        account->refused++;
    if (ct_accounts_is_full(accounts, quota, amount))
        return ct_error_set(
            err, CT_ELIMIT,
            "this rendezvous has %" PRIu64 " %s, of %" PRIu64 " at most (quota %s, set by %s), and "
            "no room for %" PRIu64 " more: try again %s, use another ctrund, or have it raised",
            accounts->used[quota], rows[quota].what, quotas->total[quota], rows[quota].name,
            setter(quotas->set_by[quota]), amount, rows[quota].room);
    (void)snprintf(share, sizeof(share), "share %u %%, set by %.100s", quotas->share,
                   setter(quotas->share_set_by));
    return ct_error_set(
        err, CT_ELIMIT,
        "%s has %" PRIu64 " %s, its share while others may come: %" PRIu64 " of %" PRIu64
        " (quota %s, set by %s; %s): try again %s, use another ctrund, or have --share raised",
        account->text, account->used[quota], rows[quota].what, most_of(accounts, account, quota),
        quotas->total[quota], rows[quota].name, setter(quotas->set_by[quota]), share,
        rows[quota].room);
}

bool ct_accounts_has_room(const struct ct_accounts *accounts, const struct ct_account *account,
                          enum ct_quota quota, uint64_t amount)
{
    uint64_t used = account != NULL ? account->used[quota] : 0;

    return !ct_accounts_is_full(accounts, quota, amount) &&
           used + amount <= most_of(accounts, account, quota);
}

int ct_accounts_check(struct ct_accounts *accounts, struct ct_account *account, enum ct_quota quota,
                      uint64_t amount, struct ct_error *err)
{
    return ct_accounts_has_room(accounts, account, quota, amount)
               ? 0
               : refuse(accounts, account, quota, amount, err);
}

int ct_accounts_take(struct ct_accounts *accounts, struct ct_account *account, enum ct_quota quota,
                     uint64_t amount, struct ct_error *err)
{
    int rc = ct_accounts_check(accounts, account, quota, amount, err);

    if (rc == 0)
        ct_accounts_charge(accounts, account, quota, amount);
    return rc;
}

void ct_accounts_charge(struct ct_accounts *accounts, struct ct_account *account,
                        enum ct_quota quota, uint64_t amount)
{
    accounts->used[quota] += amount;
    if (account != NULL)
        account->used[quota] += amount;
}

void ct_accounts_give(struct ct_accounts *accounts, struct ct_account *account, enum ct_quota quota,
                      uint64_t amount)
{
    CT_ASSERT(accounts->used[quota] >= amount);
    accounts->used[quota] -= amount;
    if (account == NULL)
        return;
    CT_ASSERT(account->used[quota] >= amount);
    account->used[quota] -= amount;
}

uint32_t ct_accounts_retry_ms(struct ct_accounts *accounts, uint64_t now_ms)
{
    if (now_ms - accounts->window_ms >= CT_ACCOUNTS_WINDOW_MS) {
        accounts->window_ms = now_ms;
        accounts->refused = 1;
    }
    uint64_t ms = CT_ACCOUNTS_RETRY_MS + (uint64_t)accounts->refused * CT_ACCOUNTS_SPREAD_MS;
    return (uint32_t)CT_MIN(ms, (uint64_t)CT_ACCOUNTS_LATEST_MS);
}
