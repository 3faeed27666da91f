/* NCCL's interface, as far as it is used, without its header: that one includes CUDA's, which
 * machines without the toolkit do not have, and a program built there runs with NCCL all the same,
 * as it is loaded at run time. Names and values are the binary interface of all versions 2.x;
 * where nccl.h is there, tests/unit/coll/backend/test_nccl.c compares. */
#ifndef CT_COLL_NCCL_TYPES_H
#define CT_COLL_NCCL_TYPES_H

#include <limits.h>
#include <stddef.h>

struct ct_nccl_comm;   /* a communicator */
struct ct_nccl_window; /* registered memory */

enum { CT_NCCL_ID_BYTES = 128 };
struct ct_nccl_id {
    char internal[CT_NCCL_ID_BYTES];
};

enum ct_nccl_result {
    CT_NCCL_SUCCESS,
    CT_NCCL_UNHANDLED_CUDA_ERROR,
    CT_NCCL_SYSTEM_ERROR,
    CT_NCCL_INTERNAL_ERROR,
    CT_NCCL_INVALID_ARGUMENT,
    CT_NCCL_INVALID_USAGE,
    CT_NCCL_REMOTE_ERROR,
    CT_NCCL_IN_PROGRESS,
};

enum ct_nccl_reduction { CT_NCCL_SUM, CT_NCCL_PROD, CT_NCCL_MAX, CT_NCCL_MIN, CT_NCCL_AVG };

enum ct_nccl_dtype {
    CT_NCCL_INT8,
    CT_NCCL_UINT8,
    CT_NCCL_INT32,
    CT_NCCL_UINT32,
    CT_NCCL_INT64,
    CT_NCCL_UINT64,
    CT_NCCL_FLOAT16,
    CT_NCCL_FLOAT32,
    CT_NCCL_FLOAT64,
    CT_NCCL_BFLOAT16,
};

enum { CT_NCCL_WIN_SYMMETRIC = 1, CT_NCCL_WIN_ALIGN = 4096 };

/* The configuration as of 2.18: later versions append, and take the size for what it is. */
struct ct_nccl_config {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
};

enum { CT_NCCL_CONFIG_MAGIC = (int)0xcafebeef, CT_NCCL_CONFIG_VERSION = 21800 };
enum { CT_NCCL_UNDEFINED = INT_MIN };
enum { CT_NCCL_NO_COLOUR = -1 };
enum { CT_NCCL_SHRINK_DEFAULT = 0 };

/* Name of the function, result, arguments. These every version from 2.18 on has. */
#define CT_NCCL_REQUIRED(X)                                                                        \
    X(ncclGetVersion, int, (int *))                                                                \
    X(ncclGetUniqueId, int, (struct ct_nccl_id *))                                                 \
    X(ncclCommInitRankConfig, int,                                                                 \
      (struct ct_nccl_comm **, int, struct ct_nccl_id, int, struct ct_nccl_config *))              \
    X(ncclCommSplit, int,                                                                          \
      (struct ct_nccl_comm *, int, int, struct ct_nccl_comm **, struct ct_nccl_config *))          \
    X(ncclCommFinalize, int, (struct ct_nccl_comm *))                                              \
    X(ncclCommDestroy, int, (struct ct_nccl_comm *))                                               \
    X(ncclCommAbort, int, (struct ct_nccl_comm *))                                                 \
    X(ncclCommGetAsyncError, int, (struct ct_nccl_comm *, int *))                                  \
    X(ncclGetErrorString, const char *, (int))                                                     \
    X(ncclGetLastError, const char *, (struct ct_nccl_comm *))                                     \
    X(ncclGroupStart, int, (void))                                                                 \
    X(ncclGroupEnd, int, (void))                                                                   \
    X(ncclAllReduce, int, (const void *, void *, size_t, int, int, struct ct_nccl_comm *, void *)) \
    X(ncclReduce, int,                                                                             \
      (const void *, void *, size_t, int, int, int, struct ct_nccl_comm *, void *))                \
    X(ncclReduceScatter, int,                                                                      \
      (const void *, void *, size_t, int, int, struct ct_nccl_comm *, void *))                     \
    X(ncclAllGather, int, (const void *, void *, size_t, int, struct ct_nccl_comm *, void *))      \
    X(ncclBroadcast, int, (const void *, void *, size_t, int, int, struct ct_nccl_comm *, void *)) \
    X(ncclSend, int, (const void *, size_t, int, int, struct ct_nccl_comm *, void *))              \
    X(ncclRecv, int, (void *, size_t, int, int, struct ct_nccl_comm *, void *))

/* These newer ones have: 2.19.1, 2.23.4, 2.27.3 (windows, shrink), 2.28.7. NULL where not. */
#define CT_NCCL_OPTIONAL(X)                                                                      \
    X(ncclMemAlloc, int, (void **, size_t))                                                      \
    X(ncclMemFree, int, (void *))                                                                \
    X(ncclCommInitRankScalable, int,                                                             \
      (struct ct_nccl_comm **, int, int, int, struct ct_nccl_id *, struct ct_nccl_config *))     \
    X(ncclCommWindowRegister, int,                                                               \
      (struct ct_nccl_comm *, void *, size_t, struct ct_nccl_window **, int))                    \
    X(ncclCommWindowDeregister, int, (struct ct_nccl_comm *, struct ct_nccl_window *))           \
    X(ncclCommShrink, int,                                                                       \
      (struct ct_nccl_comm *, int *, int, struct ct_nccl_comm **, struct ct_nccl_config *, int)) \
    X(ncclCommRevoke, int, (struct ct_nccl_comm *, int))

#endif
