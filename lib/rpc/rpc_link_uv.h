/* Shared by both ends. Inside of lib/rpc only. */
#ifndef CT_RPC_LINK_UV_H
#define CT_RPC_LINK_UV_H

#include "net/conn_uv.h"
#include "rpc/rpc_uv.h"

enum {
    CT_RPC_QUEUE_BYTES = 16 << 20,
    CT_RPC_CALLERS = 1024,
};

/* Return the options of a connection whose peer sends as `from`. */
static inline struct ct_conn_options ct_rpc_conn_options(const struct ct_rpc_options *options,
                                                         unsigned from)
{
    return (struct ct_conn_options){
        .from = from,
        .key = options->key,
        .job = options->name,
        .queue_limit = options->queue_limit > 0 ? options->queue_limit : CT_RPC_QUEUE_BYTES,
        .connect_ms = options->connect_ms,
    };
}

#endif
