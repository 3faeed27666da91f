/* Fuzz: a TCPStore with three clients whose bytes arrive in arbitrary pieces, take turns, leave and
 * come again.
 *
 * The input is a list of chunks: a byte that says who (bits 0, 1), what happens (bits 2, 3: bytes
 * come; time passes; answers are taken slowly; the client is replaced) and, for bytes, how many
 * follow (bits 4 to 7, times 4, plus 1). The budget is small, so that its end is met. */
#include "base/assert.h"
#include "rendezvous/tcpstore/tcpstore.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 3, COME = 0, PASS = 1, TAKE = 2, REPLACE = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
    struct ct_tcpstore *store;
    struct ct_tcpstore_client *clients[CLIENTS];
    uint64_t now_ms;
};

static void join(struct world *world, size_t which)
{
    static const char *const hosts[CLIENTS] = {"10.0.0.1", "10.0.0.1", "10.0.0.2"};

    world->clients[which] =
        ct_tcpstore_join(world->store, world->now_ms, hosts[which], &world->clients[which], NULL);
}

static void leave(struct world *world, size_t which)
{
    if (world->clients[which] != NULL)
        ct_tcpstore_leave(world->clients[which]);
    world->clients[which] = NULL;
}

/* Send at most `most` bytes of everybody who is ready; who is broken leaves. */
static void collect(struct world *world, size_t most)
{
    struct ct_tcpstore_client *client;

    while ((client = ct_tcpstore_next_ready(world->store)) != NULL) {
        struct ct_tcpstore_client **at = ct_tcpstore_about(client).user;
        CT_ASSERT(*at == client);
        if (ct_tcpstore_broken(client) != NULL) {
            CT_ASSERT(ct_tcpstore_broken(client)->text[0] != '\0');
            leave(world, (size_t)(at - world->clients));
            continue;
        }
        size_t left = most;
        for (struct ct_tcpstore_bytes out = ct_tcpstore_output(client); out.size > 0 && left > 0;
             out = ct_tcpstore_output(client)) {
            size_t taken = CT_MIN(out.size, left);
            left -= taken;
            ct_tcpstore_sent(client, world->now_ms, taken);
        }
    }
}

static void come(struct world *world, size_t which, const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1); /* reading beyond it is seen */

    if (world->clients[which] != NULL && copy != NULL) {
        memcpy(copy, bytes, size);
        ct_tcpstore_input(world->clients[which], world->now_ms, copy, size);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct ct_tcpstore_limits limits = {.keys = 64, .bytes = 256 << 10, .silent = 2};
    struct world world = {.store = ct_tcpstore_new(&limits)};
    struct ct_buf text = {0};

    if (world.store == NULL)
        return 0;
    for (size_t i = 0; i < CLIENTS; i++)
        join(&world, i);
    for (size_t at = 0; at < size;) {
        uint8_t head = data[at++];
        size_t which = (head & 3u) % CLIENTS;
        size_t follow = 0;
        switch (head >> 2 & 3) {
        case COME:
            follow = CT_MIN((size_t)(head >> 4) * 4 + 1, size - at);
            come(&world, which, data + at, follow);
            collect(&world, SIZE_MAX);
            break;
        case PASS:
            world.now_ms += (uint64_t)(head >> 4) * 1000;
            ct_tcpstore_tick(world.store, world.now_ms);
            (void)ct_tcpstore_admit(world.store, world.now_ms);
            collect(&world, SIZE_MAX);
            break;
        case TAKE:
            collect(&world, head >> 4);
            break;
        default:
            leave(&world, which);
            join(&world, which);
        }
        at += follow;
        (void)ct_tcpstore_print_waits(world.store,
                                      &(struct ct_tcpstore_waits){.now_ms = world.now_ms}, &text);
        ct_buf_clear(&text);
    }
    for (size_t i = 0; i < CLIENTS; i++)
        leave(&world, i);
    ct_tcpstore_free(world.store); /* asserts that nothing stays charged */
    ct_buf_deinit(&text);
    return 0;
}
