/* The store: what each request answers, and that a waiter is answered once. */
#include "rendezvous/store/store.h"

#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(store, .timeout = 30);

enum { REPLIES = 4096 };

struct log {
    struct ct_store *store;
    size_t count;
    struct {
        uint64_t client, request;
        int code;
        int64_t number;
        char value[64];
        size_t size;
    } replies[REPLIES];
};

static void on_reply(void *context, uint64_t client, const struct ct_msg_store_reply *reply)
{
    struct log *log = context;
    cr_assert(log->count < REPLIES);
    size_t i = log->count++;
    log->replies[i].client = client;
    log->replies[i].request = reply->request;
    log->replies[i].code = reply->code;
    log->replies[i].number = reply->number;
    log->replies[i].size = reply->value.size;
    size_t size = reply->value.size < 63 ? reply->value.size : 63;
    if (size > 0)
        memcpy(log->replies[i].value, reply->value.data, size);
    log->replies[i].value[size] = '\0';
}

static struct log *begin(const struct ct_store_limits *limits)
{
    struct log *log = calloc(1, sizeof(*log));
    cr_assert_not_null(log);
    log->store = ct_store_new(limits, on_reply, log);
    cr_assert_not_null(log->store);
    ct_store_begin(log->store, 1);
    return log;
}

static void end(struct log *log)
{
    ct_store_free(log->store);
    free(log);
}

static struct ct_bytes bytes(const char *text)
{
    return (struct ct_bytes){(const unsigned char *)text, strlen(text)};
}

static void set(struct log *log, const char *key, const char *value)
{
    struct ct_message m = {
        .type = CT_MSG_STORE_SET,
        .store_set = {.request = 1, .generation = 1, .key = key, .value = bytes(value)}};
    ct_store_request(log->store, 0, 7, &m);
}

static void get(struct log *log, const char *key)
{
    struct ct_message m = {.type = CT_MSG_STORE_GET,
                           .store_get = {.request = 2, .generation = 1, .key = key}};
    ct_store_request(log->store, 0, 7, &m);
}

static void add(struct log *log, const char *key, int64_t delta)
{
    struct ct_message m = {
        .type = CT_MSG_STORE_ADD,
        .store_add = {.request = 3, .generation = 1, .key = key, .delta = delta}};
    ct_store_request(log->store, 0, 7, &m);
}

static void cas(struct log *log, const char *key, const char *expected, const char *desired)
{
    struct ct_message m = {.type = CT_MSG_STORE_CAS,
                           .store_cas = {.request = 4,
                                         .generation = 1,
                                         .key = key,
                                         .absent = expected == NULL,
                                         .expected = bytes(expected ? expected : ""),
                                         .desired = bytes(desired)}};
    ct_store_request(log->store, 0, 7, &m);
}

static void wait_for(struct log *log, uint64_t client, uint64_t request, const char *key,
                     uint64_t timeout_ms)
{
    struct ct_message m = {
        .type = CT_MSG_STORE_WAIT,
        .store_wait = {.request = request, .generation = 1, .key = key, .timeout_ms = timeout_ms}};
    ct_store_request(log->store, 1000, client, &m);
}

static void delete (struct log *log, const char *key)
{
    struct ct_message m = {.type = CT_MSG_STORE_DELETE,
                           .store_delete = {.request = 6, .generation = 1, .key = key}};
    ct_store_request(log->store, 0, 7, &m);
}

/* The last answer. */
#define CODE(log) ((log)->replies[(log)->count - 1].code)
#define VALUE(log) ((log)->replies[(log)->count - 1].value)
#define NUMBER(log) ((log)->replies[(log)->count - 1].number)

Test(store, get_answers_what_was_set_last)
{
    struct log *log = begin(NULL);
    get(log, "k");
    cr_assert_eq(CODE(log), CT_ENOTFOUND);
    set(log, "k", "one");
    cr_assert_eq(CODE(log), 0);
    set(log, "k", "two");
    get(log, "k");
    cr_assert_eq(CODE(log), 0);
    cr_assert_str_eq(VALUE(log), "two");
    cr_assert_eq(log->count, 4);
    end(log);
}

