/* See status.h. */
#include "cluster/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

bool status_get(const char *socket_path, const char *what, int patience_ms, char *text, size_t room)
{
    char request[96];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {patience_ms / 1000, patience_ms % 1000 * 1000};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t size = 0;

    text[0] = '\0';
    if (fd < 0)
        return false;
    (void)snprintf(request, sizeof request,
                   "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", what);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, request, strlen(request), MSG_NOSIGNAL) > 0) {
        ssize_t got;
        while (size + 1 < room && (got = read(fd, text + size, room - 1 - size)) > 0)
            size += (size_t)got;
    }
    text[size] = '\0';
    (void)close(fd);
    return size > 0;
}

double status_figure(const char *metrics, const char *name, double otherwise)
{
    size_t length = strlen(name);

    for (const char *line = metrics; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '{'))
            return strtod(line + length + strcspn(line + length, " "), NULL);
    }
    return otherwise;
}
