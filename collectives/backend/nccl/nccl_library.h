/* NCCL, loaded at run time: libnccl.so.2, or the file that CTRUN_NCCL names. */
#ifndef CT_COLL_NCCL_LIBRARY_H
#define CT_COLL_NCCL_LIBRARY_H

#include "backend/nccl/nccl_types.h"
#include "base/error.h"

#include <stdbool.h>

struct ct_nccl_library {
    void *handle;
    const char *file;
    int version; /* 22809 is 2.28.9 */
#define MEMBER(name, result, arguments) result(*name) arguments;
    CT_NCCL_REQUIRED(MEMBER)
    CT_NCCL_OPTIONAL(MEMBER)
#undef MEMBER
};

/* 0, or the sentence that says what to install, or why this version is not used. It stays loaded
 * until the process ends. */
int ct_nccl_library_load(struct ct_nccl_library *lib, struct ct_error *err);

/* May this version be used? 0, or CT_EUNSUPPORTED with the reason. Pure. */
int ct_nccl_version_check(int version, struct ct_error *err);

/* What is not done with each NCCL. */
enum ct_nccl_feature {
    CT_NCCL_SPLIT,   /* groups out of groups by ncclCommSplit, not by a fresh id */
    CT_NCCL_WINDOWS, /* memory of ncclMemAlloc, registered; asked for by CTRUN_NCCL_WINDOWS=1 */
    CT_NCCL_SHRINK,  /* ncclCommShrink after a loss; asked for by CTRUN_NCCL_SHRINK=1 */
};

/* Is it asked for where it has to be, and has this library what it needs? NULL: yes; else why not.
 */
const char *ct_nccl_lacks(const struct ct_nccl_library *lib, enum ct_nccl_feature feature);

/* The code and sentence of what NCCL returned: "what: NCCL says ...". `comm` may be NULL. A broken
 * connection is CT_ECLOSED: a peer may have died. */
int ct_nccl_error(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm, int result,
                  const char *what, struct ct_error *err);

#endif
