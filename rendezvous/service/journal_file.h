/* The journal in a directory: one daemon at a time, every record durable before append returns.
 *
 *      DIR/lock           held (flock) as long as a daemon of this machine serves from here
 *      DIR/journal.EPOCH  the records (journal.h) of that tenure; it begins with a snapshot
 *
 * Creating journal.EPOCH is the compare-and-swap on the epoch: O_EXCL lets one daemon have it. The
 * new one creates it (empty), reads the newest older file that has content, and replaces its own by
 * a snapshot, atomically; from then on the older ones are useless and are removed. A file is
 * therefore empty (claimed only) or begins with a whole snapshot.
 *
 *      old daemon                              new daemon (other machine, --takeover)
 *      write, fdatasync                        create journal.8
 *      is there a newer epoch?                 read journal.7
 *        no:  the effect may be sent           snapshot into journal.8
 *        yes: CT_EFENCED, nothing is sent
 *
 * Everything that the old one sent was in its file before it checked, and so before the new one
 * read it. On network file systems names must not be cached (NFS: lookupcache=none).
 *
 * Above a size the file is replaced, atomically, by a snapshot of the live state. After a failed
 * write the end of the file is unknown, so the next record begins with such a replacement too. A
 * snapshot is only taken while the state holds every record of the file (`may_compact`): between
 * the records of one step it would lose those that were kept but not yet answered. Blocking: an
 * append costs one fdatasync, a fraction of a millisecond. */
#ifndef CT_RENDEZVOUS_SERVICE_JOURNAL_FILE_H
#define CT_RENDEZVOUS_SERVICE_JOURNAL_FILE_H

#include "rendezvous/service/journal.h"

#include <stdbool.h>

struct ct_journal_file;

/* Emits the records that are still needed into the file. */
typedef int (*ct_journal_emit_fn)(void *context, const void *record, size_t size);

struct ct_journal_options {
    const char *dir;      /* made when it is missing; its files are private (0600) */
    bool takeover;        /* claim the next epoch even while another daemon holds the lock */
    size_t compact_bytes; /* replace the file when it has grown to this and doubled; 0: 1 MiB */
    size_t limit_bytes;   /* of a file that is written or read; 0: 256 MiB */
    /* Called with each record before the epoch is claimed, which ends a daemon that runs: an error
     * leaves the journal to that. NULL: nothing but sums and order is checked. */
    ct_journal_each_fn check;
    ct_journal_each_fn replay;
    /* Emit, through emit(emit_context, ...), all records that a new journal needs. 0, or a negative
     * code: the file stays as it is. */
    int (*snapshot)(void *context, ct_journal_emit_fn emit, void *emit_context);
    void *context; /* of all three */
};

/* Lock the directory, check its files, claim the next epoch and replay; a torn tail is dropped.
 * CT_EFENCED when another daemon holds the journal, CT_EDATA for damage, CT_EIO, CT_ECANTCREAT,
 * or the error of `check`: then no epoch is claimed. ct_journal_begin must follow. */
int ct_journal_open(struct ct_journal_file **ret_file, const struct ct_journal_options *options,
                    struct ct_error *err);

/* Return the epoch that was claimed. */
uint64_t ct_journal_epoch(const struct ct_journal_file *file);

/* Write the first snapshot and remove the files of older epochs. 0, CT_EFENCED, CT_EIO. */
int ct_journal_begin(struct ct_journal_file *file, struct ct_error *err);

/* Close; an epoch that was claimed and never begun is released. */
void ct_journal_close(struct ct_journal_file *file);

struct ct_journal_record {
    const void *data;
    size_t size;
    bool may_compact; /* what was kept before is in a snapshot that is taken now */
};

/* Keep one record. 0; CT_EIO with the sentence (disk full, ...), or CT_ELIMIT when the file would
 * become larger than what is read back: then it is not kept, and may be given again; CT_EFENCED
 * when a newer daemon has the journal: no effect may be sent any more. Only a record with
 * may_compact has the file replaced before it; after a failed write others are not kept. */
int ct_journal_append(struct ct_journal_file *file, struct ct_journal_record record,
                      struct ct_error *err);

/* Check whether a newer daemon has claimed the journal: CT_EFENCED with the sentence; 0 if not;
 * CT_EIO when the directory cannot be read now. An idle daemon calls it periodically. */
int ct_journal_check(struct ct_journal_file *file, struct ct_error *err);

#endif