Test(store, add_counts_and_keeps_its_counter_as_text)
{
    struct log *log = begin(NULL);
    add(log, "n", 5);
    cr_assert_eq(NUMBER(log), 5);
    add(log, "n", -7);
    cr_assert_eq(NUMBER(log), -2);
    get(log, "n");
    cr_assert_str_eq(VALUE(log), "-2");
    set(log, "n", "9223372036854775807");
    add(log, "n", 1);
    cr_assert_eq(CODE(log), CT_EPROTOCOL, "an overflow is refused");
    set(log, "n", "text");
    add(log, "n", 1);
    cr_assert_eq(CODE(log), CT_EPROTOCOL);
    get(log, "n");
    cr_assert_str_eq(VALUE(log), "text");
    end(log);
}

Test(store, compare_and_set_sets_only_what_was_expected)
{
    struct log *log = begin(NULL);
    cas(log, "k", "old", "new");
    cr_assert_eq(CODE(log), 0);
    cr_assert_str_eq(VALUE(log), "", "an absent key does not hold \"old\"");
    cas(log, "k", NULL, "first");
    cr_assert_str_eq(VALUE(log), "first");
    cas(log, "k", NULL, "second");
    cr_assert_str_eq(VALUE(log), "first");
    cas(log, "k", "other", "third");
    cr_assert_str_eq(VALUE(log), "first");
    cas(log, "k", "first", "fourth");
    cr_assert_str_eq(VALUE(log), "fourth");
    end(log);
}

Test(store, waiters_are_answered_once_in_order_when_the_value_comes)
{
    struct log *log = begin(NULL);
    wait_for(log, 1, 11, "k", 0);
    wait_for(log, 2, 12, "k", 500);
    wait_for(log, 3, 13, "other", 0);
    cr_assert_eq(log->count, 0);
    set(log, "k", "v");
    cr_assert_eq(log->count, 3);
    cr_assert_eq(log->replies[0].client, 1);
    cr_assert_eq(log->replies[1].client, 2);
    cr_assert_eq(log->replies[1].request, 12);
    cr_assert_str_eq(log->replies[0].value, "v");
    ct_store_tick(log->store, 9999);
    cr_assert_eq(log->count, 3);
    wait_for(log, 4, 14, "k", 0);
    cr_assert_str_eq(VALUE(log), "v", "a value that is there is not waited for");
    end(log);
}

Test(store, a_waiter_whose_time_is_up_is_told_so)
{
    struct log *log = begin(&(struct ct_store_limits){.keys = 1});
    wait_for(log, 1, 11, "k", 300);
    wait_for(log, 1, 12, "k", 100);
    cr_assert_eq(ct_store_deadline(log->store), 1100);
    ct_store_tick(log->store, 1099);
    cr_assert_eq(log->count, 0);
    ct_store_tick(log->store, 1100);
    cr_assert_eq(log->count, 1);
    cr_assert_eq(log->replies[0].request, 12);
    cr_assert_eq(CODE(log), CT_ETIMEOUT);
    cr_assert_eq(ct_store_deadline(log->store), 1300);
    ct_store_tick(log->store, 5000);
    cr_assert_eq(log->count, 2);
    cr_assert_eq(ct_store_deadline(log->store), UINT64_MAX);
    set(log, "another", "v");
    cr_assert_eq(CODE(log), 0, "a key that nobody waits for is gone");
    end(log);
}

Test(store, delete_forgets_the_value_but_not_the_waiters_of_the_next)
{
    struct log *log = begin(NULL);
    delete (log, "k");
    cr_assert_eq(CODE(log), CT_ENOTFOUND);
    set(log, "k", "v");
    delete (log, "k");
    cr_assert_eq(CODE(log), 0);
    get(log, "k");
    cr_assert_eq(CODE(log), CT_ENOTFOUND);
    wait_for(log, 1, 11, "k", 0);
    delete (log, "k");
    cr_assert_eq(CODE(log), CT_ENOTFOUND);
    set(log, "k", "again");
    cr_assert_eq(log->replies[log->count - 2].request, 11);
    end(log);
}

Test(store, a_new_round_empties_it_and_revokes_waiters_and_late_requests)
{
    struct log *log = begin(NULL);
    set(log, "k", "v");
    wait_for(log, 1, 11, "never", 0);
    ct_store_begin(log->store, 2);
    cr_assert_eq(CODE(log), CT_EREVOKED);
    cr_assert_eq(ct_store_bytes(log->store), 0);
    get(log, "k");
    cr_assert_eq(CODE(log), CT_EREVOKED, "a request of round 1");
    end(log);
}

Test(store, a_revoked_round_answers_everything_revoked)
{
    struct log *log = begin(NULL);
    wait_for(log, 1, 11, "k", 0);
    ct_store_revoke(log->store);
    cr_assert_eq(log->count, 1);
    set(log, "k", "v");
    cr_assert_eq(CODE(log), CT_EREVOKED);
    cr_assert_eq(log->count, 2);
    end(log);
}

