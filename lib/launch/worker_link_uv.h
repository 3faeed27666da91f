/* The agent's end of a worker link: messages over a socketpair whose other end the worker inherits
 * as descriptor CT_CONTROL_FD.
 *
 * A worker that is no program of ours never touches it. One that breaks the protocol loses the
 * link, not its life. On the loop's thread. */
#ifndef CT_LAUNCH_WORKER_LINK_UV_H
#define CT_LAUNCH_WORKER_LINK_UV_H

#include "base/error.h"
#include "wire/wire.h"

#include <uv.h>

struct ct_worker_link;

struct ct_worker_link_callbacks {
    void *context;
    uint32_t worker; /* given back to the callbacks */
    /* A message; its strings live until the callback returns. */
    void (*on_message)(void *context, uint32_t worker, const struct ct_message *message);
    /* The worker broke the protocol, or does not read while much is sent: the link is closed. */
    void (*on_broken)(void *context, uint32_t worker, const struct ct_error *error);
};

/* Create a new link; `*ret_fd` is the worker's end, the caller's to close. CT_EOS, CT_ENOMEM. */
int ct_worker_link_new(struct ct_worker_link **ret_link, uv_loop_t *loop,
                       const struct ct_worker_link_callbacks *callbacks, int *ret_fd,
                       struct ct_error *err);

/* Send a message; a no-op on a closed link. Beyond CT_LINK_QUEUE bytes unread by the worker the
 * link breaks. */
enum { CT_LINK_QUEUE = 32 << 20 };
void ct_worker_link_send(struct ct_worker_link *link, const struct ct_message *message);

/* Deliver the messages that arrived before the worker's end. */
void ct_worker_link_drain(struct ct_worker_link *link);

/* Close and free it; NULL is ignored. No callback comes any more. */
void ct_worker_link_free(struct ct_worker_link *link);

#endif
