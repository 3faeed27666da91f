/* Files that a thread of its own opens, writes and closes, in the order of the calls: a file system
 * that does not answer blocks only that thread.
 *
 *   ct_written_append -> queue -> thread -> open(2), write(2), close(2), as long as they take
 *        |                 |         |
 *        |                 |         `-- fails: the file takes no more, ct_file_writer_report
 *        |                 `-- above CT_WRITER_FULL bytes: its user waits for `wake`
 *        `-- above CT_WRITER_MOST: the file takes no more (CT_ELIMIT)
 *
 * Only a thread keeps a program from waiting: poll(2) calls a file on a dead server writable, and
 * libuv's pool, which has four threads, has other users, too. All calls but `wake` belong to one
 * thread, the user's. */
#ifndef CT_OUTPUT_FILE_WRITER_H
#define CT_OUTPUT_FILE_WRITER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_WRITER_FULL = 4 << 20,  /* bytes that wait before their users should */
    CT_WRITER_MOST = 16 << 20, /* and before they are lost */
    CT_WRITER_OPEN_MS = 500,   /* how long opening is waited for */
};

struct ct_file_writer;
struct ct_written; /* a file */

/* Create a writer; NULL without memory or thread. `wake` is called from the thread and must not
 * call back: there is a report, room again after ct_file_writer_full was true, or the queue is
 * empty (after ct_file_writer_await_idle). */
struct ct_file_writer *ct_file_writer_new(void (*wake)(void *context), void *context);

/* Flush the queue for at most `patience_ms`, and free it; all files are closed or lost. `wake` is
 * not called afterwards. NULL is ignored. */
void ct_file_writer_free(struct ct_file_writer *writer, uint64_t patience_ms);

/* Open `path` to append to it; `owner` is for reports. 0, or CT_ECANTCREAT with the sentence. A
 * file that is not open within CT_WRITER_OPEN_MS is opened later, and reported when that fails. */
int ct_file_writer_open(struct ct_file_writer *writer, const char *path, uint32_t owner,
                        struct ct_written **ret_file, struct ct_error *err);

/* Make a folder, with those above it; as ct_file_writer_open otherwise. */
int ct_file_writer_make_dirs(struct ct_file_writer *writer, const char *path, struct ct_error *err);

/* Queue bytes behind those before; dropped when the file is lost. */
void ct_written_append(struct ct_written *file, const void *data, size_t size);

/* Return whether the file is lost and accepts no more bytes. */
bool ct_written_lost(const struct ct_written *file);

/* Close it when all is written; the pointer is no longer the caller's. NULL is ignored. */
void ct_written_close(struct ct_written *file);

/* Return whether the queue is full, so that appending should wait; then `wake` is called when there
 * is room. */
bool ct_file_writer_full(struct ct_file_writer *writer);

/* Return whether neither the queue nor the thread has work; if they have, `wake` is called when it
 * is done. */
bool ct_file_writer_await_idle(struct ct_file_writer *writer);

/* The thread's current operation. */
struct ct_writer_view {
    size_t queued;     /* bytes */
    uint64_t waits_ms; /* how long the call has taken in which the thread is; 0: it is in none */
    char path[512];    /* of that call, "" */
};

void ct_file_writer_view(const struct ct_file_writer *writer, struct ct_writer_view *ret_view);

/* A file takes no more. */
struct ct_writer_report {
    uint32_t owner;
    char path[512];
    char why[512]; /* "No space left on device" */
};

/* Return the next unreported failure; false if none. */
bool ct_file_writer_report(struct ct_file_writer *writer, struct ct_writer_report *ret_report);

/* Drop the queue: its files are lost and not reported. Returns their number; `first` is the path of
 * one of them. */
uint32_t ct_file_writer_abandon(struct ct_file_writer *writer, char first[512]);

#endif
