/* Fair reading: which of many output streams may be read while their common sink is busy.
 *
 * A read takes at most CT_FAIR_BUDGET bytes. Once the sink's queue is above CT_FAIR_HIGH, or a
 * stream waits already, a stream that asks is put at the end of a queue and reads no more: its pipe
 * fills and its worker waits in write(2). When the sink's queue has drained below CT_FAIR_LOW,
 * streams are released from the front, each for one read. So a flooding stream gets its turn after
 * all others.
 *
 * Pure: numbers of streams and bytes only. */
#ifndef CT_OUTPUT_FAIR_H
#define CT_OUTPUT_FAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_FAIR_BUDGET = 16 * 1024,
    CT_FAIR_HIGH = 256 * 1024,
    CT_FAIR_LOW = 64 * 1024,
};

struct ct_fair {
    uint32_t *line; /* ring of waiting streams, each at most once */
    uint32_t room;  /* of the ring: all streams */
    uint32_t first, count;
};

/* Initialise for streams 0 .. streams - 1; `line` has room for as many and is owned by the
 * caller. */
void ct_fair_init(struct ct_fair *fair, uint32_t *line, uint32_t streams);

/* Return whether `stream`, which has data, may be read while the sink has `queued` bytes to write.
 * If not, it waits and must not ask again before ct_fair_next has returned it. */
bool ct_fair_ask(struct ct_fair *fair, uint32_t stream, size_t queued);

/* Return the stream that may read once now, or -1; call it until -1 whenever the queue has shrunk.
 * The stream calls ct_fair_ask again before its next read. */
int64_t ct_fair_next(struct ct_fair *fair, size_t queued);

/* Remove a stream that has ended from the queue. */
void ct_fair_drop(struct ct_fair *fair, uint32_t stream);

#endif
