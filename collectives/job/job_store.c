/* See ctrun.h, part "the store of the round". Keys of programs lie apart from those of groups. */
#include "job/job.h"

#include <stdio.h>

enum { KEY_BYTES = 512 };

static int key_of(char full[KEY_BYTES], const char *key)
{
    int length = snprintf(full, KEY_BYTES, "program/%s", key);

    return length < 0 || length >= KEY_BYTES ? CT_ELIMIT : 0;
}

int ct_store_set(struct ct_job *job, const char *key, const void *value, size_t size)
{
    char full[KEY_BYTES];
    int code = key_of(full, key);

    if (code != 0 || size > CT_KV_VALUE_MAX)
        return CT_ELIMIT;
    return job->kv.set == NULL ? CT_EUNSUPPORTED : job->kv.set(job->kv.context, full, value, size);
}

int ct_store_get(struct ct_job *job, const char *key, void *value, size_t *size,
                 uint64_t timeout_ms)
{
    struct ct_kv_value into = {value, *size};
    char full[KEY_BYTES];
    int code = key_of(full, key);

    if (code != 0)
        return code;
    if (job->kv.wait == NULL)
        return CT_EUNSUPPORTED;
    code = job->kv.wait(job->kv.context, full, &into, timeout_ms);
    if (code == 0)
        *size = into.size;
    return code;
}

int ct_store_add(struct ct_job *job, const char *key, int64_t delta, int64_t *ret_sum)
{
    char full[KEY_BYTES];
    int code = key_of(full, key);

    if (code != 0)
        return code;
    return job->kv.add == NULL ? CT_EUNSUPPORTED
                               : job->kv.add(job->kv.context, full, delta, ret_sum);
}
