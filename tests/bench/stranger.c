/* A stranger on this network namespace: finds each TCP listener in /proc/net/tcp, keeps 64
 * connections open at it, every other one with some garbage, and comes again when hung up on.
 *
 * usage: stranger SECONDS (scripts/bench/crowd runs it beside jobs) */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 64, LISTENERS = 256, LOOK_MS = 10, LISTEN = 0x0a };

static struct listener {
    struct sockaddr_in address;
    struct pollfd fds[CONNECTIONS];
} listeners[LISTENERS];
static int count;
static unsigned long dialled;

static struct listener *find(struct in_addr host, in_port_t port)
{
    for (int i = 0; i < count; i++)
        if (listeners[i].address.sin_port == port &&
            listeners[i].address.sin_addr.s_addr == host.s_addr)
            return &listeners[i];
    return NULL;
}

static void add(struct in_addr host, in_port_t port)
{
    if (count == LISTENERS || find(host, port) != NULL)
        return;
    struct listener *new = &listeners[count++];
    new->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = host, .sin_port = port};
    for (int i = 0; i < CONNECTIONS; i++)
        new->fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
}

static void drop(int index)
{
    for (int i = 0; i < CONNECTIONS; i++)
        if (listeners[index].fds[i].fd >= 0)
            (void)close(listeners[index].fds[i].fd);
    listeners[index] = listeners[--count];
}

/* Forget those that are gone, learn of those that are new. */
static void look(void)
{
    FILE *file = fopen("/proc/net/tcp", "re");
    static bool seen[LISTENERS];
    char line[256];
    unsigned host, port, state;

    for (int i = 0; i < LISTENERS; i++)
        seen[i] = false;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, " %*d: %8x:%4x %*8x:%*4x %2x", &host, &port, &state) != 3 ||
            state != LISTEN)
            continue;
        add((struct in_addr){host}, htons((uint16_t)port));
        struct listener *known = find((struct in_addr){host}, htons((uint16_t)port));
        if (known != NULL)
            seen[known - listeners] = true;
    }
    if (file != NULL)
        (void)fclose(file);
    for (int i = count - 1; i >= 0; i--)
        if (!seen[i])
            drop(i);
}

static void crowd(struct listener *listener)
{
    (void)poll(listener->fds, CONNECTIONS, 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct pollfd *at = &listener->fds[i];
        char byte;

        if (at->fd >= 0 && (at->revents == 0 || recv(at->fd, &byte, 1, MSG_DONTWAIT) > 0))
            continue;
        if (at->fd >= 0)
            (void)close(at->fd);
        at->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (at->fd < 0)
            return;
        (void)connect(at->fd, (struct sockaddr *)&listener->address, sizeof listener->address);
        if (i % 2 == 0)
            (void)send(at->fd, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL | MSG_DONTWAIT);
        dialled++;
    }
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc == 2 ? atoi(argv[1]) : 0);

    if (argc != 2) {
        (void)fprintf(stderr, "usage: stranger SECONDS\n");
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (time(NULL) < end) {
        look();
        for (int i = 0; i < count; i++)
            crowd(&listeners[i]);
        (void)poll(NULL, 0, LOOK_MS);
    }
    (void)printf("stranger: %lu connections\n", dialled);
    return 0;
}
