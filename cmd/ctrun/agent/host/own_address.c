/* See own_address.h. */
#include "own_address.h"

#include "base/assert.h"
#include "base/str.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool own_source(const struct sockaddr *to, char text[CT_ADDRESS_TEXT])
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && connect(fd, to, ct_address_size(to)) == 0 &&
                 getsockname(fd, (struct sockaddr *)&from, &size) == 0;

    if (fd >= 0)
        (void)close(fd);
    if (found)
        (void)ct_address_host((const struct sockaddr *)&from, text);
    return found;
}

void own_interface(char text[CT_ADDRESS_TEXT])
{
    struct ifaddrs *list;

    (void)ct_str_copy(text, CT_ADDRESS_TEXT, "127.0.0.1");
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET ||
            (at->ifa_flags & IFF_LOOPBACK) || !(at->ifa_flags & IFF_UP))
            continue;
        (void)ct_address_host(at->ifa_addr, text);
        break;
    }
    freeifaddrs(list);
}

/* The address that the user gave, in digits: a name that is good here may mean nothing elsewhere.
 */
static int resolve_own(const char *given, char text[CT_ADDRESS_TEXT], struct ct_error *err)
{
    struct sockaddr_storage numeric[2];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;

    if (ct_address_numeric(given, 0, numeric) > 0) {
        (void)ct_address_host((const struct sockaddr *)&numeric[0], text);
        return 0;
    }
    int rc = getaddrinfo(given, NULL, &hints, &found);
    if (rc != 0)
        return ct_error_set(err, CT_EUSAGE,
                            "local_addr \"%s\" cannot be resolved here: %s; give the address",
                            given, gai_strerror(rc));
    (void)ct_address_host(found->ai_addr, text);
    freeaddrinfo(found);
    return 0;
}

int own_address(const struct ct_endpoint *endpoint, const struct job *job,
                char text[CT_ADDRESS_TEXT], struct ct_error *err)
{
    struct sockaddr_storage numeric[2];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    bool ok;

    if (job->cfg.launch.local_addr[0] != '\0')
        return resolve_own(job->cfg.launch.local_addr, text, err);
    if (endpoint->is_unix || endpoint->host[0] == '\0') {
        own_interface(text);
        return 0;
    }
    if (ct_address_numeric(endpoint->host, 1, numeric) > 0) {
        ok = own_source((const struct sockaddr *)&numeric[0], text);
    } else {
        int rc = getaddrinfo(endpoint->host, "1", &hints, &found);

        if (rc != 0)
            return ct_error_set(err, CT_EUSAGE,
                                "the host \"%s\" of rdzv_endpoint cannot be resolved here: %s; "
                                "give its address",
                                endpoint->host, gai_strerror(rc));
        ok = own_source(found->ai_addr, text);
        freeaddrinfo(found);
    }
    if (!ok)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "there is no route from here to %s, the host of rdzv_endpoint: %s",
                            endpoint->host, ct_strerror(-errno));
    return 0;
}

bool own_is_here(const struct ct_endpoint *endpoint)
{
    struct sockaddr_storage numeric[2];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    const struct sockaddr *address = (const struct sockaddr *)&numeric[0];
    char theirs[CT_ADDRESS_TEXT], ours[CT_ADDRESS_TEXT];

    if (endpoint->is_unix || endpoint->host[0] == '\0')
        return true;
    if (ct_address_numeric(endpoint->host, 1, numeric) == 0) {
        if (getaddrinfo(endpoint->host, "1", &hints, &found) != 0)
            return false;
        address = found->ai_addr;
    }
    bool is_here =
        ct_address_is_loopback(address) ||
        (own_source(address, ours) && strcmp(ct_address_host(address, theirs), ours) == 0);
    if (found != NULL)
        freeaddrinfo(found);
    return is_here;
}
