/* A parameter server: part of the state, and the service through which workers reach it.
 *
 *     ct_ps_server_new      zeroed, for as long as this process is that server
 *     ct_ps_server_run      one round: listen, publish the address, serve until all have sent BYE
 *
 *     HELLO ... STORE, BEGIN (worker 0), then of each worker PULL, PUSH, COMMIT, PULL ..., BYE
 *
 * Its state stays between rounds: a round that breaks off leaves the state of the last update, and
 * the next one may continue from it. One thread; it sleeps in its loop and computes updates there.
 *
 * Memory: the part's ranges, one gradient per worker, and lib/rpc's limit for each connection. */
#ifndef CT_COLL_PS_SERVER_UV_H
#define CT_COLL_PS_SERVER_UV_H

#include "collectives/ps/protocol.h"
#include "collectives/ps/ps_update.h"
#include "collectives/reduce/reduce.h"
#include "ctrun.h"

struct ct_ps_server;

/* Make server `index` of `count`. `plan` is not kept; `device` is borrowed. 0, or a code with its
 * sentence. */
struct ct_ps_server_options {
    const struct ct_plan *plan;
    struct ct_device *device;
    int index, count;
};
int ct_ps_server_new(struct ct_ps_server **ret_server, const struct ct_ps_server_options *options,
                     struct ct_error *err);
void ct_ps_server_free(struct ct_ps_server *server);

/* Return whether it is server `index` of `count`. */
bool ct_ps_server_is(const struct ct_ps_server *server, int index, int count);

/* Return what it holds; lineage 0: no state. */
struct ct_ps_holding ct_ps_server_holding(const struct ct_ps_server *server);

/* A round from the server's side. Callbacks may be called every 10 ms and must return quickly. */
struct ct_ps_round {
    struct ct_job *job;
    int workers;
    uint64_t staleness;         /* ps_schedule.h */
    enum ct_reduce_order order; /* of the sums of gradients */
    uint64_t hash;              /* of the configuration, that of every worker */
    struct ct_group *servers;   /* all servers, for the norm; NULL: this is the only one */
    bool encrypt;               /* TLS on loopback, too */
    bool ends_on_loss;          /* the agent ends the round when a worker is lost */
    int (*check)(void *context, struct ct_error *err); /* not 0 ends the round with it */
    void (*on_begin)(void *context);                   /* the state is complete */
    void (*on_step)(void *context, uint64_t step);     /* `step` steps are completed */
    void *context;
};

/* Serve the round. 0 when all workers have left in order, with the reason in `*ret_end`; else the
 * code that ended it, with its sentence: what `check` returned, CT_ECLOSED for a lost worker where
 * no agent ends the round, or an error of the network. */
int ct_ps_server_run(struct ct_ps_server *server, const struct ct_ps_round *round,
                     enum ct_ps_end *ret_end, struct ct_error *err);

#endif
