/* Counts of calls to the fake NCCL in this process, and of the objects that it holds now. */
#ifndef FAKENCCL_COUNTS_H
#define FAKENCCL_COUNTS_H

struct fakenccl_counts {
    int ids, splits, shrinks; /* calls that were taken */
    int comms, allocations, windows;
    int left_behind; /* windows that ended with their communicator */
};

/* Found by dlsym. */
struct fakenccl_counts fakenccl_counts(void);

#endif
