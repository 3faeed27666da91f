/* Addresses as text; see address.h. */
#include "net/address.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const struct sockaddr_in *as_v4(const struct sockaddr *address)
{
    return (const struct sockaddr_in *)(const void *)address;
}

static const struct sockaddr_in6 *as_v6(const struct sockaddr *address)
{
    return (const struct sockaddr_in6 *)(const void *)address;
}

const char *ct_address_host(const struct sockaddr *address, char text[CT_ADDRESS_TEXT])
{
    const void *bytes = &as_v4(address)->sin_addr;
    int family = AF_INET;

    if (address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &as_v6(address)->sin6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(v6);
        family = mapped ? AF_INET : AF_INET6;
        bytes = mapped ? (const void *)&v6->s6_addr[12] : v6;
    }
    if (inet_ntop(family, bytes, text, CT_ADDRESS_TEXT) == NULL)
        snprintf(text, CT_ADDRESS_TEXT, "?");
    return text;
}

const char *ct_address_print(const struct sockaddr *address, char text[CT_ADDRESS_TEXT])
{
    char host[CT_ADDRESS_TEXT];
    unsigned port = ct_address_port(address);

    if (strchr(ct_address_host(address, host), ':') != NULL)
        snprintf(text, CT_ADDRESS_TEXT, "[%.45s]:%u", host, port);
    else
        snprintf(text, CT_ADDRESS_TEXT, "%.45s:%u", host, port);
    return text;
}

void ct_address_print_peer(int fd, char text[CT_ADDRESS_TEXT])
{
    struct sockaddr_storage address;
    socklen_t size = sizeof(address);

    memset(&address, 0, sizeof(address));
    text[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&address, &size) != 0)
        return;
    if (address.ss_family == AF_UNIX)
        (void)ct_str_copy(text, CT_ADDRESS_TEXT, "unix");
    else
        (void)ct_address_print((const struct sockaddr *)&address, text);
}

uint16_t ct_address_port(const struct sockaddr *address)
{
    /* sin_port and sin6_port lie at the same place. */
    return ntohs(as_v4(address)->sin_port);
}

socklen_t ct_address_size(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

bool ct_address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(as_v4(address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &as_v6(address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

int ct_address_numeric(const char *host, uint16_t port, struct sockaddr_storage ret_addresses[2])
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool local = strcmp(host, "localhost") == 0;
    int count = 0;

    if (inet_pton(AF_INET, local ? "127.0.0.1" : host, &v4.sin_addr) == 1)
        memcpy(&ret_addresses[count++], &v4, sizeof(v4));
    if (inet_pton(AF_INET6, local ? "::1" : host, &v6.sin6_addr) == 1)
        memcpy(&ret_addresses[count++], &v6, sizeof(v6));
    return count;
}

const char *ct_address_network(const char *peer, char text[CT_ADDRESS_TEXT])
{
    struct in6_addr v6;
    struct in_addr v4;
    char host[CT_ADDRESS_TEXT];
    const char *colon = strrchr(peer, ':');
    bool is_v6 = peer[0] == '[' && colon != NULL && colon[-1] == ']';
    size_t size = colon != NULL ? (size_t)(colon - peer) : strlen(peer);

    snprintf(host, sizeof(host), "%.*s", (int)(size - 2 * is_v6), peer + is_v6);
    if (is_v6 && inet_pton(AF_INET6, host, &v6) == 1) {
        memset(&v6.s6_addr[8], 0, 8);
        (void)inet_ntop(AF_INET6, &v6, host, sizeof(host));
        snprintf(text, CT_ADDRESS_TEXT, "%.45s/64", host);
    } else if (inet_pton(AF_INET, host, &v4) == 1) {
        snprintf(text, CT_ADDRESS_TEXT, "%s", host);
    } else {
        snprintf(text, CT_ADDRESS_TEXT, "%s", peer);
    }
    return text;
}

uint64_t ct_address_account(const struct sockaddr_storage *address)
{
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;

    memcpy(&v6, address, sizeof(v6));
    memcpy(&v4, address, sizeof(v4));
    if (address->ss_family != AF_INET6)
        return ct_hash64(&v4.sin_addr, sizeof(v4.sin_addr), AF_INET);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        return ct_hash64(&v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr), AF_INET);
    return ct_hash64(&v6.sin6_addr, 8, AF_INET6);
}
