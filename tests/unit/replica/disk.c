#include "disk.h"

enum { COMPACT_BYTES = 4096 };

static int emit(void *context, const void *record, size_t size)
{
    struct disk *anew = context;

    ct_journal_frame(&anew->tail, record, size, &anew->bytes);
    return anew->bytes.failed ? CT_ENOMEM : 0;
}

static int replace(struct disk *disk, const struct ct_replica *replica)
{
    struct disk anew = {.tail = {.seq = disk->tail.seq}};
    int code = disk->is_full ? CT_EIO : ct_replica_emit(replica, emit, &anew);

    if (code) {
        ct_buf_deinit(&anew.bytes);
        return code;
    }
    ct_buf_deinit(&disk->bytes);
    disk->bytes = anew.bytes;
    disk->tail = anew.tail;
    disk->compacted = anew.bytes.size;
    disk->broken = false;
    disk->replacements++;
    return 0;
}

/* A part of the record arrives, from nothing to all of it. */
static int tear(struct disk *disk, struct ct_rng *rng, const struct ct_buf *frame)
{
    disk->broken = true;
    disk->torn++;
    (void)ct_buf_append(&disk->bytes, frame->data, ct_rng_below(rng, frame->size + 1));
    return CT_EIO;
}

int disk_keep(struct disk *disk, struct ct_rng *rng, const struct ct_replica *replica,
              const void *record, size_t size, bool *ret_cut)
{
    bool grown = disk->bytes.size > COMPACT_BYTES && disk->bytes.size > 2 * disk->compacted;
    struct ct_journal_tail tail;
    struct ct_buf frame;
    int code = disk->broken || grown ? replace(disk, replica) : 0;

    if (code && disk->broken)
        return code;
    *ret_cut = disk->cut_after > 0 && --disk->cut_after == 0;
    ct_buf_init(&frame, 0);
    tail = disk->tail;
    ct_journal_frame(&tail, record, size, &frame);
    if (*ret_cut || disk->is_full) {
        code = tear(disk, rng, &frame);
    } else {
        code = ct_buf_append(&disk->bytes, frame.data, frame.size);
        disk->tail = tail;
        disk->writes++;
    }
    ct_buf_deinit(&frame);
    return code;
}

static int each(void *context, const void *payload, size_t size, struct ct_error *err)
{
    return ct_replica_restore(context, payload, size, err);
}

int disk_restore(struct disk *disk, struct ct_replica *replica, struct ct_error *err)
{
    size_t valid = 0;
    int code = ct_journal_scan(disk->bytes.data, disk->bytes.size, each, replica, &disk->tail,
                               &valid, err);

    disk->broken = true; /* a process begins with a file of its own */
    return code ? code : replace(disk, replica);
}

void disk_deinit(struct disk *disk)
{
    ct_buf_deinit(&disk->bytes);
    *disk = (struct disk){0};
}
