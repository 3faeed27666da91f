/* See fake.h. A communicator's ranks share a file in /dev/shm, which has no name any more once all
 * have it. Counters in it tell how far each is; who waits looks again and again. */
#include "fake.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CHANNEL_BYTES = 4096 };

/* The notes of a rank, alternating between two places: it writes the next only after it has read
 * the last of the others. */
struct note_pair {
    _Atomic uint64_t number;
    struct fake_note notes[2];
};

struct seat {
    _Alignas(64) _Atomic uint64_t in, out; /* meetings this rank has put into, has taken from */
    struct note_pair note_pair[FAKE_TOPICS];
    char slot[FAKE_SLOT_BYTES];
};

/* From one rank to another. */
struct channel {
    _Alignas(64) _Atomic uint64_t sent, taken;
    uint32_t bytes;
    char data[CHANNEL_BYTES];
};

struct head {
    _Atomic int joined, finished;
    _Alignas(64) struct seat seats[FAKE_RANKS_MAX];
};

struct fake_world {
    struct head *head;
    struct channel *channels; /* [from][to] */
    size_t bytes;
    int rank, size;
    uint64_t meetings;
    char path[CT_NCCL_ID_BYTES + 32];
};

struct fake_world *fake_world_join(const struct ct_nccl_id *id, int rank, int size)
{
    struct fake_world *world = calloc(1, sizeof *world);

    if (world == NULL || size > FAKE_RANKS_MAX)
        abort();
    (void)snprintf(world->path, sizeof world->path, "/dev/shm/%.*s", CT_NCCL_ID_BYTES,
                   id->internal);
    size_t channels = (size_t)size * (size_t)size;
    world->bytes = sizeof *world->head + channels * sizeof(struct channel);
    world->rank = rank;
    world->size = size;
    int fd = open(world->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)world->bytes) != 0)
        abort();
    void *memory = mmap(NULL, world->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (memory == MAP_FAILED)
        abort();
    world->head = memory;
    world->channels = (struct channel *)(void *)((char *)memory + sizeof *world->head);
    if (atomic_fetch_add(&world->head->joined, 1) + 1 == size)
        (void)unlink(world->path);
    return world;
}

void fake_world_leave(struct fake_world *world)
{
    if (!fake_world_is_full(world))
        (void)unlink(world->path);
    (void)munmap(world->head, world->bytes);
    free(world);
}

bool fake_world_is_full(const struct fake_world *world)
{
    return atomic_load(&world->head->joined) >= world->size;
}

void fake_world_set_finished(struct fake_world *world)
{
    (void)atomic_fetch_add(&world->head->finished, 1);
}

bool fake_world_is_finished(const struct fake_world *world)
{
    return atomic_load(&world->head->finished) >= world->size;
}

/* ---- meetings --------------------------------------------------------------------------------*/

void fake_park(long ns)
{
    (void)ppoll(NULL, 0, &(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

static void poll_again(int polls)
{
    if (polls < 50)
        (void)sched_yield();
    else
        fake_park(20000);
}

static uint64_t counter_of(struct fake_world *world, int rank, bool out)
{
    struct seat *seat = &world->head->seats[rank];

    return atomic_load(out ? &seat->out : &seat->in);
}

/* Until all have put in, or taken out, `number` times. */
static bool await_all(struct fake_world *world, bool out, uint64_t number, const atomic_bool *stop)
{
    for (int rank = 0; rank < world->size; rank++)
        for (int polls = 0; counter_of(world, rank, out) < number; polls++) {
            if (atomic_load(stop))
                return false;
            poll_again(polls);
        }
    return true;
}

bool fake_world_exchange(struct fake_world *world, const struct fake_part *part,
                         const atomic_bool *stop)
{
    struct seat *mine = &world->head->seats[world->rank];
    uint64_t number = ++world->meetings;
    char *slots[FAKE_RANKS_MAX];

    if (!await_all(world, true, number - 1, stop))
        return false;
    if (part->own != NULL)
        memcpy(mine->slot, part->own, part->bytes);
    atomic_store(&mine->in, number);
    if (!await_all(world, false, number, stop))
        return false;
    for (int rank = 0; rank < world->size; rank++)
        slots[rank] = world->head->seats[rank].slot;
    part->receive(part->context, slots, world->size);
    atomic_store(&mine->out, number);
    return true;
}

/* ---- notes -----------------------------------------------------------------------------------*/

void fake_world_note(struct fake_world *world, enum fake_topic topic, struct fake_note note)
{
    struct note_pair *mine = &world->head->seats[world->rank].note_pair[topic];
    uint64_t number = atomic_load(&mine->number) + 1;

    mine->notes[number % 2] = note;
    atomic_store(&mine->number, number);
}

bool fake_world_notes(const struct fake_world *world, enum fake_topic topic,
                      struct fake_note *notes)
{
    uint64_t number = atomic_load(&world->head->seats[world->rank].note_pair[topic].number);

    for (int i = 0; i < world->size; i++) {
        const struct note_pair *note_pair = &world->head->seats[i].note_pair[topic];

        if (atomic_load(&note_pair->number) < number)
            return false;
        notes[i] = note_pair->notes[number % 2];
    }
    return true;
}

/* ---- messages --------------------------------------------------------------------------------*/

bool fake_world_carry(struct fake_world *world, struct fake_message *message)
{
    int from = message->out ? world->rank : message->peer;
    int to = message->out ? message->peer : world->rank;
    struct channel *channel = &world->channels[from * world->size + to];
    uint64_t sent = atomic_load(&channel->sent), taken = atomic_load(&channel->taken);
    size_t rest = message->bytes - message->at;

    if (message->out && sent == taken && rest > 0) {
        channel->bytes = (uint32_t)(rest < CHANNEL_BYTES ? rest : CHANNEL_BYTES);
        memcpy(channel->data, message->data + message->at, channel->bytes);
        message->at += channel->bytes;
        atomic_store(&channel->sent, sent + 1);
    } else if (!message->out && sent > taken && rest > 0) {
        size_t bytes = channel->bytes < rest ? channel->bytes : rest;

        memcpy(message->data + message->at, channel->data, bytes);
        message->at += bytes;
        atomic_store(&channel->taken, taken + 1);
    }
    return message->at == message->bytes;
}
