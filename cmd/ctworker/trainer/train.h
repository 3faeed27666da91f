/* The whole training of one rank, over all rounds of its job. */
#ifndef CT_WORKER_TRAIN_H
#define CT_WORKER_TRAIN_H

#include "worker/worker.h"

/* Set up, then train round after round until the last step, a stop (*ret_stopped) or a failure.
 * Needs the fields that ct_setup needs; call ct_setup_undo in any case. 0, or a code with its
 * sentence. */
int ct_train(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err);

#endif
