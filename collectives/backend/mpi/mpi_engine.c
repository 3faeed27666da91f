/* See mpi_engine.h. */
#include "backend/mpi/mpi_engine.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/number/hash.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STORE_TAG, END_TAG, SERIALIZED = 2, PAUSE_NS = 200000 };

/* A message of the engine's own, in flight. */
struct ct_mpi_own_message {
    struct ct_mpi_own_message *next;
    enum ct_mpi_own_kind kind;
    union ct_mpi_handle request;
    struct ct_mpi_entry *entry;
};

/* An entry of the store: "key", 0, value. All sends of it read the same memory. */
struct ct_mpi_entry {
    struct ct_mpi_entry *next; /* in the store, the newest first */
    int users;
    uint64_t hash; /* of the key */
    size_t bytes;
    char data[];
};

static int mpi_error(const struct ct_mpi *mpi, struct ct_error *err, const char *what, int code)
{
    char text[CT_MPI_TEXT_MAX];

    mpi->lib.abi->text(&mpi->lib, code, text);
    return ct_error_set(err, CT_EUNAVAILABLE, "%s: %s failed: %.200s", mpi->name, what, text);
}

/* ---- start and end ---------------------------------------------------------------------------*/

/* "Open MPI v4.1.4 (libmpi.so.40)" out of the first words of the library's own description. */
static void name_library(struct ct_mpi *mpi)
{
    char text[CT_MPI_TEXT_MAX];

    mpi->lib.abi->version(&mpi->lib, text);
    text[strcspn(text, ",\n")] = '\0';
    for (char *at = text; *at != '\0'; at++)
        *at = *at == '\t' ? ' ' : *at;
    const char *skip =
        ct_starts_with(text, "MPICH Version:") ? text + strlen("MPICH Version:") : NULL;
    if (skip != NULL)
        (void)snprintf(mpi->name, sizeof mpi->name, "MPICH %.40s (%.60s)", skip + strspn(skip, " "),
                       mpi->lib.file);
    else
        (void)snprintf(mpi->name, sizeof mpi->name, "%.60s (%.60s)", text, mpi->lib.file);
}

/* Is this the world that was launched? The library of another MPI takes each process for a world of
 * its own. */
static int check_world(const struct ct_mpi *mpi, const struct ct_mpi_launch *launch,
                       struct ct_error *err)
{
    if (launch->world != 0 && (mpi->world != launch->world || mpi->rank != launch->rank))
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "%s says rank %d of %d, but %s says rank %d of %d: it is not the "
                            "library of that launcher; name the right one in CTRUN_MPI",
                            launch->launcher, launch->rank, launch->world, mpi->name, mpi->rank,
                            mpi->world);
    return 0;
}

static int start(struct ct_mpi *mpi, struct ct_error *err)
{
    int level = 0, code = mpi->lib.abi->start(&mpi->lib, &level);

    if (code == 0)
        code = mpi->lib.abi->place(&mpi->lib, &mpi->rank, &mpi->world, &mpi->tag_max);
    if (code != 0)
        return mpi_error(mpi, err, "the start", code);
    if (level < SERIALIZED)
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "%s lets only one thread call it: a library with "
                            "MPI_THREAD_SERIALIZED is needed",
                            mpi->name);
    return 0;
}

