/* See tcp_mesh.h: where a member listens, and the secrets of the group. */
#include "backend/tcp/tcp_mesh.h"

#include "base/assert.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static int os_error(struct ct_error *err, int code, const char *what, const char *address)
{
    return ct_error_set(err, code, "%s on address %s failed: %s", what, address,
                        strerrordesc_np(-code));
}

static bool one_node(const struct ct_setup *setup)
{
    for (int i = 1; i < setup->size; i++)
        if (ct_job_node(setup->job, setup->ranks[i]) != ct_job_node(setup->job, setup->ranks[0]))
            return false;
    return true;
}

/* Numbers as they are, names through the resolver. */
static int resolve(const char *address, struct addrinfo **ret_info, struct ct_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    int code = getaddrinfo(address, NULL, &hints, ret_info);

    if (code != 0) {
        hints.ai_flags = AI_PASSIVE;
        code = getaddrinfo(address, NULL, &hints, ret_info);
    }
    if (code != 0)
        return ct_error_set(err, CT_EUNAVAILABLE, "the node's address %s cannot be resolved: %s",
                            address, gai_strerror(code));
    return 0;
}

void ct_mesh_reuse_port(int fd)
{
    int yes = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

static int bind_and_listen(const char *address, const struct addrinfo *info,
                           struct ct_mesh_address *ret_address, struct ct_error *err)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof ret_address->socket;
    const char *what = "socket";
    int code;

    if (fd < 0)
        return os_error(err, -errno, what, address);
    ct_mesh_reuse_port(fd);
    what = "bind";
    code = bind(fd, info->ai_addr, info->ai_addrlen);
    if (code == 0) {
        what = "listen";
        code = listen(fd, SOMAXCONN);
    }
    if (code == 0) {
        what = "getsockname";
        code = getsockname(fd, (struct sockaddr *)&ret_address->socket, &size);
    }
    if (code != 0) {
        code = -errno;
        (void)close(fd);
        return os_error(err, code, what, address);
    }
    ret_address->socket_bytes = (uint8_t)size;
    return fd;
}

int ct_mesh_listen(const struct ct_setup *setup, struct ct_mesh_address *ret_address, int *ret_fd,
                   struct ct_error *err)
{
    const char *address = one_node(setup) ? "127.0.0.1" : setup->job->address;
    struct addrinfo *info = NULL;
    int code;

    if (*address == '\0')
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "rank %d's node has no address that other nodes can reach: give one "
                            "with --local-addr",
                            setup->ranks[setup->rank]);
    if (setup->rank == 0 &&
        (getrandom(ret_address->secret, CT_SECRET_BYTES, 0) != CT_SECRET_BYTES ||
         getrandom(ret_address->key, CT_SECRET_BYTES, 0) != CT_SECRET_BYTES))
        return os_error(err, -errno, "getrandom", address);
    code = resolve(address, &info, err);
    if (code != 0)
        return code;
    code = bind_and_listen(address, info, ret_address, err);
    freeaddrinfo(info);
    if (code < 0)
        return code;
    ret_address->encrypted = setup->encrypt;
    if (setup->rank == 0)
        ret_address->rails = (uint8_t)CT_MIN(setup->tuning.tcp_rails, (size_t)CT_RAILS_MAX);
    *ret_fd = code;
    return 0;
}
