/* The journal in a directory: one daemon at a time, every record durable before append returns.
 *
 *      DIR/lock      held (flock) as long as a daemon serves from here
 *      DIR/journal   the records (journal.h)
 *
 * Above a size the file is replaced, atomically, by a snapshot of what is still needed. After a
 * failed write nothing is known about the end of the file, so the next record begins with such a
 * replacement too. Blocking: an append costs one fdatasync, a fraction of a millisecond. */
#ifndef CT_RENDEZVOUS_JOURNAL_FILE_H
#define CT_RENDEZVOUS_JOURNAL_FILE_H

#include "rendezvous/journal.h"

struct ct_journal_file;

/* Emits the records that are still needed into the file. */
typedef void (*ct_journal_emit_fn)(void *context, const void *record, size_t size);

struct ct_journal_options {
    const char *dir;      /* made (0700) when it is missing */
    size_t compact_bytes; /* replace the file when it has grown to this and doubled; 0: 1 MiB */
    ct_journal_each_fn replay;
    /* Emit, through emit(emit_context, ...), all records that a new journal needs. */
    void (*snapshot)(void *context, ct_journal_emit_fn emit, void *emit_context);
    void *context; /* of both */
};

/* Lock, read, replay; a torn tail is cut off. CT_EUNAVAILABLE when another daemon holds it,
 * CT_EDATA for damage, CT_EIO, CT_ECANTCREAT. */
int ct_journal_open(struct ct_journal_file **ret_file, const struct ct_journal_options *options,
                    struct ct_error *err);
void ct_journal_close(struct ct_journal_file *file);

/* Keep one record. 0; or CT_EIO with the sentence (disk full, ...): then it is not kept, and may be
 * given again. */
int ct_journal_append(struct ct_journal_file *file, const void *record, size_t size,
                      struct ct_error *err);

/* Bytes of the file now. */
size_t ct_journal_size(const struct ct_journal_file *file);

#endif
