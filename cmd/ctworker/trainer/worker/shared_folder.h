/* Test of whether all ranks see the same folder. */
#ifndef CT_TRAINER_SHARED_FOLDER_H
#define CT_TRAINER_SHARED_FOLDER_H

#include "base/error.h"

#include <stdbool.h>

struct ct_worker;

/* Test whether all ranks see `dir` (made when missing): rank 0 makes a file there, each rank writes
 * its byte into it, and rank 0 reads them. Collective; if not, rank 0 logs the ranks that do not
 * see it. 0, or the code of the group. */
int ct_shared_folder(struct ct_worker *worker, const char *dir, bool *ret_shared,
                     struct ct_error *err);

#endif
