/* A worker's end of the parameter servers: whole ranges from and to all of them at once.
 *
 *     ct_ps_client_new      find the servers, send HELLO to each
 *     [ct_ps_client_store]  worker 0, when the servers hold no state to continue from
 *     [ct_ps_client_begin]  worker 0
 *     ct_ps_client_pull     parameters for the first step
 *     ct_ps_client_push..., ct_ps_client_commit, ct_ps_client_pull      a step
 *     ct_ps_client_bye
 *
 *     flat range   [ server 0's part | server 1's part | ... ]   in blocks, some in flight to each
 *
 * All calls block: they run an event loop until all servers have answered, `check` reports that the
 * round is over, or the timeout has passed. After a failure the client can only be freed. One
 * thread at a time calls. After ct_ps_client_new only messages are allocated. */
#ifndef CT_COLL_PS_CLIENT_UV_H
#define CT_COLL_PS_CLIENT_UV_H

#include "collectives/ps/protocol.h"
#include "ctrun.h"

#include <stdbool.h>

struct ct_ps_client;

struct ct_ps_client_options {
    struct ct_job *job;
    int worker, workers, servers;
    uint64_t hash;                                     /* of the configuration */
    size_t flat_bytes;                                 /* of a range */
    size_t block_bytes;                                /* of one call; 0: 1 MiB */
    uint64_t timeout_ms;                               /* of each call */
    int (*check)(void *context, struct ct_error *err); /* each 10 ms; not 0 ends the call with it */
    void *context;
};

/* Find the servers in the job's store, and send HELLO to each. 0, or a code with its sentence: the
 * server's refusal, CT_ETIMEOUT, or what `check` returned. */
int ct_ps_client_new(struct ct_ps_client **ret_client, const struct ct_ps_client_options *options,
                     struct ct_error *err);
void ct_ps_client_free(struct ct_ps_client *client);

/* Return what a server held when it was found, and worker 0's note of that step in `*ret_note` (a
 * view that lives as long as the client; may be NULL). */
struct ct_ps_holding ct_ps_client_holding(const struct ct_ps_client *client, int server,
                                          struct ct_bytes *ret_note);

/* Store a whole range in the servers; fetch it. */
int ct_ps_client_store(struct ct_ps_client *client, int range, const void *data,
                       struct ct_error *err);
int ct_ps_client_fetch(struct ct_ps_client *client, int range, void *data, struct ct_error *err);

/* Begin the round: the servers have the state. */
int ct_ps_client_begin(struct ct_ps_client *client, const struct ct_ps_begin *begin,
                       struct ct_bytes note, struct ct_error *err);

/* Push `bytes` of the gradient of `step`, from offset `at` of the flat range on. The servers have
 * them when this returns. */
int ct_ps_client_push(struct ct_ps_client *client, uint64_t step, size_t at, const void *gradient,
                      size_t bytes, struct ct_error *err);

/* Commit a gradient that was pushed completely; the note is worker 0's. */
int ct_ps_client_commit(struct ct_ps_client *client, const struct ct_ps_commit *commit,
                        struct ct_bytes note, struct ct_error *err);

/* Pull the parameters to begin `step` with; waits until this worker may begin it (ps_schedule.h).
 * `*ret_pulled` gets server 0's answer. */
int ct_ps_client_pull(struct ct_ps_client *client, uint64_t step, void *params,
                      struct ct_ps_pulled *ret_pulled, struct ct_error *err);

/* Leave the round. */
int ct_ps_client_bye(struct ct_ps_client *client, enum ct_ps_end reason, struct ct_error *err);

#endif
