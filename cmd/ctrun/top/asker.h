/* Asks the rendezvous beside the screen: a thread, since an answer may take seconds and keys may
 * not. Once a second the status and the events since the last answer; in between an order.
 *
 * All calls are the screen's thread's. */
#ifndef CT_CTRUN_TOP_ASKER_H
#define CT_CTRUN_TOP_ASKER_H

#include "cmd/ctrun/operators/admin_uv.h"
#include "cmd/ctrun/top/core/top.h"

struct top_asker;

/* What has come since the last look. The caller frees it with top_news_deinit. */
struct top_news {
    struct top_snapshot *snapshot; /* NULL: none */
    struct ct_buf events;          /* records, a line each */
    struct ct_error no_events;     /* why none can be asked for; code 0: they can */
    struct ct_error error;         /* code 0: the last status came, or none was due */
    bool was_asked;                /* a status came or failed */
    bool was_ordered;              /* an order was answered: */
    struct ct_error refusal;       /* code 0: it was carried out, ... */
    char answer[1024];             /* ... with this */
};

void top_news_deinit(struct top_news *news);

/* Begin to ask. `where` stays the caller's and unchanged; `wake_fd` (an eventfd) gets a count when
 * there is news. 0, or CT_ENOMEM or CT_EOS. */
int top_asker_start(struct top_asker **ret, const struct admin_request *where, int wake_fd,
                    struct ct_error *err);

/* Take the news. */
void top_asker_take(struct top_asker *asker, struct top_news *ret);

/* Send an order as soon as nothing is being asked. */
void top_asker_order(struct top_asker *asker, const struct top_order *order);

/* End. False: it waits for an answer that has not come within a moment, and uses `where` until the
 * process ends. */
bool top_asker_stop(struct top_asker *asker);

#endif
