/* See train.h.
 *
 *   setup -> steps -> the last one, a stop, or a failure of this rank
 *              |  the round is over: others were lost, joined, or want to leave
 *              `-> leave -> enter -> steps ... */
#include "train.h"

#include "loop.h"
#include "setup.h"
#include "training_round.h"
#include "worker/checkpoint_publish.h"

static int next_round(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err)
{
    int code = ct_round_leave(worker, err);

    if (code != 0)
        return code;
    *err = (struct ct_error){.code = 0};
    code = ct_round_enter(worker, err);
    return code == 0 ? ct_loop_run(worker, ret_stopped, err) : code;
}

/* The round is over and no other one follows: because of a stop? */
static int end(struct ct_worker *worker, int code, bool *ret_stopped, struct ct_error *err)
{
    *ret_stopped = ct_stop_wait(worker->stop, worker->job, CT_STOP_GRACE_MS);
    if (!*ret_stopped)
        return code;
    uint64_t deadline_ms = 1;
    bool released = ct_job_stop_requested(worker->job, &deadline_ms) && deadline_ms == 0;
    return !released && ct_round_can_save(worker) ? ct_publish_stop(worker, err) : 0;
}

int ct_train(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err)
{
    int code = ct_setup(worker, err);

    if (code == 0)
        code = ct_loop_run(worker, ret_stopped, err);
    /* Who has no device has failed by itself: the next round would find it so again. */
    while (worker->device != NULL && worker->survives && ct_job_is_round_over(worker->job, code) &&
           !ct_stop_requested(worker->stop, worker->job))
        code = next_round(worker, ret_stopped, err);
    return ct_stop_is_secondary(code) ? end(worker, code, ret_stopped, err) : code;
}
