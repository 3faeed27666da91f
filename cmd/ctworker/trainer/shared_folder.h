/* Do all ranks see the same folder? */
#ifndef CT_TRAINER_SHARED_FOLDER_H
#define CT_TRAINER_SHARED_FOLDER_H

#include "base/error.h"

#include <stdbool.h>

struct ct_worker;

/* Rank 0 leaves a file in `dir` (made when missing), each rank writes its byte into it, rank 0
 * finds all of them or not. Collective; when the answer is no, rank 0 logs who does not see it. */
int ct_shared_folder(struct ct_worker *worker, const char *dir, bool *ret_shared,
                     struct ct_error *err);

#endif
