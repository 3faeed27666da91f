/* See failure_cause.h. */
#include "group/failure_cause.h"

#include <stdio.h>
#include <string.h>

int ct_failure_cause_find(struct ct_group *group, int code)
{
    const struct ct_kv *kv = &group->job->kv;
    struct ct_error *failure = &group->failure;
    char key[256], text[sizeof failure->text];
    struct ct_kv_value value = {text, sizeof text - 1};
    bool mismatch = code == CT_EMISMATCH;

    if (kv->set == NULL || (!mismatch && code != CT_ECLOSED))
        return code;
    (void)snprintf(key, sizeof key, "ct/group/%s/mismatch", group->key);
    if (mismatch && !failure->echo) {
        (void)kv->set(kv->context, key, failure->text, strlen(failure->text));
        return code;
    }
    int found =
        kv->wait(kv->context, key, &value, mismatch ? CT_CAUSE_MISMATCH_MS : CT_CAUSE_CLOSED_MS);
    if (found == CT_EREVOKED && !mismatch)
        return ct_error_set(failure, CT_EREVOKED, "the round was revoked");
    if (found != 0)
        return code;
    text[value.size] = '\0';
    return ct_error_set(failure, CT_EMISMATCH, "%s", text);
}
