/* See relay.h. The thread looks each TICK_MS, or at once when something comes:
 *
 *      accept -> a line of two ways;  each way: read -> chunk with its time -> ... -> write
 *
 * A way that is full reads no more, so TCP slows its sender down. */
#include "cluster/relay.h"

#include "base/assert.h"
#include "cluster/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 29400, LINES = 8, CHUNKS = 64, CHUNK_BYTES = 2048, TICK_MS = 5 };

struct chunk {
    double due_s;
    size_t size; /* 0: the sender has ended */
    size_t sent;
    char data[CHUNK_BYTES];
};

/* What one side says to the other: a ring of chunks. */
struct way {
    int from, to;
    unsigned first, count;
    bool heard_end; /* nothing more comes */
    bool told_end;
    struct chunk chunks[CHUNKS];
};

struct line {
    bool in_use;
    struct way there, back;
};

static struct {
    pthread_t thread;
    bool runs;
    atomic_bool over;
    int listener;
    struct sockaddr_in to;
    double delay_s;
    struct line lines[LINES];
} relay;

static struct sockaddr_in address_of(const struct hosts *hosts, int host)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};

    (void)inet_pton(AF_INET, hosts_address(hosts, host), &address.sin_addr);
    return address;
}

/* ---- one way -------------------------------------------------------------------------------- */

/* Read what has come; a broken connection is an end. */
static void take(struct way *way)
{
    while (!way->heard_end && way->count < CHUNKS) {
        struct chunk *chunk = &way->chunks[(way->first + way->count) % CHUNKS];
        ssize_t got = recv(way->from, chunk->data, CHUNK_BYTES, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        chunk->size = got > 0 ? (size_t)got : 0;
        chunk->sent = 0;
        chunk->due_s = process_now_s() + relay.delay_s;
        way->count++;
        way->heard_end = chunk->size == 0;
    }
}

/* Write what has waited long enough. Nobody hears what a broken connection is told. */
static void give(struct way *way)
{
    while (way->count > 0) {
        struct chunk *chunk = &way->chunks[way->first];
        if (chunk->due_s > process_now_s())
            return;
        if (chunk->size == 0) {
            (void)shutdown(way->to, SHUT_WR);
            way->told_end = true;
        } else {
            ssize_t put = send(way->to, chunk->data + chunk->sent, chunk->size - chunk->sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
            if (put < 0 && (errno == EAGAIN || errno == EINTR))
                return;
            chunk->sent = put < 0 ? chunk->size : chunk->sent + (size_t)put;
            if (chunk->sent < chunk->size)
                return;
        }
        way->first = (way->first + 1) % CHUNKS;
        way->count--;
    }
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void hang_up(struct line *line)
{
    (void)close(line->there.from);
    (void)close(line->there.to);
    line->in_use = false;
}

/* A caller more than there are lines is turned away. */
static void pick_up(void)
{
    int caller = accept4(relay.listener, NULL, NULL, SOCK_CLOEXEC);
    struct line *line = relay.lines;

    if (caller < 0)
        return;
    while (line < relay.lines + LINES && line->in_use)
        line++;
    int called = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (line == relay.lines + LINES || called < 0) {
        (void)close(caller);
        (void)close(called);
        return;
    }
    /* It goes on by itself; until then there is nothing to read, and nothing can be written. */
    (void)connect(called, (const struct sockaddr *)&relay.to, sizeof relay.to);
    line->there = (struct way){.from = caller, .to = called};
    line->back = (struct way){.from = called, .to = caller};
    line->in_use = true;
}

/* Wait until something comes, or a tick is over. */
static bool wait_callers(void)
{
    struct pollfd fds[1 + 2 * LINES] = {{.fd = relay.listener, .events = POLLIN}};
    nfds_t count = 1;

    for (int i = 0; i < LINES; i++) {
        const struct way *ways[] = {&relay.lines[i].there, &relay.lines[i].back};
        for (int j = 0; relay.lines[i].in_use && j < 2; j++)
            if (!ways[j]->heard_end && ways[j]->count < CHUNKS)
                fds[count++] = (struct pollfd){.fd = ways[j]->from, .events = POLLIN};
    }
    (void)poll(fds, count, TICK_MS);
    return fds[0].revents != 0;
}

static void *serve(void *unused)
{
    while (!atomic_load(&relay.over)) {
        if (wait_callers())
            pick_up();
        for (struct line *line = relay.lines; line < relay.lines + LINES; line++) {
            if (!line->in_use)
                continue;
            take(&line->there);
            take(&line->back);
            give(&line->there);
            give(&line->back);
            if (line->there.told_end && line->back.told_end)
                hang_up(line);
        }
    }
    return unused;
}

/* ---- from outside --------------------------------------------------------------------------- */

static bool open_listener(const struct hosts *hosts, int host)
{
    struct sockaddr_in own = address_of(hosts, host);
    int home = hosts_enter(hosts, host);

    if (home < 0)
        return false;
    relay.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool listens = relay.listener >= 0 &&
                   bind(relay.listener, (const struct sockaddr *)&own, sizeof own) == 0 &&
                   listen(relay.listener, LINES) == 0 &&
                   pthread_create(&relay.thread, NULL, serve, NULL) == 0;
    if (!listens && relay.listener >= 0)
        (void)close(relay.listener);
    hosts_return(home);
    return listens;
}

const char *relay_start(const struct hosts *hosts, int host, int to, int delay_ms)
{
    static char endpoint[32];

    CT_ASSERT(!relay.runs);
    relay.to = address_of(hosts, to);
    relay.delay_s = delay_ms / 1e3;
    atomic_store(&relay.over, false);
    if (!open_listener(hosts, host))
        return NULL;
    relay.runs = true;
    (void)snprintf(endpoint, sizeof endpoint, "%s:%d", hosts_address(hosts, host), PORT);
    return endpoint;
}

void relay_stop(void)
{
    if (!relay.runs)
        return;
    atomic_store(&relay.over, true);
    (void)pthread_join(relay.thread, NULL);
    for (int i = 0; i < LINES; i++)
        if (relay.lines[i].in_use)
            hang_up(&relay.lines[i]);
    (void)close(relay.listener);
    relay.runs = false;
}
