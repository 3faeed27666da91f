/* What accounts have of a daemon beside things that are counted: lines of its log. And quotas for
 * those who look: see accounts.h. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/number/scale.h"

#include <inttypes.h>
#include <stdio.h>

void ct_service_log(struct ct_service_job *job, uint64_t now_ms, const char *text)
{
    const struct ct_service *service = job->service;
    struct ct_account *account = job->account;
    const char *name = ct_rdzv_name(job->core);
    char left_out[256];

    if (account != NULL && ct_pace_take(&account->lines, now_ms, CT_SERVICE_LINES_PER_S,
                                        CT_SERVICE_LINES_BURST) != 0) {
        account->left_out++;
        return;
    }
    if (account != NULL && account->left_out > 0) {
        (void)snprintf(left_out, sizeof(left_out),
                       "%u lines about jobs of %s are left out: more than %d a second",
                       account->left_out, account->text, CT_SERVICE_LINES_PER_S);
        account->left_out = 0;
        service->io.announce(service->io.context, name, left_out);
    }
    service->io.announce(service->io.context, name, text);
}

void ct_service_log_refusal(struct ct_service_job *job, uint64_t now_ms)
{
    char text[sizeof(job->service->refusal.text) + 32];

    if (!job->store_refused)
        return;
    job->store_refused = false;
    if (job->store_told_ms != 0 && now_ms - job->store_told_ms < CT_SERVICE_TELL_MS)
        return;
    job->store_told_ms = CT_MAX(now_ms, (uint64_t)1);
    (void)snprintf(text, sizeof(text), "its store is refused room: %s", job->service->refusal.text);
    ct_service_log(job, now_ms, text);
}

/* ---- for operators ---- */

static bool is_bytes(enum ct_quota quota)
{
    return quota == CT_QUOTA_BYTES;
}

static void put_amount(struct ct_buf *out, enum ct_quota quota, uint64_t amount)
{
    char text[CT_SCALE_SIZE];

    if (is_bytes(quota))
        (void)ct_buf_puts(out, ct_scale_bytes((double)amount, text));
    else
        (void)ct_buf_printf(out, "%" PRIu64, amount);
}

/* Is it the operator's own, or that of a job that he may see? */
static bool may_see(const struct ct_service *service, const struct ct_service_link *link,
                    const struct ct_account *account)
{
    bool found = link->account == account;

    for (const struct ct_service_job *job = service->jobs; job != NULL && !found; job = job->next)
        found = job->account == account && ct_admin_means(service, link, job);
    return found;
}

enum { SHOWN = 32 /* accounts; more are a matter for the metrics of who runs so many */ };

static void put_text(const struct ct_service *service, const struct ct_service_link *link,
                     struct ct_buf *out)
{
    const struct ct_accounts *accounts = &service->accounts;
    const struct ct_account *one = NULL;
    int shown = 0;

    (void)ct_buf_puts(out, "quotas");
    for (enum ct_quota i = 0; i < CT_QUOTAS; i++) {
        (void)ct_buf_printf(out, "%s %s ", i == 0 ? "      " : ",", ct_quota_name(i));
        put_amount(out, i, accounts->used[i]);
        (void)ct_buf_puts(out, " of ");
        put_amount(out, i, accounts->quotas.total[i]);
        if (accounts->quotas.set_by[i] != NULL)
            (void)ct_buf_printf(out, " (%s)", accounts->quotas.set_by[i]);
    }
    (void)ct_buf_printf(out, ", share %u %%", accounts->quotas.share);
    if (accounts->quotas.share_set_by != NULL)
        (void)ct_buf_printf(out, " (%s)", accounts->quotas.share_set_by);
    (void)ct_buf_puts(out, "\n");
    while (shown < SHOWN && (one = ct_accounts_next(accounts, one)) != NULL) {
        if (!may_see(service, link, one))
            continue;
        shown++;
        (void)ct_buf_printf(out, "  %-20s", one->text);
        for (enum ct_quota i = 0; i < CT_QUOTAS; i++) {
            (void)ct_buf_printf(out, "%s %s ", i == 0 ? "" : ",", ct_quota_name(i));
            put_amount(out, i, one->used[i]);
        }
        if (one->refused > 0)
            (void)ct_buf_printf(out, "; refused %" PRIu64 " times", one->refused);
        (void)ct_buf_puts(out, "\n");
    }
}

static void put_account_json(const struct ct_account *one, struct ct_buf *out)
{
    (void)ct_buf_puts(out, "{\"account\":");
    ct_json_string(out, one->text);
    for (enum ct_quota i = 0; i < CT_QUOTAS; i++)
        (void)ct_buf_printf(out, ",\"%s\":%" PRIu64, ct_quota_name(i), one->used[i]);
    (void)ct_buf_printf(out, ",\"refused\":%" PRIu64 "}", one->refused);
}

static void put_setter(const char *set_by, struct ct_buf *out)
{
    (void)ct_buf_puts(out, ",\"set_by\":");
    ct_json_string(out, set_by != NULL ? set_by : "default");
    (void)ct_buf_puts(out, "}");
}

static void put_json(const struct ct_service *service, const struct ct_service_link *link,
                     struct ct_buf *out)
{
    const struct ct_accounts *accounts = &service->accounts;
    const struct ct_account *one = NULL;
    int shown = 0;

    (void)ct_buf_puts(out, ",\"quotas\":{");
    for (enum ct_quota i = 0; i < CT_QUOTAS; i++) {
        (void)ct_buf_printf(out, "\"%s\":{\"used\":%" PRIu64 ",\"total\":%" PRIu64,
                            ct_quota_name(i), accounts->used[i], accounts->quotas.total[i]);
        put_setter(accounts->quotas.set_by[i], out);
        (void)ct_buf_puts(out, ",");
    }
    (void)ct_buf_printf(out, "\"share\":{\"percent\":%u", accounts->quotas.share);
    put_setter(accounts->quotas.share_set_by, out);
    (void)ct_buf_puts(out, ",\"accounts\":[");
    while (shown < SHOWN && (one = ct_accounts_next(accounts, one)) != NULL) {
        if (!may_see(service, link, one))
            continue;
        (void)ct_buf_puts(out, shown++ > 0 ? "," : "");
        put_account_json(one, out);
    }
    (void)ct_buf_puts(out, "]}");
}

void ct_admin_put_quotas(const struct ct_service *service, const struct ct_service_link *link,
                         bool is_json, struct ct_buf *out)
{
    if (service->io.whose == NULL)
        return;
    if (is_json)
        put_json(service, link, out);
    else
        put_text(service, link, out);
}
