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

/* Load libnccl; it stays loaded until the process ends. 0, or CT_EUNSUPPORTED with a sentence that
 * says what to install, or why this version is not used. */
int ct_nccl_library_load(struct ct_nccl_library *lib, struct ct_error *err);

/* Check whether this version may be used. 0, or CT_EUNSUPPORTED with the reason. Pure. */
int ct_nccl_version_check(int version, struct ct_error *err);

/* Features that not every NCCL supports. */
enum ct_nccl_feature {
    CT_NCCL_SPLIT,   /* groups out of groups by ncclCommSplit, not by a fresh id */
    CT_NCCL_WINDOWS, /* memory of ncclMemAlloc, registered; enabled by CTRUN_NCCL_WINDOWS=1 */
    CT_NCCL_SHRINK,  /* ncclCommShrink after a loss; enabled by CTRUN_NCCL_SHRINK=1 */
};

/* Return NULL if the feature is enabled, where it has to be, and this library supports it; else the
 * reason. */
const char *ct_nccl_lacks(const struct ct_nccl_library *lib, enum ct_nccl_feature feature);

/* Return the code, and set the sentence, of NCCL's result: "what: NCCL says ...". `comm` may be
 * NULL. A broken connection is CT_ECLOSED: a peer may have died. */
int ct_nccl_error(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm, int result,
                  const char *what, struct ct_error *err);

#endif