static int exchange_hosts(struct ct_mpi *mpi, struct ct_error *err)
{
    char own[CT_MPI_HOST_MAX] = "";

    mpi->hosts = calloc((size_t)mpi->world, sizeof *mpi->hosts);
    if (mpi->hosts == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for %d ranks", mpi->world);
    (void)gethostname(own, sizeof own - 1);
    int code = mpi->lib.abi->gather(&mpi->lib, own, sizeof own, mpi->hosts);
    return code == 0 ? 0 : mpi_error(mpi, err, "MPI_Allgather", code);
}

int ct_mpi_open(const struct ct_mpi_launch *launch, struct ct_mpi **ret_mpi, struct ct_error *err)
{
    const char *file = getenv("CTRUN_MPI");
    struct ct_mpi *mpi = calloc(1, sizeof *mpi);
    int code;

    if (mpi == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for MPI");
    (void)pthread_mutex_init(&mpi->lock, NULL);
    code = ct_mpi_library_load(&mpi->lib, file != NULL && *file != '\0' ? file : NULL,
                               launch->open_mpi, err);
    if (code == 0) {
        name_library(mpi);
        code = start(mpi, err);
    }
    if (code == 0)
        code = check_world(mpi, launch, err);
    if (code == 0)
        code = exchange_hosts(mpi, err);
    if (code != 0) {
        ct_mpi_give_up(mpi);
        ct_mpi_close(mpi);
        return code;
    }
    *ret_mpi = mpi;
    return 0;
}

void ct_mpi_give_up(struct ct_mpi *mpi)
{
    (void)pthread_mutex_lock(&mpi->lock);
    mpi->given_up = true;
    (void)pthread_mutex_unlock(&mpi->lock);
}

/* ---- own messages, under the lock ------------------------------------------------------------*/

static void release_entry(struct ct_mpi_entry *entry)
{
    if (--entry->users == 0)
        free(entry);
}

static struct ct_mpi_entry *new_entry(size_t bytes)
{
    struct ct_mpi_entry *entry = calloc(1, sizeof *entry + bytes + 1);

    if (entry != NULL) {
        entry->users = 1;
        entry->bytes = bytes;
    }
    return entry;
}

/* A message that uses `entry`; NULL without memory. */
static struct ct_mpi_own_message *new_own(struct ct_mpi *mpi, enum ct_mpi_own_kind kind,
                                          struct ct_mpi_entry *entry)
{
    struct ct_mpi_own_message *own = calloc(1, sizeof *own);

    if (own == NULL)
        return NULL;
    *own = (struct ct_mpi_own_message){.next = mpi->own_messages, .kind = kind, .entry = entry};
    entry->users++;
    mpi->own_messages = own;
    return own;
}

/* Store a key with its value. Takes over the caller's use of it. */
static void keep(struct ct_mpi *mpi, struct ct_mpi_entry *entry)
{
    CT_ASSERT(strlen(entry->data) < entry->bytes);
    entry->hash = ct_hash64(entry->data, strlen(entry->data), 0);
    entry->next = mpi->store;
    mpi->store = entry;
}

static void test_own(struct ct_mpi *mpi)
{
    for (struct ct_mpi_own_message **link = &mpi->own_messages; *link != NULL;) {
        struct ct_mpi_own_message *own = *link;
        bool over = false;

        if (mpi->lib.abi->test(&mpi->lib, &own->request, &over) != 0)
            mpi->given_up = true;
        if (!over) {
            link = &own->next;
            continue;
        }
        *link = own->next;
        if (own->kind == CT_MPI_STORED)
            keep(mpi, own->entry);
        else
            release_entry(own->entry);
        mpi->ended += own->kind == CT_MPI_ENDED;
        free(own);
    }
}

void ct_mpi_receive_all(struct ct_mpi *mpi, int tag, enum ct_mpi_own_kind kind)
{
    const struct ct_mpi_abi *abi = mpi->lib.abi;
    union ct_mpi_handle message;
    bool found = true;
    int bytes = 0;

    while (!mpi->given_up && found) {
        if (abi->find(&mpi->lib, tag, &found, &bytes, &message) != 0)
            mpi->given_up = true;
        if (mpi->given_up || !found)
            return;
        struct ct_mpi_entry *entry = new_entry((size_t)bytes);
        struct ct_mpi_own_message *own = entry != NULL ? new_own(mpi, kind, entry) : NULL;
        CT_ASSERT(own != NULL); /* a matched message must be received */
        release_entry(entry);
        if (abi->receive(&mpi->lib, &message, entry->data, bytes, &own->request) != 0)
            mpi->given_up = true;
    }
}

void ct_mpi_work(struct ct_mpi *mpi)
{
    if (!mpi->given_up)
        ct_mpi_receive_all(mpi, STORE_TAG, CT_MPI_STORED);
    if (!mpi->given_up)
        test_own(mpi);
}

/* Send `entry` to all others. */
static void send_all(struct ct_mpi *mpi, struct ct_mpi_entry *entry, int tag)
{
    struct ct_mpi_message message = {.send = entry->data, .bytes = (int)entry->bytes, .tag = tag};

    for (int step = 1; step < mpi->world && !mpi->given_up; step++) {
        struct ct_mpi_own_message *own = new_own(mpi, CT_MPI_SENT, entry);

        message.peer = (mpi->rank + step) % mpi->world;
        if (own == NULL || mpi->lib.abi->post(&mpi->lib, &message, &own->request) != 0)
            mpi->given_up = true;
    }
}

/* ---- the store -------------------------------------------------------------------------------*/

static int store_set(void *context, const char *key, const void *value, size_t size)
{
    struct ct_mpi *mpi = context;
    size_t name = strlen(key) + 1;
    struct ct_mpi_entry *entry = size <= CT_KV_VALUE_MAX ? new_entry(name + size) : NULL;

    if (entry == NULL)
        return size <= CT_KV_VALUE_MAX ? CT_ENOMEM : CT_ELIMIT;
    memcpy(entry->data, key, name);
    if (size > 0)
        memcpy(entry->data + name, value, size);
    (void)pthread_mutex_lock(&mpi->lock);
    send_all(mpi, entry, STORE_TAG);
    keep(mpi, entry);
    ct_mpi_work(mpi);
    int code = mpi->given_up ? CT_ECLOSED : 0;
    (void)pthread_mutex_unlock(&mpi->lock);
    return code;
}

/* 1 found, 0 not there, or a failure. Under the lock. */
static int store_find(const struct ct_mpi *mpi, const char *key, struct ct_kv_value *value)
{
    size_t name = strlen(key);
    uint64_t hash = ct_hash64(key, name, 0);

    for (const struct ct_mpi_entry *entry = mpi->store; entry != NULL; entry = entry->next) {
        if (entry->hash != hash || strcmp(entry->data, key) != 0)
            continue;
        size_t size = entry->bytes - name - 1;
        if (size > value->size)
            return CT_ELIMIT;
        memcpy(value->data, entry->data + name + 1, size);
        value->size = size;
        return 1;
    }
    return 0;
}

static int store_wait(void *context, const char *key, struct ct_kv_value *value,
                      uint64_t timeout_ms)
{
    struct ct_mpi *mpi = context;
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    for (;;) {
        (void)pthread_mutex_lock(&mpi->lock);
        ct_mpi_work(mpi);
        int code = store_find(mpi, key, value);
        if (code == 0 && mpi->given_up)
            code = CT_ECLOSED;
        (void)pthread_mutex_unlock(&mpi->lock);
        if (code != 0)
            return code == 1 ? 0 : code;
        if (ct_clock_mono_ns(&ct_clock_system) - start_ns >= timeout_ms * 1000000)
            return CT_ETIMEOUT;
        (void)nanosleep(&pause, NULL);
    }
}

struct ct_kv ct_mpi_kv(struct ct_mpi *mpi)
{
    return (struct ct_kv){.set = store_set,
                          .wait = store_wait,
                          .context = mpi,
                          .send = store_set, /* neither waits for the others */
                          .poll = store_wait};
}

int ct_mpi_group_number(struct ct_mpi *mpi, uint32_t *ret_number, struct ct_error *err)
{
    uint32_t tags = (uint32_t)(mpi->tag_max - CT_MPI_FIRST_TAG);
    uint32_t each = (tags / CT_CHANNELS - 1) / (uint32_t)mpi->world;

    if (each < CT_MPI_GROUPS_LEAST)
        return ct_error_set(err, CT_ELIMIT, "%s has %d tags: not enough for groups of %d ranks",
                            mpi->name, mpi->tag_max, mpi->world);
    (void)pthread_mutex_lock(&mpi->lock);
    *ret_number = 1 + (uint32_t)mpi->rank + mpi->groups++ % each * (uint32_t)mpi->world;
    (void)pthread_mutex_unlock(&mpi->lock);
    return 0;
}

/* ---- closing ---------------------------------------------------------------------------------*/

/* Wait until all ranks have arrived, and receive what each has sent before: messages between two
 * ranks keep their order, so MPI_Finalize finds none that was not received. */
static void await_all(struct ct_mpi *mpi)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct ct_mpi_entry *end = new_entry(0);

    if (end == NULL)
        mpi->given_up = true;
    else
        send_all(mpi, end, END_TAG);
    while (!mpi->given_up && (mpi->ended < mpi->world - 1 || mpi->own_messages != NULL)) {
        ct_mpi_receive_all(mpi, END_TAG, CT_MPI_ENDED);
        ct_mpi_work(mpi);
        (void)nanosleep(&pause, NULL);
    }
    do {
        ct_mpi_receive_all(mpi, CT_MPI_ANY_TAG, CT_MPI_DISCARDED);
        ct_mpi_work(mpi);
    } while (!mpi->given_up && mpi->own_messages != NULL);
    if (end != NULL)
        release_entry(end);
}

void ct_mpi_close(struct ct_mpi *mpi)
{
    if (mpi == NULL)
        return;
    if (!mpi->given_up)
        await_all(mpi);
    if (!mpi->given_up)
        (void)mpi->lib.abi->finish(&mpi->lib);
    if (mpi->own_messages != NULL) /* MPI has them */
        return;
    while (mpi->store != NULL) {
        struct ct_mpi_entry *entry = mpi->store;

        mpi->store = entry->next;
        release_entry(entry);
    }
    (void)pthread_mutex_destroy(&mpi->lock);
    free(mpi->lib.functions);
    free(mpi->hosts);
    free(mpi);
}
