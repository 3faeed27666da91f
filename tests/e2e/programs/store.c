/* A client of PyTorch's store at MASTER_ADDR:MASTER_PORT, for scripts (protocol of 2.5 and later):
 *
 *     store COMMAND ...            set KEY VALUE, get KEY, add KEY N, wait KEY or keys, one after
 *                                  the other; prints the answers
 *     store idle N [COMMAND ...]   with N connections that say nothing meanwhile
 *     store drip N [COMMAND ...]   with N connections inside a handshake or a value; these get a
 *                                  byte now and then, until all of the former are closed
 *     store raw HEX                send these bytes; prints what comes until the other side ends
 *
 * `get` and `wait` wait for the key. Exit status 0, or 1 when the connection ended. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { VALIDATE = 0, SET = 1, GET = 3, ADD = 4, WAIT = 6, GETNUMKEYS = 7, PING = 13 };

struct request {
    unsigned char bytes[4096];
    size_t size;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int dial(void)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    struct sockaddr_in to = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (host == NULL || port == NULL || inet_pton(AF_INET, host, &to.sin_addr) != 1)
        fail("MASTER_ADDR, MASTER_PORT");
    to.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0)
        fail("connect");
    return fd;
}

/* Numbers travel in little-endian, as this machine has them. */
static void put(struct request *to, const void *data, size_t size)
{
    if (size > sizeof to->bytes - to->size)
        fail("a long word");
    memcpy(to->bytes + to->size, data, size);
    to->size += size;
}

static void put_code(struct request *to, unsigned char code)
{
    put(to, &code, 1);
}

static void put_number(struct request *to, int64_t number)
{
    put(to, &number, sizeof number);
}

static void put_text(struct request *to, const char *text)
{
    put_number(to, (int64_t)strlen(text));
    put(to, text, strlen(text));
}

static void send_it(int fd, const struct request *request)
{
    if (send(fd, request->bytes, request->size, MSG_NOSIGNAL) != (ssize_t)request->size)
        fail("send");
}

static void hear(int fd, void *data, size_t size)
{
    if (recv(fd, data, size, MSG_WAITALL) != (ssize_t)size)
        fail("the store ended the connection");
}

static int64_t hear_number(int fd)
{
    int64_t number;

    hear(fd, &number, sizeof number);
    return number;
}

static void greet(int fd)
{
    const uint32_t magic = 0x3C85F7CE, pid = (uint32_t)getpid();
    struct request request = {.size = 0};
    uint32_t echo;

    put_code(&request, VALIDATE);
    put(&request, &magic, sizeof magic);
    put_code(&request, PING);
    put(&request, &pid, sizeof pid);
    send_it(fd, &request);
    hear(fd, &echo, sizeof echo);
}

static void do_wait(int fd, const char *key)
{
    struct request request = {.size = 0};
    unsigned char answer;

    put_code(&request, WAIT);
    put_number(&request, 1);
    put_text(&request, key);
    send_it(fd, &request);
    hear(fd, &answer, 1);
}

static void do_get(int fd, const char *key)
{
    struct request request = {.size = 0};
    char value[4096];

    do_wait(fd, key);
    put_code(&request, GET);
    put_text(&request, key);
    send_it(fd, &request);
    int64_t size = hear_number(fd);
    if (size < 0 || size >= (int64_t)sizeof value)
        fail("a long value");
    hear(fd, value, (size_t)size);
    printf("%s=%.*s\n", key, (int)size, value);
}

static void raise_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

static void do_idle(const char *count)
{
    raise_limit();
    for (unsigned long left = strtoul(count, NULL, 10); left > 0; left--)
        (void)dial();
    printf("idle %s\n", count);
}

/* Every other connection in the middle of a handshake, the rest in that of a value. */
static int *begin_drip(size_t count)
{
    const unsigned char half_a_greeting = VALIDATE;
    struct request request = {.size = 0};
    int *fds = calloc(count, sizeof(*fds));

    if (fds == NULL)
        fail("memory");
    raise_limit();
    put_code(&request, SET);
    put_text(&request, "dripping");
    put_number(&request, 1 << 20);
    for (size_t i = 0; i < count; i++) {
        fds[i] = dial();
        if (i % 2 == 0) {
            (void)send(fds[i], &half_a_greeting, 1, MSG_NOSIGNAL);
            continue;
        }
        greet(fds[i]);
        send_it(fds[i], &request);
    }
    return fds;
}

static void drip(const int *fds, size_t count)
{
    size_t open = 0; /* the first that did not greet and is not closed */
    char byte;

    while (open < count) {
        for (size_t i = 1; i < count; i += 2)
            (void)send(fds[i], "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (open < count && recv(fds[open], &byte, 1, MSG_DONTWAIT) == 0)
            open += 2;
        struct pollfd next = {.fd = fds[open < count ? open : 0], .events = POLLIN};
        (void)poll(&next, 1, 10);
    }
    if (count > 0)
        printf("dripped %zu\n", count);
}

static void do_raw(const char *hex)
{
    struct request request = {.size = 0};
    unsigned char answer[256];
    int fd = dial();
    ssize_t count;

    for (; hex[0] != '\0' && hex[1] != '\0'; hex += 2) {
        const char digits[] = {hex[0], hex[1], '\0'};
        put_code(&request, (unsigned char)strtoul(digits, NULL, 16));
    }
    send_it(fd, &request);
    size_t size = 0;
    while ((count = recv(fd, answer, sizeof answer, 0)) > 0)
        size += (size_t)count;
    printf("ended after %zu bytes\n", size);
    close(fd);
}

/* Run the command at `words` on a connection that has greeted; how many words it took. */
static int run(int fd, char **words)
{
    struct request request = {.size = 0};

    if (strcmp(words[0], "keys") == 0) {
        put_code(&request, GETNUMKEYS);
        send_it(fd, &request);
        printf("keys=%lld\n", (long long)hear_number(fd));
        return 1;
    }
    if (words[1] == NULL)
        fail("a word is missing");
    if (strcmp(words[0], "wait") == 0) {
        do_wait(fd, words[1]);
        return 2;
    }
    if (strcmp(words[0], "get") == 0) {
        do_get(fd, words[1]);
        return 2;
    }
    if (words[2] == NULL)
        fail("a word is missing");
    bool adds = strcmp(words[0], "add") == 0;
    put_code(&request, adds ? ADD : SET);
    put_text(&request, words[1]);
    if (adds)
        put_number(&request, strtoll(words[2], NULL, 10));
    else
        put_text(&request, words[2]);
    send_it(fd, &request);
    if (adds)
        printf("%s=%lld\n", words[1], (long long)hear_number(fd));
    return 3;
}

int main(int argc, char **argv)
{
    size_t drips = 0;
    int *dripping = NULL;
    int at = 1;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 2 && strcmp(argv[1], "raw") == 0) {
        do_raw(argv[2]);
        return 0;
    }
    if (argc > 2 && strcmp(argv[1], "idle") == 0) {
        do_idle(argv[2]);
        at = 3;
    }
    if (argc > 3 && strcmp(argv[1], "drip") == 0) {
        drips = strtoul(argv[2], NULL, 10);
        dripping = begin_drip(drips);
        at = 3;
    }
    if (at >= argc)
        return 0;
    int fd = dial();
    greet(fd);
    while (at < argc)
        at += run(fd, argv + at);
    close(fd);
    drip(dripping, drips);
    free(dripping);
    return 0;
}
