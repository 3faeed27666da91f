/* member.h on a loop: one connection at a time and one timer. */
#include "rendezvous/client/agent_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "keys/key_source.h"
#include "net/conn_uv.h"
#include "rendezvous/client/endpoints.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct ct_agent {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct ct_member member;
    const struct ct_clock *clock;
    struct ct_conn *conn; /* NULL: none */
    bool is_open;
    struct ct_endpoints endpoints;
    char endpoint[CT_ENDPOINT_TEXT]; /* that is being tried */
    struct ct_key key;
    bool has_key;
    struct ct_key_source source; /* of `key`; its strings are `paths` */
    char *paths[4];
    struct ct_error connect_error; /* of a connection that could not even be begun */
    void (*stopped)(void *context);
    char run_id[129];
    char host[CT_RDZV_HOST_BYTES];
    char address[CT_RDZV_ADDRESS_BYTES];
    char role[CT_RDZV_ROLE_BYTES];
};

static uint64_t now_ms(const struct ct_agent *agent)
{
    return ct_clock_mono_ms(agent->clock);
}

static void on_timer(uv_timer_t *timer);

/* Set the timer to what is due next. */
static void rearm(struct ct_agent *agent)
{
    if (uv_is_closing((uv_handle_t *)&agent->timer))
        return;
    uint64_t due = ct_member_deadline(&agent->member);
    uint64_t now = now_ms(agent);
    if (agent->connect_error.code != 0)
        due = now;
    if (due == UINT64_MAX)
        (void)uv_timer_stop(&agent->timer);
    else
        (void)uv_timer_start(&agent->timer, on_timer, due > now ? due - now : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_agent *agent = timer->data;
    struct ct_error error = agent->connect_error;
    agent->connect_error = (struct ct_error){0};
    if (error.code != 0)
        ct_member_disconnected(&agent->member, now_ms(agent), &error);
    else
        ct_member_tick(&agent->member, now_ms(agent));
    rearm(agent);
}

/* ---- the connection: callbacks of one that was given up find no agent ---- */

static void on_open(struct ct_conn *conn)
{
    struct ct_agent *agent = ct_conn_user(conn);
    if (agent == NULL)
        return;
    agent->is_open = true;
    ct_endpoints_opened(&agent->endpoints);
    ct_member_connected(&agent->member, now_ms(agent));
    rearm(agent);
}

static void receive_voters(struct ct_agent *agent, const struct ct_msg_voters *voters)
{
    const struct ct_member *member = &agent->member;
    ct_endpoints_learn(&agent->endpoints, voters);
    if (voters->epoch != 0 && !member->muted && member->on.on_voters != NULL)
        member->on.on_voters(member->on.context, voters);
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct ct_agent *agent = ct_conn_user(conn);
    if (agent == NULL)
        return;
    if (message->type == CT_MSG_VOTERS)
        receive_voters(agent, &message->voters);
    ct_member_message(&agent->member, now_ms(agent), message);
    rearm(agent);
}

static bool dial_next(struct ct_agent *agent);

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct ct_agent *agent = ct_conn_user(conn);
    if (agent == NULL)
        return;
    agent->conn = NULL;
    if (ct_endpoints_go_on(&agent->endpoints, agent->is_open) && dial_next(agent))
        return;
    ct_member_disconnected(&agent->member, now_ms(agent), why);
    rearm(agent);
}

static void on_waiting(struct ct_conn *conn, uint64_t waited_ms, const char *what, bool accepted)
{
    struct ct_agent *agent = ct_conn_user(conn);
    char text[512];
    (void)waited_ms;
    if (agent == NULL)
        return;
    (void)snprintf(text, sizeof(text), "waits for the rendezvous: %s", what);
    ct_member_waiting(&agent->member, now_ms(agent), text, accepted);
    rearm(agent);
}

static const struct ct_conn_callbacks callbacks_of_conn = {
    .on_open = on_open,
    .on_message = on_message,
    .on_close = on_close,
    .on_waiting = on_waiting,
};

static void io_send(void *context, const struct ct_message *message)
{
    struct ct_agent *agent = context;
    if (agent->conn != NULL)
        (void)ct_conn_send(agent->conn, message, NULL);
}

