/* Hosts the rendezvous on this node, or joins an existing one.
 *
 *   the node is alone    an embedded server on an AF_UNIX socket in a private folder
 *                        (local_socket.h)
 *   node_rank above 0    join the rendezvous on the endpoint
 *   several endpoints    the node at the first hosts, unless another one answers; all join
 *   otherwise            bind the endpoint: the node that succeeds hosts; when the address is taken
 *                        or is another machine's, join the listener there (a ctrund, another ctrun)
 *
 * Names are never compared: whether the bind succeeds decides.
 *
 * The rendezvous of several nodes is not its host's alone: the record of the job lives on two to
 * five of them (rendezvous/replica), and each node offers to hold it. Then the host may die. */
#ifndef CT_CTRUN_AGENT_HOST_UV_H
#define CT_CTRUN_AGENT_HOST_UV_H

#include "base/log/log.h"
#include "cmd/ctrun/agent/job/launch_job.h"
#include "endpoint_list.h"
#include "keys/certificates.h"
#include "rendezvous/page/page_uv.h"
#include "rendezvous/server/server_uv.h"
#include "slurm/scontrol_uv.h"

enum { SLURM_NODES = 64 /* of a job: more are not asked for */ };

struct host {
    struct ct_rdzv_server *server;      /* NULL: another process serves */
    struct ct_page_server *page;        /* of that server; NULL: nobody asked for it */
    char endpoint[ENDPOINT_LIST_BYTES]; /* for ct_agent_start: one, or several with commas */
    char door[CT_ENDPOINT_TEXT];        /* this node's own among them; "": none, or hosted there */
    char address[64];                   /* at which other nodes reach this one */
    struct ct_id id;                    /* of this node's agent, by which its own server knows it */
    struct ct_error unbound;            /* why it is not hosted here, when that was tried */
    struct ct_scontrol *slurm; /* who says whether the job's other nodes are down; NULL: nobody */
    const char *others[SLURM_NODES];   /* ... by Slurm's names */
    const struct ct_slurm *allocation; /* of which they are; NULL: likewise */
    bool replicated;                   /* the server here may hold the record beside others */
    struct ct_certificate_files tls;   /* of the server here */
};

/* Start the rendezvous server of this node, and its page where --status asks for it. 0; CT_EAUTH
 * (beyond loopback without a key), CT_EUSAGE, or the error of ct_rdzv_server_start. */
int host_start(struct host *host, uv_loop_t *loop, const struct job *job, const struct ct_log *log,
               struct ct_error *err);

/* The rendezvous is another node's, which asks who could hold the job's record: begin to listen for
 * that, and say where. False when this node cannot. */
bool host_offer(struct host *host, uv_loop_t *loop, const struct job *job, const struct ct_log *log,
                const struct ct_msg_voters *voters, struct ct_msg_offer *ret_offer);

/* Close the page, before the server is stopped. */
void host_hide(struct host *host);

/* The server has ended, or none was started: release what is left. */
void host_close(struct host *host);

/* Are all who held the job's record dead, as far as this node knows? */
bool host_is_orphan(const struct host *host);

/* Does the rendezvous of the job run here now? */
bool host_leads(const struct host *host);

#endif
