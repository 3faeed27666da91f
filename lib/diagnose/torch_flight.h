/* PyTorch's flight recorder: how many collectives a rank has called in each of its groups, and in
 * which it waits, from the dump that it writes when it is asked to.
 *
 *     TORCH_FR_DUMP_TEMP_FILE=PREFIX          PREFIXrank: the dump, a pickle
 *     TORCH_NCCL_DEBUG_INFO_PIPE_FILE=PREFIX  PREFIXrank.pipe: a byte into it asks for the dump
 *
 * NCCL's monitor makes the pipe and answers within a second; gloo makes none, but a program may. A
 * dump is read by Python itself, in a process of its own that makes nothing but plain values of it.
 * https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html */
#ifndef CT_DIAGNOSE_TORCH_FLIGHT_H
#define CT_DIAGNOSE_TORCH_FLIGHT_H

#include "base/bytes.h"
#include "diagnose/python_stack.h"

#include <sys/types.h>

enum {
    CT_FLIGHT_GROUPS = 16, /* of a rank; further ones are left out */
    CT_FLIGHT_NAME = 64,
    CT_FLIGHT_PATIENCE_MS = 3000, /* how long a rank that was asked may take */
};

struct ct_torch_group {
    char name[CT_FLIGHT_NAME]; /* "default_pg (0)", the same on all ranks */
    uint64_t calls;            /* of collectives, since the group was made */
};

struct ct_torch_flight {
    struct ct_torch_group groups[CT_FLIGHT_GROUPS];
    size_t group_count;           /* 0: nothing is known */
    struct ct_python_place waits; /* where the oldest call was made that has not ended */
};

/* Ask the rank whose dump will be at `path` for it, without waiting. False: it takes no requests.
 */
bool ct_torch_flight_ask(const char *path);

/* Put the dump at `path` into `to`, which is empty, as text for people and ct_torch_flight_parse;
 * the interpreter of process `pid` reads it. Wait up to `patience_ms` for it to be there and whole.
 * `to` stays empty when it is not, or at `deadline_ms` of ct_clock_mono_ms. */
void ct_torch_flight_read(const char *path, pid_t pid, uint64_t patience_ms, uint64_t deadline_ms,
                          struct ct_buf *to);

/* Read that text, of process `pid`. It is a stranger's: whatever it is, the result is well-formed.
 * Pure. False: it has no group. */
bool ct_torch_flight_parse(const char *text, int pid, struct ct_torch_flight *ret_flight);

#endif