Test(store, a_client_that_goes_is_answered_no_more)
{
    struct log *log = begin(NULL);
    wait_for(log, 1, 11, "k", 0);
    wait_for(log, 2, 12, "k", 0);
    ct_store_forget(log->store, 1);
    set(log, "k", "v");
    cr_assert_eq(log->count, 2);
    cr_assert_eq(log->replies[0].client, 2);
    end(log);
}

Test(store, above_its_limits_it_refuses_and_changes_nothing)
{
    struct ct_store_limits limits = {.keys = 2, .bytes = 16, .waiters = 1};
    struct log *log = begin(&limits);
    set(log, "a", "12345");
    set(log, "b", "1234567890"); /* 17 bytes in all */
    cr_assert_eq(CODE(log), CT_ELIMIT);
    cr_assert_eq(ct_store_bytes(log->store), 6);
    set(log, "b", "123");
    cr_assert_eq(CODE(log), 0);
    set(log, "c", "");
    cr_assert_eq(CODE(log), CT_ELIMIT, "a third key");
    set(log, "a", "123456789012");
    cr_assert_eq(CODE(log), CT_ELIMIT);
    get(log, "a");
    cr_assert_str_eq(VALUE(log), "12345", "the old value stays");
    delete (log, "b");
    wait_for(log, 1, 11, "w", 0);
    wait_for(log, 1, 12, "w", 0);
    cr_assert_eq(CODE(log), CT_ELIMIT, "a second waiter");
    end(log);
}

/* A plain model: an array of keys. Every request's answer must be the same. */
struct model {
    char value[8][24];
    bool here[8];
};

static void check_random_op(struct log *log, struct model *model, struct ct_rng *rng)
{
    char key[4];
    char value[24];
    size_t k = ct_rng_below(rng, 8);
    (void)snprintf(key, sizeof(key), "k%zu", k);
    (void)snprintf(value, sizeof(value), "%u", (unsigned)ct_rng_below(rng, 4));
    switch (ct_rng_below(rng, 5)) {
    case 0:
        set(log, key, value);
        model->here[k] = true;
        strcpy(model->value[k], value);
        break;
    case 1:
        get(log, key);
        cr_assert_eq(CODE(log), model->here[k] ? 0 : CT_ENOTFOUND);
        cr_assert_str_eq(VALUE(log), model->here[k] ? model->value[k] : "");
        break;
    case 2:
        add(log, key, 3);
        (void)snprintf(model->value[k], sizeof(model->value[k]), "%ld",
                       (model->here[k] ? strtol(model->value[k], NULL, 10) : 0) + 3);
        model->here[k] = true;
        cr_assert_eq(NUMBER(log), strtol(model->value[k], NULL, 10));
        break;
    case 3:
        cas(log, key, value, "9");
        if (model->here[k] && strcmp(model->value[k], value) == 0)
            strcpy(model->value[k], "9");
        cr_assert_str_eq(VALUE(log), model->here[k] ? model->value[k] : "");
        break;
    default:
        delete (log, key);
        cr_assert_eq(CODE(log), model->here[k] ? 0 : CT_ENOTFOUND);
        model->here[k] = false;
        break;
    }
}

Test(store, it_answers_as_a_plain_array_would)
{
    struct ct_rng rng;
    struct model model = {0};
    struct log *log = begin(NULL);
    ct_rng_init(&rng, 1);
    for (int i = 0; i < 20000; i++) {
        log->count = 0;
        check_random_op(log, &model, &rng);
        cr_assert_eq(log->count, 1);
    }
    size_t size = 0;
    for (size_t k = 0; k < 8; k++)
        size += model.here[k] ? strlen("k0") + strlen(model.value[k]) : 0;
    cr_assert_eq(ct_store_bytes(log->store), size, "other keys are gone");
    end(log);
}

Test(store, many_keys_are_found_again)
{
    struct log *log = begin(NULL);
    char key[16];
    for (int i = 0; i < 2000; i++) {
        (void)snprintf(key, sizeof(key), "key/%d", i);
        set(log, key, key);
    }
    for (int i = 0; i < 2000; i += 7) {
        (void)snprintf(key, sizeof(key), "key/%d", i);
        get(log, key);
        cr_assert_str_eq(VALUE(log), key);
    }
    end(log);
}
