/* See endpoint_list.h. */
#include "endpoint_list.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"
#include "own_address.h"
#include "rendezvous/client/endpoints.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEFAULT_PORT = 29400, ANSWER_MS = 300 };

int endpoint_list_read(const struct ct_config *cfg, struct ct_endpoint *ret_first,
                       char ret_list[ENDPOINT_LIST_BYTES], struct ct_error *err)
{
    const char *list = cfg->launch.rdzv_endpoint;
    int port = DEFAULT_PORT, rc = 0;
    size_t used = 0;

    if (list[0] == '\0') {
        list = cfg->launch.master_addr;
        port = (int)cfg->launch.master_port;
    }
    if (list[0] == '\0')
        return ct_error_set(err, CT_EUSAGE,
                            "%lld nodes need a place to meet: give all of them the same "
                            "--rdzv_endpoint HOST:PORT (HOST is one of them, or runs ctrund)",
                            (long long)cfg->launch.nnodes.max);
    do {
        char one[CT_ENDPOINT_TEXT];
        struct ct_endpoint endpoint = {.port = 0};

        ct_endpoint_next(&list, one);
        rc = ct_endpoint_parse(one, port, &endpoint, err);
        if (rc != 0)
            return rc;
        (void)ct_endpoint_print(&endpoint, one);
        if (used + strlen(one) + 2 > ENDPOINT_LIST_BYTES)
            return ct_error_set(err, CT_EUSAGE, "rdzv_endpoint names too many endpoints");
        if (used == 0)
            *ret_first = endpoint;
        used += (size_t)snprintf(ret_list + used, ENDPOINT_LIST_BYTES - used, "%s%s",
                                 used > 0 ? "," : "", one);
    } while (*list != '\0');
    return 0;
}

int endpoint_list_own(const char *list, char ret_own[CT_ENDPOINT_TEXT])
{
    struct ct_endpoint endpoint;

    for (int i = 0; *list != '\0'; i++) {
        ct_endpoint_next(&list, ret_own);
        if (ct_endpoint_parse(ret_own, -1, &endpoint, NULL) == 0 && own_is_here(&endpoint))
            return i;
    }
    ret_own[0] = '\0';
    return -1;
}

/* A connection that is begun; -1: nobody can be there. */
static int dial(const char *text)
{
    struct ct_endpoint endpoint;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char port[8];
    int fd;

    if (ct_endpoint_parse(text, -1, &endpoint, NULL) != 0 || endpoint.is_unix)
        return -1;
    (void)snprintf(port, sizeof port, "%u", endpoint.port);
    if (getaddrinfo(endpoint.host, port, &hints, &found) != 0)
        return -1;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
        (void)close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static bool is_open(int fd)
{
    int code = 0;
    socklen_t size = sizeof code;

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 && code == 0;
}

/* The first of `count` that opens; those that failed are left out from then on. */
static bool any_opens(struct pollfd *fds, nfds_t count)
{
    uint64_t until_ms = ct_clock_mono_ms(&ct_clock_system) + ANSWER_MS, now_ms;
    nfds_t left = count;

    while (left > 0 && (now_ms = ct_clock_mono_ms(&ct_clock_system)) < until_ms) {
        if (poll(fds, count, (int)(until_ms - now_ms)) < 0 && errno != EINTR)
            return false;
        for (nfds_t i = 0; i < count; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0)
                continue;
            if (is_open(fds[i].fd))
                return true;
            (void)close(fds[i].fd);
            fds[i].fd = -1;
            left--;
        }
    }
    return false;
}

bool endpoint_list_answers(const char *list)
{
    struct pollfd fds[CT_ENDPOINTS_GIVEN];
    nfds_t count = 0;
    char one[CT_ENDPOINT_TEXT];
    bool answers;

    ct_endpoint_next(&list, one);
    while (*list != '\0' && count < CT_ENDPOINTS_GIVEN) {
        ct_endpoint_next(&list, one);
        fds[count] = (struct pollfd){.fd = dial(one), .events = POLLOUT};
        count += fds[count].fd >= 0;
    }
    answers = any_opens(fds, count);
    for (nfds_t i = 0; i < count; i++)
        if (fds[i].fd >= 0)
            (void)close(fds[i].fd);
    return answers;
}

void endpoint_list_set_first(char list[ENDPOINT_LIST_BYTES], const char *first)
{
    char others[ENDPOINT_LIST_BYTES];
    const char *comma = strchr(list, ',');

    (void)ct_str_copy(others, sizeof others, comma != NULL ? comma : "");
    if (strlen(first) + strlen(others) >= ENDPOINT_LIST_BYTES)
        others[0] = '\0';
    (void)snprintf(list, ENDPOINT_LIST_BYTES, "%s%s", first, others);
}
