/* The server's private state: ps_server_uv.c listens and ends, ps_serve_uv.c answers calls. */
#ifndef CT_COLL_PS_SERVER_STATE_UV_H
#define CT_COLL_PS_SERVER_STATE_UV_H

#include "collectives/ps/ps_address.h"
#include "collectives/ps/ps_schedule.h"
#include "collectives/ps/ps_server_uv.h"
#include "rpc/rpc_uv.h"

/* The registration of a worker in the round. */
struct ct_ps_registration {
    struct ct_rpc_caller *caller; /* NULL: not connected */
    bool left, lost;
    char *slot; /* its gradient, the part's bytes */
    struct ct_ps_commit commit;
};

/* A PULL whose step the worker may not begin yet. */
struct ct_ps_open_pull {
    struct ct_rpc_caller *caller;
    uint64_t id;
    int worker;
    struct ct_ps_pull pull;
};

struct ct_ps_note {
    size_t bytes;
    unsigned char data[CT_PS_NOTE_MAX];
};

struct ct_ps_server {
    struct ct_device *device;
    struct ct_ps_update *update;
    int index, count;
    size_t flat_bytes;

    /* kept across rounds */
    uint64_t lineage; /* 0: no state */
    uint64_t step, updates;
    double loss, correct, sumsq; /* of the last step */
    struct ct_ps_note note;      /* of that step */

    /* of the round */
    struct ct_ps_holding initial; /* at the round's beginning: the same for each HELLO */
    struct ct_ps_note initial_note;
    const struct ct_ps_round *round;
    uint64_t generation;
    uv_loop_t loop;
    uv_timer_t tick;
    struct ct_rpc_server *service;
    struct ct_ps_address address;
    struct ct_ps_registration *registrations; /* of each worker */
    const void **sources;                     /* of a sum over workers; an entry each */
    void *slots;
    struct ct_ps_schedule schedule;
    struct ct_ps_open_pull *open_pulls;
    int open_pull_count;
    unsigned char *answer;       /* of a PULL: head and block */
    struct ct_ps_note next_note; /* of the step that is under way */
    bool stored, begun, over;
    uint64_t lost_ms; /* when the first worker was lost; 0: none */
    enum ct_ps_end end;
    int code;
    struct ct_error why;
};

/* End the round with `code` (0: all workers have left). Only the first call counts. */
void ct_ps_server_end(struct ct_ps_server *server, int code, const char *sentence);

/* Answer a call; note that a caller is gone. */
void ct_ps_server_on_call(void *context, struct ct_rpc_caller *caller,
                          const struct ct_msg_call *message);
void ct_ps_server_on_gone(void *context, struct ct_rpc_caller *caller, const struct ct_error *why);

#endif
