/* What a test changes in the programs that are started with interpose.so in LD_PRELOAD: a page that
 * both map. The file's name is in the environment, as INTERPOSE_PAGE. */
#ifndef TESTS_INTERPOSE_H
#define TESTS_INTERPOSE_H

#include <stdint.h>

#define INTERPOSE_PAGE "TEST_INTERPOSE_PAGE"

struct interpose_page {
    _Atomic int64_t wall_offset_s; /* added to the wall clock */
    _Atomic int64_t syncs;         /* calls of fdatasync so far */
    _Atomic int64_t die_at;        /* SIGKILL at that call; 0: never */
    _Atomic int64_t die_before;    /* 1: before the data are synced, 0: after */
    _Atomic int64_t die_saving;    /* 1: SIGKILL to whoever calls fsync next; then 0 */
    _Atomic int64_t metrics_ms;    /* that a write to metrics.jsonl takes longer: a slow disk */
};

#endif
