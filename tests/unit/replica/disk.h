/* A disk in virtual time with the file of one replica, as journal_file.c writes it: records behind
 * each other, each durable before the next; after a failed write the end is unknown, so that the
 * file is replaced, atomically, before anything is written behind it. */
#ifndef TESTS_REPLICA_DISK_H
#define TESTS_REPLICA_DISK_H

#include "base/number/rng.h"
#include "rendezvous/replica/replica.h"
#include "rendezvous/service/journal.h"

struct disk {
    struct ct_buf bytes; /* what is there after a power cut */
    struct ct_journal_tail tail;
    size_t compacted; /* bytes of the last replacement */
    bool broken;      /* the end is unknown */
    bool is_full;
    uint32_t cut_after; /* the power is cut in this write, 1: the next; 0: none */
    uint64_t writes, replacements, torn;
};

/* Keep a record: 0, CT_EIO when it is not there, or only in part; `ret_cut`: the power was cut in
 * it, and nothing may be heard of its machine any more. */
int disk_keep(struct disk *disk, struct ct_rng *rng, const struct ct_replica *replica,
              const void *record, size_t size, bool *ret_cut);

/* Read all into a new replica, cut a torn tail, and begin anew as a new process does. */
int disk_restore(struct disk *disk, struct ct_replica *replica, struct ct_error *err);

void disk_deinit(struct disk *disk);

#endif
