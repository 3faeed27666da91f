/* Binding a socket; see ct_address_bind in address.h. */
#include "net/address.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { ADDRESSES = 16 };

/* ---- AF_UNIX ---- */

/* The directory of `path`: made closed to others, or found so. */
static int check_directory(const char *path, struct ct_error *err)
{
    char directory[CT_ENDPOINT_PATH] = ".";
    const char *slash = strrchr(path, '/');
    struct stat stat_of;

    if (slash != NULL)
        snprintf(directory, sizeof(directory), "%.*s", slash == path ? 1 : (int)(slash - path),
                 path);
    if (mkdir(directory, 0700) == 0)
        return 0;
    if (errno != EEXIST)
        return ct_error_set(err, CT_ECANTCREAT, "cannot make directory %s for a socket: %s",
                            directory, strerror(errno));
    if (stat(directory, &stat_of) != 0 || !S_ISDIR(stat_of.st_mode))
        return ct_error_set(err, CT_ECANTCREAT, "%s is no directory for a socket", directory);
    if (stat_of.st_uid != geteuid() || (stat_of.st_mode & 077) != 0)
        return ct_error_set(err, CT_ECANTCREAT,
                            "directory %s (owner %u, mode %04o) is open to others, who could "
                            "connect to a socket in it: chown it to you and chmod 700 %s",
                            directory, (unsigned)stat_of.st_uid,
                            (unsigned)(stat_of.st_mode & 07777), directory);
    return 0;
}

/* Does somebody listen on the socket file that is in the way? */
static bool is_alive(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return true;
    int result = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    bool alive = result == 0 || errno != ECONNREFUSED;
    close(fd);
    return alive;
}

static int bind_unix(const struct ct_endpoint *endpoint, int *ret_fd, struct ct_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int code = check_directory(endpoint->path, err);

    if (code != 0)
        return code;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", endpoint->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ct_error_set(err, -errno, "cannot open a socket: %s", strerror(errno));
    int result = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    if (result != 0 && errno == EADDRINUSE && !is_alive(&address)) {
        unlink(endpoint->path); /* left behind by a process that was killed */
        result = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    }
    if (result == 0) {
        *ret_fd = fd;
        return 0;
    }
    code = errno == EADDRINUSE
               ? ct_error_set(err, CT_EINUSE, "somebody listens on %s already", endpoint->path)
               : ct_error_set(err, CT_ECANTCREAT, "cannot make socket %s: %s", endpoint->path,
                              strerror(errno));
    close(fd);
    return code;
}

/* ---- TCP ---- */

/* All addresses of the endpoint's host, in order of preference; their number. */
static int find_addresses(const struct ct_endpoint *endpoint,
                          struct sockaddr_storage addresses[ADDRESSES], struct ct_error *err)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int count;

    if (endpoint->host[0] == '\0') { /* every interface: IPv6 with IPv4 inside, or IPv4 alone */
        count = ct_address_numeric("::", endpoint->port, addresses);
        return count + ct_address_numeric("0.0.0.0", endpoint->port, addresses + count);
    }
    count = ct_address_numeric(endpoint->host, endpoint->port, addresses);
    if (count > 0)
        return count;
    int result = getaddrinfo(endpoint->host, NULL, &hints, &list);
    if (result != 0)
        return ct_error_set(err, CT_EUSAGE, "cannot listen on %s: the name does not resolve (%s)",
                            endpoint->host, gai_strerror(result));
    for (struct addrinfo *at = list; at != NULL && count < ADDRESSES; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
            continue;
        memcpy(&addresses[count], at->ai_addr, at->ai_addrlen);
        ((struct sockaddr_in *)&addresses[count])->sin_port = htons(endpoint->port);
        count++;
    }
    freeaddrinfo(list);
    return count;
}

static int bind_address(const struct sockaddr *address, int *ret_fd)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* TIME_WAIT is no obstacle */
    if (address->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    /* With SO_REUSEADDR two may bind; only listen tells that the port is taken. */
    if (bind(fd, address, ct_address_size(address)) != 0 || listen(fd, 0) != 0) {
        int code = -errno;
        close(fd);
        return code;
    }
    *ret_fd = fd;
    return 0;
}

static int refuse_bind(const char *where, int code, struct ct_error *err)
{
    switch (code) {
    case -EADDRINUSE:
        return ct_error_set(err, CT_EINUSE,
                            "cannot listen on %s: the port is in use; give another, or 0 for any "
                            "free one",
                            where);
    case -EADDRNOTAVAIL:
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "cannot listen on %s: that is no address of this machine", where);
    case -EACCES:
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "cannot listen on %s: ports below 1024 are the system's", where);
    default:
        return ct_error_set(err, CT_EUNAVAILABLE, "cannot listen on %s: %s", where,
                            strerror(-code));
    }
}

static int bind_tcp(const struct ct_endpoint *endpoint, bool open_to_all, int *ret_fd,
                    struct ct_error *err)
{
    struct sockaddr_storage addresses[ADDRESSES];
    int count = find_addresses(endpoint, addresses, err), code = -EADDRNOTAVAIL;
    char where[CT_ENDPOINT_TEXT];

    if (count < 0)
        return count;
    ct_endpoint_print(endpoint, where);
    for (int i = 0; i < count; i++) {
        const struct sockaddr *address = (const struct sockaddr *)&addresses[i];
        if (!open_to_all && !ct_address_is_loopback(address))
            return ct_error_set(err, CT_EAUTH,
                                "refusing to listen on %s without a key: others can reach it; make "
                                "a key with `ctrun key new FILE` and pass --key_file FILE on every "
                                "node",
                                where);
        code = bind_address(address, ret_fd);
        if (code == 0 || code == -EADDRINUSE)
            break;
    }
    return code == 0 ? 0 : refuse_bind(where, code, err);
}

int ct_address_bind(const struct ct_endpoint *endpoint, bool open_to_all, int *ret_fd,
                    struct ct_endpoint *ret_bound, struct ct_error *err)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof(address);
    int fd = -1, code = endpoint->is_unix ? bind_unix(endpoint, &fd, err)
                                          : bind_tcp(endpoint, open_to_all, &fd, err);

    if (code != 0)
        return code;
    *ret_bound = *endpoint;
    if (!endpoint->is_unix) {
        code = getsockname(fd, (struct sockaddr *)&address, &size);
        CT_ASSERT(code == 0);
        ret_bound->port = ct_address_port((const struct sockaddr *)&address);
    }
    *ret_fd = fd;
    return 0;
}
