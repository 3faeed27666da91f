/* Quotas and shares: who gets how much of what there is. */
#include "rendezvous/service/accounts.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(accounts, .timeout = 20);

static struct ct_account *enter(struct ct_accounts *accounts, const char *network)
{
    struct ct_account_name name;
    const struct ct_account_of of = {.uid = -1, .network = network};

    ct_account_name(&of, &name);
    struct ct_account *one = ct_accounts_enter(accounts, &name);
    cr_assert_not_null(one);
    return one;
}

/* As many as it gets. */
static uint64_t take_all(struct ct_accounts *accounts, struct ct_account *account)
{
    struct ct_error err = {0};

    while (ct_accounts_take(accounts, account, CT_QUOTA_JOBS, 1, &err) == 0)
        continue;
    cr_assert_eq(err.code, CT_ELIMIT);
    return account->used[CT_QUOTA_JOBS];
}

static void drop(struct ct_accounts *accounts, struct ct_account *account)
{
    for (enum ct_quota i = 0; i < CT_QUOTAS; i++)
        ct_accounts_give(accounts, account, i, account->used[i]);
    ct_accounts_leave(accounts, account);
}

Test(accounts, one_that_is_alone_gets_its_share_and_is_told_which_quota_whose_value_and_who_set_it)
{
    struct ct_accounts accounts;
    struct ct_error err = {0};
    const struct ct_quotas quotas = {.set_by = {[CT_QUOTA_JOBS] = "/etc/ctrund.yaml"},
                                     .share_set_by = "the command line"};
    ct_accounts_init(&accounts, &quotas);
    struct ct_account *one = enter(&accounts, "10.0.0.7");
    cr_assert_eq(take_all(&accounts, one), 768u);
    cr_assert_eq(ct_accounts_take(&accounts, one, CT_QUOTA_JOBS, 1, &err), CT_ELIMIT);
    cr_assert_str_eq(
        err.text, "10.0.0.7 has 768 jobs, its share while others may come: 768 of 1024 (quota "
                  "jobs, set by /etc/ctrund.yaml; share 75 %, set by the command line): try "
                  "again when one of them has ended, use another ctrund, or have --share raised");
    cr_assert_eq(one->refused, 2u, "each refusal is counted");
    drop(&accounts, one);
    cr_assert_eq(accounts.count, 0u, "an account that has nothing is forgotten");
    ct_accounts_deinit(&accounts);
}

Test(accounts, of_two_that_want_all_none_gets_more_than_the_other)
{
    struct ct_accounts accounts;
    ct_accounts_init(&accounts, &(struct ct_quotas){.share = 75});
    struct ct_account *two[] = {enter(&accounts, "a"), enter(&accounts, "b")};
    bool gets = true;
    while (gets) {
        struct ct_error err = {0};
        gets = false;
        for (size_t i = 0; i < 2; i++)
            if (ct_accounts_take(&accounts, two[i], CT_QUOTA_JOBS, 1, &err) == 0)
                gets = true;
    }
    for (size_t i = 0; i < 2; i++)
        cr_assert(two[i]->used[CT_QUOTA_JOBS] >= 438 && two[i]->used[CT_QUOTA_JOBS] <= 439,
                  "%zu got %d of 1024", i, (int)two[i]->used[CT_QUOTA_JOBS]);
    drop(&accounts, two[0]);
    drop(&accounts, two[1]);
    ct_accounts_deinit(&accounts);
}

Test(accounts, whoever_comes_late_finds_room_beside_those_who_took_all_that_they_could)
{
    struct ct_accounts accounts;
    struct ct_account *before[3], *late[20];
    char name[16];
    ct_accounts_init(&accounts, &(struct ct_quotas){.share = 75});
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof(name), "greedy %zu", i);
        before[i] = enter(&accounts, name);
        cr_assert_gt(take_all(&accounts, before[i]), 10u);
    }
    for (size_t i = 0; i < 14; i++) { /* 16 are left, the last two nobody gets alone */
        struct ct_error err = {0};
        (void)snprintf(name, sizeof(name), "late %zu", i);
        late[i] = enter(&accounts, name);
        cr_assert_eq(ct_accounts_take(&accounts, late[i], CT_QUOTA_JOBS, 1, &err), 0, "%s",
                     err.text);
    }
    cr_assert_eq(accounts.count, 17u, "the table has grown meanwhile");
    for (size_t i = 0; i < 14; i++)
        drop(&accounts, late[i]);
    for (size_t i = 0; i < 3; i++)
        drop(&accounts, before[i]);
    ct_accounts_deinit(&accounts);
}