/* False with the reason in connect_error. */
static bool dial_next(struct ct_agent *agent)
{
    struct ct_endpoint_try next = ct_endpoints_next(&agent->endpoints, now_ms(agent));
    struct ct_conn_options options = {
        .from = CT_FROM_SERVER,
        .key = agent->has_key ? &agent->key : NULL,
        .job = agent->run_id,
        .accept_expired = agent->member.was_joined,
        .queue_limit = CT_WIRE_VALUE * 2,
        .connect_ms = next.connect_ms,
        .once = next.once,
        .user_timeout_ms = agent->member.options.params.lease_ms,
        .seed = agent->member.options.id.low,
        .source = agent->member.options.source,
    };
    CT_ASSERT(agent->conn == NULL);
    if (agent->has_key)
        ct_key_source_reload(&agent->source, &agent->key);
    agent->connect_error = (struct ct_error){0};
    agent->is_open = false;
    (void)ct_endpoint_print(next.endpoint, agent->endpoint);
    if (ct_conn_connect(agent->loop, next.endpoint, &options, &callbacks_of_conn, agent,
                        &agent->conn, &agent->connect_error) != 0)
        agent->conn = NULL;
    return agent->conn != NULL;
}

static void io_connect(void *context, uint64_t give_up_ms)
{
    struct ct_agent *agent = context;
    ct_endpoints_begin(&agent->endpoints, now_ms(agent), give_up_ms,
                       ct_member_nodes(&agent->member));
    (void)dial_next(agent);
}

static void io_disconnect(void *context)
{
    struct ct_agent *agent = context;
    struct ct_conn *conn = agent->conn;
    agent->conn = NULL;
    agent->connect_error = (struct ct_error){0};
    if (conn == NULL)
        return;
    ct_conn_set_user(conn, NULL);
    ct_conn_close(conn, 0, NULL);
}

/* ---- starting and stopping ---- */

static int check(const struct ct_agent_options *options, struct ct_error *err)
{
    if (options->run_id == NULL || options->run_id[0] == '\0' || strlen(options->run_id) > 128)
        return ct_error_set(err, CT_EUSAGE, "the run id must have 1 to 128 characters");
    if (options->host == NULL || options->host[0] == '\0' ||
        strlen(options->host) >= CT_RDZV_HOST_BYTES)
        return ct_error_set(err, CT_EUSAGE, "a node's name must have 1 to %d characters",
                            CT_RDZV_HOST_BYTES - 1);
    if (options->address != NULL && strlen(options->address) >= CT_RDZV_ADDRESS_BYTES)
        return ct_error_set(err, CT_EUSAGE, "a node's address must have at most %d characters",
                            CT_RDZV_ADDRESS_BYTES - 1);
    if (options->role != NULL && strlen(options->role) >= CT_RDZV_ROLE_BYTES)
        return ct_error_set(err, CT_EUSAGE, "a role must have at most %d characters",
                            CT_RDZV_ROLE_BYTES - 1);
    if (options->slots == 0 || options->slots > CT_RDZV_SLOTS_LIMIT)
        return ct_error_set(err, CT_EUSAGE, "%u workers on a node: 1 to %d are possible",
                            options->slots, CT_RDZV_SLOTS_LIMIT);
    return ct_rdzv_params_check(&options->params, err);
}

static int load_key(struct ct_agent *agent, const struct ct_agent_options *options,
                    struct ct_error *err)
{
    const struct ct_certificate_files none = {0},
                                      *tls = options->tls != NULL ? options->tls : &none;
    const char *const paths[] = {options->key_file, tls->chain, tls->key, tls->ca};
    const struct ct_key_source given = {.key_file = options->key_file, .tls = *tls};

    if (!ct_key_source_given(&given))
        return 0;
    int rc = ct_key_source_load(&given, &agent->key, err);
    agent->has_key = rc == 0;
    for (size_t i = 0; rc == 0 && i < CT_COUNT(paths); i++) {
        agent->paths[i] = strdup(paths[i] != NULL ? paths[i] : "");
        if (agent->paths[i] == NULL)
            rc = ct_error_set(err, CT_ENOMEM, "no memory for the agent's link");
    }
    agent->source = (struct ct_key_source){agent->paths[0],
                                           {agent->paths[1], agent->paths[2], agent->paths[3]}};
    return rc;
}

static void free_agent(struct ct_agent *agent)
{
    ct_net_key_wipe(&agent->key);
    for (size_t i = 0; i < CT_COUNT(agent->paths); i++)
        free(agent->paths[i]);
    free(agent);
}

static int prepare(struct ct_agent *agent, const struct ct_agent_options *options,
                   const struct ct_agent_callbacks *callbacks, struct ct_error *err)
{
    int rc = ct_endpoints_init(&agent->endpoints, options->endpoint, err);
    if (rc == 0)
        rc = load_key(agent, options, err);
    if (rc != 0)
        return rc;
    struct ct_agent_options own = *options;
    ct_str_copy(agent->run_id, sizeof(agent->run_id), options->run_id);
    ct_str_copy(agent->host, sizeof(agent->host), options->host);
    ct_str_copy(agent->address, sizeof(agent->address), options->address ? options->address : "");
    ct_str_copy(agent->role, sizeof(agent->role), options->role ? options->role : "default");
    own.run_id = agent->run_id;
    own.host = agent->host;
    own.address = agent->address;
    own.role = agent->role;
    own.endpoint = agent->endpoint;
    own.key_file = NULL;
    own.tls = NULL;
    if (own.id.high == 0 && own.id.low == 0 &&
        getrandom(&own.id, sizeof(own.id), 0) != (ssize_t)sizeof(own.id))
        return ct_error_set(err, CT_EOS, "getrandom gave no random bytes");
    struct ct_member_io io = {
        .context = agent, .send = io_send, .connect = io_connect, .disconnect = io_disconnect};
    ct_member_init(&agent->member, &own, callbacks, &io, own.id.high ^ own.id.low);
    return 0;
}

