/* See port.h. */
#include "port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

void port_release(struct port *port)
{
    if (port->fd >= 0)
        (void)close(port->fd);
    *port = (struct port){.fd = -1};
}

void port_renew(struct port *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    port_release(port); /* after the new socket exists, so that a new number is likely */
    if (fd < 0)
        return;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        (void)close(fd);
        return;
    }
    *port = (struct port){.fd = fd, .number = ntohs(address.sin_port)};
}