Test(accounts, a_share_of_all_is_none_and_the_last_one_is_told_that_all_is_used_up)
{
    struct ct_accounts accounts;
    struct ct_error err = {0};
    ct_accounts_init(&accounts, &(struct ct_quotas){.share = 100, .total = {[CT_QUOTA_JOBS] = 5}});
    struct ct_account *one = enter(&accounts, "a"), *other = enter(&accounts, "b");
    cr_assert_eq(take_all(&accounts, one), 5u);
    cr_assert_eq(ct_accounts_take(&accounts, other, CT_QUOTA_JOBS, 1, &err), CT_ELIMIT);
    cr_assert_str_eq(err.text, "this rendezvous has 5 jobs, of 5 at most (quota jobs, set by the "
                               "default), and no room for 1 more: try again when one of them has "
                               "ended, use another ctrund, or have it raised");
    drop(&accounts, one);
    drop(&accounts, other);
    ct_accounts_deinit(&accounts);
}

Test(accounts, what_is_nobodys_is_bound_by_the_total_alone)
{
    struct ct_accounts accounts;
    struct ct_error err = {0};
    ct_accounts_init(&accounts, &(struct ct_quotas){.total = {[CT_QUOTA_LINKS] = 4}});
    cr_assert_eq(ct_accounts_take(&accounts, NULL, CT_QUOTA_LINKS, 4, &err), 0, "%s", err.text);
    cr_assert_eq(ct_accounts_take(&accounts, NULL, CT_QUOTA_LINKS, 1, &err), CT_ELIMIT);
    ct_accounts_give(&accounts, NULL, CT_QUOTA_LINKS, 4);
    ct_accounts_deinit(&accounts);
}

Test(accounts, an_account_is_named_after_the_most_specific_thing_that_is_known)
{
    struct ct_account_name key, other_key, user, root, network, other;
    struct ct_account_of of = {.key = "6f1c", .uid = 1000, .network = "10.0.0.7"};
    ct_account_name(&of, &key);
    of.key = "6f1d";
    ct_account_name(&of, &other_key);
    of.key = NULL;
    ct_account_name(&of, &user);
    of.uid = 0;
    ct_account_name(&of, &root);
    of.uid = -1;
    ct_account_name(&of, &network);
    of.network = "10.0.0.8";
    ct_account_name(&of, &other);
    cr_assert_str_eq(key.text, "key 6f1c");
    cr_assert_str_eq(user.text, "user 1000");
    cr_assert_str_eq(root.text, "user 0");
    cr_assert_str_eq(network.text, "10.0.0.7");
    const uint64_t ids[] = {key.id, other_key.id, user.id, root.id, network.id, other.id};
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < i; k++)
            cr_assert_neq(ids[i], ids[k], "%zu and %zu are one account", i, k);
}

Test(accounts, the_more_are_refused_the_later_they_ask_again)
{
    struct ct_accounts accounts;
    struct ct_error err = {0};
    ct_accounts_init(&accounts, &(struct ct_quotas){.total = {[CT_QUOTA_JOBS] = 1}});
    cr_assert_eq(ct_accounts_take(&accounts, NULL, CT_QUOTA_JOBS, 1, &err), 0);
    uint32_t last_ms = 999;
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(ct_accounts_take(&accounts, NULL, CT_QUOTA_JOBS, 1, &err), CT_ELIMIT);
        uint32_t ms = ct_accounts_retry_ms(&accounts, 20000);
        cr_assert_gt(ms, last_ms);
        last_ms = ms;
    }
    cr_assert_geq(last_ms, 2900u);
    cr_assert_eq(ct_accounts_take(&accounts, NULL, CT_QUOTA_JOBS, 1, &err), CT_ELIMIT);
    cr_assert_leq(ct_accounts_retry_ms(&accounts, 40000), 1100u, "the crowd has gone");
    ct_accounts_give(&accounts, NULL, CT_QUOTA_JOBS, 1);
    ct_accounts_deinit(&accounts);
}