int ct_agent_start(struct ct_agent **ret_agent, uv_loop_t *loop,
                   const struct ct_agent_options *options,
                   const struct ct_agent_callbacks *callbacks, struct ct_error *err)
{
    int rc = check(options, err);
    if (rc != 0)
        return rc;
    struct ct_agent *agent = calloc(1, sizeof(*agent));
    if (agent == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the agent's link");
    agent->loop = loop;
    agent->clock = options->clock != NULL ? options->clock : &ct_clock_system;
    rc = prepare(agent, options, callbacks, err);
    if (rc != 0) {
        free_agent(agent);
        return rc;
    }
    (void)uv_timer_init(loop, &agent->timer);
    agent->timer.data = agent;
    ct_member_start(&agent->member, now_ms(agent));
    rearm(agent);
    *ret_agent = agent;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_agent *agent = handle->data;
    void (*stopped)(void *context) = agent->stopped;
    void *context = agent->member.on.context;
    ct_member_deinit(&agent->member);
    free_agent(agent);
    if (stopped != NULL)
        stopped(context);
}

void ct_agent_stop(struct ct_agent *agent, void (*stopped)(void *context))
{
    if (agent == NULL)
        return;
    agent->stopped = stopped;
    ct_member_stop(&agent->member);
    uv_close((uv_handle_t *)&agent->timer, on_timer_closed);
}

/* ---- what the node says ---- */

const char *ct_agent_endpoint(const struct ct_agent *agent)
{
    return agent->endpoint;
}

void ct_agent_prepared(struct ct_agent *agent, const struct ct_prepared *prepared)
{
    ct_member_prepared(&agent->member, prepared);
}

void ct_agent_state_recovered(struct ct_agent *agent, uint64_t generation)
{
    ct_member_state_recovered(&agent->member, generation);
    rearm(agent);
}

int ct_agent_publish(struct ct_agent *agent, const struct ct_msg_publish *publication)
{
    return ct_member_publish(&agent->member, publication);
}

void ct_agent_progress(struct ct_agent *agent, const struct ct_msg_progress *progress)
{
    ct_member_progress(&agent->member, progress);
}

void ct_agent_store_waits(struct ct_agent *agent, const struct ct_msg_store_waits *waits)
{
    ct_member_store_waits(&agent->member, waits);
}

void ct_agent_offer(struct ct_agent *agent, const struct ct_msg_offer *offer)
{
    const struct ct_message message = {.type = CT_MSG_OFFER, .offer = *offer};
    ct_endpoints_set_own(&agent->endpoints, offer->address);
    io_send(agent, &message);
}

void ct_agent_flight_reply(struct ct_agent *agent, const struct ct_msg_flight_reply *reply)
{
    ct_member_flight_reply(&agent->member, reply);
}

void ct_agent_figures(struct ct_agent *agent, const struct ct_msg_figures *figures)
{
    ct_member_figures(&agent->member, figures);
}

bool ct_agent_takes_lines(const struct ct_agent *agent)
{
    return agent->member.phase == CT_MEMBER_JOINED && agent->conn != NULL &&
           ct_conn_queued(agent->conn) < CT_AGENT_LINES_BYTES;
}

void ct_agent_lines(struct ct_agent *agent, const struct ct_msg_lines *lines)
{
    ct_member_lines(&agent->member, lines);
}

void ct_agent_lines_query(struct ct_agent *agent, const struct ct_msg_lines_query *query)
{
    ct_member_lines_query(&agent->member, query);
}

void ct_agent_failure(struct ct_agent *agent, uint64_t generation,
                      const struct ct_wire_failure *failure)
{
    ct_member_failure(&agent->member, now_ms(agent), generation, failure);
}

void ct_agent_done(struct ct_agent *agent, uint64_t generation)
{
    ct_member_done(&agent->member, generation);
}

void ct_agent_leave(struct ct_agent *agent, enum ct_rdzv_leave how)
{
    ct_member_leave(&agent->member, how);
}

int ct_agent_store(struct ct_agent *agent, uint64_t request, const struct ct_message *op)
{
    return ct_member_store(&agent->member, request, op);
}
