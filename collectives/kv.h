/* The store that groups use while they form: a few small values, one key space a round. All calls
 * but `add` are idempotent, so an agent can repeat those that a lost or absent daemon did not
 * answer.
 *
 * Two implementations: the worker's link to its agent (job_link.c), and a table in this process
 * (thread_world.c). May be called from several threads. */
#ifndef CT_COLL_KV_H
#define CT_COLL_KV_H

#include <stddef.h>
#include <stdint.h>

enum { CT_KV_VALUE_MAX = 1024 * 1024 };

/* A buffer for a value; `size` becomes its length. */
struct ct_kv_value {
    void *data;
    size_t size;
};

struct ct_kv {
    /* Set or replace. 0 or a negative code. */
    int (*set)(void *context, const char *key, const void *value, size_t size);
    /* Wait until `key` exists, for `timeout_ms` at most, and copy its value. 0, CT_ETIMEOUT,
     * CT_EREVOKED, or CT_ELIMIT when it does not fit. */
    int (*wait)(void *context, const char *key, struct ct_kv_value *value, uint64_t timeout_ms);
    void *context;

    /* For a group at work, which must not depend on a store that is away for a while. Set, without
     * awaiting the reply. */
    int (*send)(void *context, const char *key, const void *value, size_t size);
    /* Copy the value of `key` if it exists now; CT_ETIMEOUT also when there is no reply within
     * `patience_ms`. */
    int (*poll)(void *context, const char *key, struct ct_kv_value *value, uint64_t patience_ms);

    /* Add to a counter (absent: 0). Not idempotent: an error may come after it was added. NULL
     * where there are no counters. */
    int (*add)(void *context, const char *key, int64_t delta, int64_t *ret_sum);
};

#endif
