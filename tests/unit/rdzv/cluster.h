/* A real server and real agents on one loop, for tests: agents answer PREPARE at once, and record
 * their callbacks. */
#ifndef CT_TEST_RDZV_CLUSTER_H
#define CT_TEST_RDZV_CLUSTER_H

#include "rendezvous/client/agent_uv.h"
#include "rendezvous/server/server_uv.h"

#include <stdbool.h>

enum { CLUSTER_NODES = 16, CLUSTER_REPLIES = 64 };

struct node_reply {
    uint64_t request;
    int code;
    int64_t number;
    char value[128];
};

struct node {
    struct cluster *cluster;
    struct ct_agent *agent;
    char host[16];
    uint64_t prepares;
    uint64_t generation; /* of the last round, 0: none or revoked */
    uint32_t self, node_count, world, restarts;
    char first_host[16]; /* of the round's node 0 */
    enum ct_rdzv_reason reason;
    bool hold; /* PREPARE is not answered */
    bool closed, released, failed, link_down;
    struct ct_rdzv_result result;
    char cause_room[CT_FAILURE_ROOM(CT_FAILURE_TEXT_BYTES)]; /* of the result's */
    struct ct_error error;
    char waiting[1024];
    struct node_reply replies[CLUSTER_REPLIES];
    size_t reply_count;
};

struct cluster {
    uv_loop_t loop;
    char dir[64];
    char endpoint[160];
    struct ct_rdzv_server *server;
    struct node nodes[CLUSTER_NODES];
    size_t node_count;
    struct ct_rdzv_params params;
    size_t stopped;
};

/* A server on an AF_UNIX socket in a fresh directory, or on a loopback port. */
void cluster_init(struct cluster *c, bool tcp, uint32_t nodes_min, uint32_t nodes_max);
void cluster_init_for(struct cluster *c, const char *only_job);
void cluster_deinit(struct cluster *c);

/* Start an agent; its index. */
struct node *cluster_add(struct cluster *c, const char *host, int32_t node_rank);
struct node *cluster_add_for(struct cluster *c, const char *host, const char *run_id);

/* Stop an agent as if its process had died: the connection closes without a message. */
void cluster_kill(struct node *node);

/* Run the loop until the condition holds; false after 10 s. */
bool cluster_until(struct cluster *c, bool (*condition)(const struct cluster *c));
bool cluster_until_node(struct node *node, bool (*condition)(const struct node *node));

#endif
