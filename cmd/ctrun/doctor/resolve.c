/* Names within a time: glibc's own resolver threads (getaddrinfo_a), which a process need not wait
 * for when it ends. libuv's are joined then, and a name server that is silent takes half a minute.
 */
#include "cmd/ctrun/doctor/look.h"

#include "base/clock.h"
#include "base/str.h"
#include "net/address.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep(struct doctor_resolution *name, const struct addrinfo *list)
{
    struct doctor_lookup *to = name->lookup;
    char text[CT_ADDRESS_TEXT];

    to->loopback = true;
    for (; list != NULL && to->count < DOCTOR_ADDRESSES; list = list->ai_next) {
        if (list->ai_family != AF_INET && list->ai_family != AF_INET6)
            continue;
        struct sockaddr_storage *at = &name->at[to->count++];

        memcpy(at, list->ai_addr, list->ai_addrlen);
        ((struct sockaddr_in *)(void *)at)->sin_port = htons(name->port); /* IPv6: the same place */
        to->loopback &= ct_address_is_loopback((const struct sockaddr *)at);
        if (to->count == 1)
            (void)ct_str_copy(to->first, sizeof to->first,
                              ct_address_host((const struct sockaddr *)at, text));
    }
    if (to->count == 0)
        (void)ct_str_copy(to->failure, sizeof to->failure, "it has no address");
}

/* Wait until all are known or the time is over. */
static void await(struct gaicb *const *asked, size_t count, unsigned limit_ms)
{
    uint64_t end_ms = ct_clock_mono_ms(&ct_clock_system) + limit_ms;

    for (;;) {
        uint64_t now_ms = ct_clock_mono_ms(&ct_clock_system);
        bool missing = false;

        for (size_t i = 0; i < count; i++)
            missing |= gai_error(asked[i]) == EAI_INPROGRESS;
        if (!missing || now_ms >= end_ms)
            return;
        const struct timespec left = {.tv_sec = (time_t)((end_ms - now_ms) / 1000),
                                      .tv_nsec = (long)((end_ms - now_ms) % 1000 * 1000000)};
        (void)gai_suspend((const struct gaicb *const *)asked, (int)count, &left);
    }
}

void doctor_resolve(struct doctor_resolution *names, size_t count, unsigned limit_ms)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct gaicb **asked = calloc(count, sizeof(void *));
    struct gaicb *requests = calloc(count, sizeof *requests);
    bool begun = asked != NULL && requests != NULL;
    bool late = false;

    for (size_t i = 0; i < count && begun; i++) {
        asked[i] = &requests[i];
        requests[i].ar_name = names[i].lookup->name;
        requests[i].ar_request = &hints;
    }
    begun = begun && getaddrinfo_a(GAI_NOWAIT, asked, (int)count, NULL) == 0;
    if (begun)
        await(asked, count, limit_ms);
    for (size_t i = 0; i < count; i++) {
        struct doctor_lookup *to = names[i].lookup;
        int status = begun ? gai_error(asked[i]) : EAI_MEMORY;

        if (status == EAI_INPROGRESS && gai_cancel(asked[i]) != EAI_CANCELED) {
            late = true;
            (void)snprintf(to->failure, sizeof to->failure, "no name server answers within %u ms",
                           limit_ms);
        } else if (status != 0) {
            (void)ct_str_copy(to->failure, sizeof to->failure, gai_strerror(status));
        } else {
            keep(&names[i], requests[i].ar_result);
            freeaddrinfo(requests[i].ar_result);
        }
    }
    free(asked);
    if (!late) /* else a thread of glibc's still writes there */
        free(requests);
}
