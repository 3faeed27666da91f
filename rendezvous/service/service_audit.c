/* Who may do what, and what operators order and who is refused, for an audit log: io.may, io.audit.
 *
 * An order's verdict may follow a record that is kept later, when the words of its message are
 * gone: they are held until then. An order whose operator leaves before is told of all the same. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/str.h"

#include <stdlib.h>

struct ct_service_held {
    const char *deed;
    char host[256], author[256], reason[1001];
};

int ct_service_may(const struct ct_service *service, const struct ct_service_link *link,
                   enum ct_right right, const char *job, struct ct_error *err)
{
    if (service->io.may == NULL)
        return 0;
    return service->io.may(service->io.context, link->peer, right, job, err);
}

int ct_service_lets_in(const struct ct_service *service, const struct ct_service_link *link,
                       bool is_admin, const char *job, struct ct_error *err)
{
    int code = ct_service_may(service, link, is_admin ? CT_RIGHT_READ : CT_RIGHT_JOIN, job, err);

    return code == 0 && is_admin ? ct_service_may(service, link, CT_RIGHT_NEW, job, err) : code;
}

/* As the member that it is, or, where the record is put together anew of what nodes say, as one
 * that has been in a round. */
static bool comes_back(const struct ct_service *service, const struct ct_service_link *link,
                       const struct ct_msg_join *join)
{
    const struct ct_service_job *job = ct_service_find_job(service, link->job_name);

    return (service->rebuild != CT_RDZV_REBUILD_NEVER && join->generation != 0) ||
           (job != NULL && ct_rdzv_member_of(job->core, join->incarnation) != NULL);
}

bool ct_service_lets_join(struct ct_service *service, const struct ct_service_link *link,
                          const struct ct_msg_join *join)
{
    struct ct_error why = {0};

    if (ct_service_may(service, link, CT_RIGHT_NEW, link->job_name, &why) == 0 ||
        comes_back(service, link, join))
        return true;
    ct_error_prefix(&why, "host %s", join->host);
    ct_service_refuse(service, link->number, CT_EAUTH, 0, why.text);
    return false;
}

static const char *role_of(const struct ct_service_link *link)
{
    return link->admin ? "operator" : "node";
}

static void tell(struct ct_service *service, const struct ct_service_link *link,
                 struct ct_service_deed *deed)
{
    deed->role = role_of(link);
    if (link->job_name[0] != '\0' || link->job == NULL)
        deed->job = link->job_name;
    else
        deed->job = ct_rdzv_name(link->job->core);
    service->io.audit(service->io.context, link->peer, deed);
}

static void tell_held(struct ct_service *service, struct ct_service_link *link, int code,
                      const char *text)
{
    struct ct_service_held *held = link->held;
    struct ct_service_deed deed = {.deed = held->deed,
                                   .is_order = true,
                                   .code = code,
                                   .text = text,
                                   .host = held->host,
                                   .author = held->author,
                                   .reason = held->reason};

    link->held = NULL;
    tell(service, link, &deed);
    free(held);
}

void ct_service_audit_order(struct ct_service *service, struct ct_service_link *link,
                            const char *deed, const struct ct_msg_admin *order)
{
    link->asks = deed;
    if (service->io.audit == NULL)
        return;
    ct_service_audit_left(service, link); /* one that was not answered before this one */
    link->held = calloc(1, sizeof *link->held);
    if (link->held == NULL) /* it is told when it is answered, without its words */
        return;
    link->held->deed = deed;
    (void)ct_str_copy(link->held->host, sizeof link->held->host, order->host);
    (void)ct_str_copy(link->held->author, sizeof link->held->author, order->author);
    (void)ct_str_copy(link->held->reason, sizeof link->held->reason, order->reason);
}

void ct_service_audit_answer(struct ct_service *service, struct ct_service_link *link, int code,
                             const char *text)
{
    struct ct_service_deed deed = {.deed = link->asks, .code = code, .text = text};

    if (service->io.audit == NULL)
        return;
    if (link->held != NULL)
        tell_held(service, link, code, text);
    else if (code != 0)
        tell(service, link, &deed);
}

void ct_service_audit_refusal(struct ct_service *service, uint64_t link, int code,
                              const char *sentence)
{
    const struct ct_service_link *of = ct_service_link_of(service, link);
    struct ct_service_deed deed = {.deed = "join", .code = code, .text = sentence};

    if (service->io.audit == NULL || of == NULL)
        return;
    if (of->asks != NULL)
        deed.deed = of->asks;
    tell(service, of, &deed);
}

void ct_service_audit_deinit(struct ct_service *service)
{
    for (uint32_t i = 0; i < service->link_room; i++)
        free(service->links[i].held);
}

void ct_service_audit_left(struct ct_service *service, struct ct_service_link *link)
{
    if (link->held != NULL)
        tell_held(service, link, CT_ECLOSED, "carried out; who gave it left before the answer");
}
