/* The worker's link to its agent: messages of wire.def on the inherited descriptor.
 *
 * Any thread may report and request. One lock orders sends; another makes store requests one at a
 * time, and only its holder receives. */
#ifndef CT_COLL_JOB_LINK_H
#define CT_COLL_JOB_LINK_H

#include "ctrun.h"
#include "kv.h"
#include "wire/control_page.h"
#include "wire/link.h"
#include "wire/worker_record.h"

#include <pthread.h>
#include <stdatomic.h>

/* The last request to publish, and its answer. */
struct ct_job_publication {
    uint64_t generation, step;
    bool open; /* not answered yet */
    struct ct_error answer;
};

struct ct_job_link {
    struct ct_link link;
    const struct ct_control_page *page; /* may be NULL */
    struct ct_worker_record *record;    /* likewise; notes waits */
    uint64_t generation;
    pthread_mutex_t sending;
    pthread_mutex_t receiving;
    uint64_t next_request;
    struct ct_job_publication publication; /* by the holder of `receiving` */
    struct ct_frame_reader assigned;       /* early ASSIGNs; likewise */
    uint32_t assigned_count;
    _Atomic bool stop;
    _Atomic uint64_t stop_deadline_ms;
};

/* Make a link on `fd`, which it then owns; `page` and `record` are borrowed. NULL without
 * memory. */
struct ct_job_link *ct_job_link_new(int fd, const struct ct_control_page *page,
                                    struct ct_worker_record *record);
void ct_job_link_free(struct ct_job_link *link);

/* Wait for an ASSIGN of a newer round than the link's. `ret_assign` points into the link and into
 * `arena` until something else is received. CT_ECLOSED when a stop is requested instead. */
int ct_job_link_assignment(struct ct_job_link *link, struct ct_arena *arena,
                           struct ct_msg_assign *ret_assign, struct ct_error *err);

/* Send a message. 0, or the code of a broken link. */
int ct_job_link_send(struct ct_job_link *link, const struct ct_message *message);

/* Receive what has arrived, unless another thread is receiving. Never blocks. */
void ct_job_link_poll(struct ct_job_link *link);

/* Request permission to publish; wait for the answer, see ct_job_published. */
int ct_job_link_publish(struct ct_job_link *link, const struct ct_msg_publish *publish);
int ct_job_link_published(struct ct_job_link *link, int timeout_ms, struct ct_error *err);

/* Return the agent's store, as groups use it. */
struct ct_kv ct_job_link_kv(struct ct_job_link *link);

#endif
