/* A device and an NCCL that need no GPU: one shared library, loaded by tests in libnccl's place.
 *
 *   stream.c   streams and events over the host's memory: a thread a stream works off what it is
 *              given, in order and later; and the struct ct_accel of it, fakenccl_accel(i)
 *   cuda.c     in its place: those of a whole CUDA device that runs on the host
 *   world.c    ranks that meet, as threads or as processes: a shared file a communicator
 *   nccl.c     NCCL's functions: communicators that do not block, groups, revoke, abort
 *   child.c    splits, shrink, windows: what all ranks of a communicator take part in
 *   memory.c   ncclMemAlloc; what may not be done with memory that is registered ends the process
 *
 * Faults, by environment variables that are read at each use:
 *
 *   FAKENCCL_FAULT=hang_init      communicators never come out of InProgress
 *                  fail_init      they fail
 *                  hang_abort     ncclCommAbort does not return for FAKENCCL_HANG_MS (2000)
 *                  async_error    a collective fails with ncclRemoteError after it was enqueued
 *                  slow_enqueue   each call is InProgress for some looks
 *                  no_window      windows are refused as NCCL does it: success, and no handle
 *                  fail_window    windows are refused with an error
 *                  fail_memory    ncclMemAlloc has no memory
 *                  refuse_part    ncclCommSplit fails at once, but for a communicator's first split
 *                  fail_part      it fails later, and leaves the parent in error
 *                  fail_shrink    the same of ncclCommShrink
 *   FAKENCCL_RANK=1               only at this rank of the communicator
 *   FAKENCCL_VERSION=22805        what ncclGetVersion says
 *   FAKENCCL_WITHOUT_REVOKE=1     as in old versions, ncclCommRevoke fails (InvalidUsage) */
#ifndef FAKENCCL_FAKE_H
#define FAKENCCL_FAKE_H

#include "backend/nccl/nccl_types.h"
#include "base/accel.h"
#include "counts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- stream.c, or cuda.c ---- */

/* Run on the stream's thread, after all that it was given before; `argument` is the work's to free.
 */
void fake_stream_push(void *stream, void (*work)(void *argument), void *argument);

/* Memory of the device, at least `bytes` from a multiple of CT_NCCL_WIN_ALIGN on; NULL: none. */
void *fake_memory_new(size_t bytes);
void fake_memory_free(void *memory);

/* Return the host address of device memory, for the stream's thread. */
void *fake_near(const void *memory);

/* ---- world.c ---- */

enum { FAKE_RANKS_MAX = 64, FAKE_SLOT_BYTES = 64 << 10 };

struct fake_world;

/* Sleep, as a device that takes its time. */
void fake_park(long ns);

/* Map the file that belongs to the id; its first user makes it. NULL on failure. */
struct fake_world *fake_world_join(const struct ct_nccl_id *id, int rank, int size);
void fake_world_leave(struct fake_world *world);

/* Return whether all ranks have joined; whether all have announced that they finish. */
bool fake_world_is_full(const struct fake_world *world);
void fake_world_set_finished(struct fake_world *world);
bool fake_world_is_finished(const struct fake_world *world);

/* One part of a collective: all ranks have written theirs, this rank reads. Returns false when
 * `stop` was set meanwhile. */
struct fake_part {
    const void *own; /* NULL: nothing is put in */
    size_t bytes;
    void (*receive)(void *context, char *const *slots, int size);
    void *context;
};
bool fake_world_exchange(struct fake_world *world, const struct fake_part *part,
                         const atomic_bool *stop);

/* Two numbers that each rank tells the others, before the next two of the same kind: note, then
 * look until all have. */
enum fake_topic { FAKE_SPLIT, FAKE_WINDOW, FAKE_TOPICS };
struct fake_note {
    int64_t values[2];
};
void fake_world_note(struct fake_world *world, enum fake_topic topic, struct fake_note note);
/* True: notes[0 .. size) are those of the last note. */
bool fake_world_notes(const struct fake_world *world, enum fake_topic topic,
                      struct fake_note *notes);

/* Messages; one call makes what can be made now. True: all `bytes` have gone. */
struct fake_message {
    int peer;
    bool out;
    char *data;
    size_t bytes, at;
};
bool fake_world_carry(struct fake_world *world, struct fake_message *message);

/* ---- memory.c ---- */

struct allocation;
struct ct_nccl_window {
    struct ct_nccl_window *next;
    struct allocation *allocation;
};

/* NULL: not in memory of ncclMemAlloc. */
struct ct_nccl_window *fake_window_new(const void *memory, size_t bytes);
void fake_window_free(struct ct_nccl_window *window);
void fake_windows_leave(struct ct_nccl_window *windows);

/* Into `ret`: allocations, windows, left_behind. */
void fake_memory_count(struct fakenccl_counts *ret);

#endif
