/* See ps_server_uv.h: the state, and the round around the calls. */
#include "collectives/ps/ps_server_state_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "collectives/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* TICK_MS: the interval of checks for the round's end. LOST_MS: how long a round without one of its
 * workers waits until the agent ends it. */
enum { TICK_MS = 10, LOST_MS = 60000 };

int ct_ps_server_new(struct ct_ps_server **ret_server, const struct ct_ps_server_options *options,
                     struct ct_error *err)
{
    size_t flat_bytes = options->plan->flat_bytes;
    struct ct_ps_part part = ct_ps_part(flat_bytes, options->index, options->count);
    struct ct_ps_server *server = calloc(1, sizeof *server);

    if (server == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a parameter server");
    server->device = options->device;
    server->index = options->index;
    server->count = options->count;
    server->flat_bytes = flat_bytes;
    int code = ct_ps_update_new(&server->update, options->plan, part, options->device, err);
    if (code != 0) {
        free(server);
        return code;
    }
    *ret_server = server;
    return 0;
}

void ct_ps_server_free(struct ct_ps_server *server)
{
    if (server == NULL)
        return;
    ct_ps_update_free(server->update);
    free(server);
}

bool ct_ps_server_is(const struct ct_ps_server *server, int index, int count)
{
    return server->index == index && server->count == count;
}

struct ct_ps_holding ct_ps_server_holding(const struct ct_ps_server *server)
{
    return (struct ct_ps_holding){.lineage = server->lineage,
                                  .step = server->step,
                                  .loss = server->loss,
                                  .correct = server->correct,
                                  .sumsq = server->sumsq};
}

/* ---- a round --------------------------------------------------------------------------------- */

void ct_ps_server_end(struct ct_ps_server *server, int code, const char *sentence)
{
    if (server->over)
        return;
    server->over = true;
    server->code = code;
    if (code != 0)
        (void)ct_error_set(&server->why, code, "%s", sentence);
    uv_stop(&server->loop);
}

static void on_tick(uv_timer_t *tick)
{
    struct ct_ps_server *server = tick->data;
    struct ct_error why = {0};
    int code = server->round->check(server->round->context, &why);

    if (code != 0)
        ct_ps_server_end(server, code, why.text);
    else if (server->lost_ms != 0 && uv_now(&server->loop) - server->lost_ms > LOST_MS)
        ct_ps_server_end(server, CT_ECLOSED, "a worker is lost, and nobody has ended the round");
}

/* Loopback where all are on this node, and else the node's address under TLS. */
static int choose_address(struct ct_ps_server *server, struct ct_error *err)
{
    const struct ct_job *job = server->round->job;
    bool far = job->assignment.nnodes > 1;
    struct ct_ps_address *address = &server->address;

    *address = (struct ct_ps_address){.encrypted = far || server->round->encrypt};
    if (far && job->address[0] == '\0')
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "the node of parameter server %d has no address that other nodes can "
                            "reach: give one with --local-addr",
                            server->index);
    (void)ct_str_copy(address->endpoint.host, sizeof address->endpoint.host,
                      far ? job->address : "127.0.0.1");
    if (getrandom(address->token, sizeof address->token, 0) != (ssize_t)sizeof address->token ||
        getrandom(address->key.secret, CT_KEY_BYTES, 0) != CT_KEY_BYTES)
        return ct_error_set(err, CT_EOS, "the system gives no random numbers");
    return 0;
}

static int listen_and_publish(struct ct_ps_server *server, struct ct_error *err)
{
    const struct ct_rpc_service service = {ct_ps_server_on_call, ct_ps_server_on_gone, server};
    const struct ct_kv *kv = &server->round->job->kv;
    struct ct_ps_address *address = &server->address;
    const struct ct_rpc_options options = {.key = address->encrypted ? &address->key : NULL,
                                           .name = server->round->job->run_id};
    unsigned char bytes[CT_PS_ADDRESS_BYTES];
    char key[CT_PS_ADDRESS_KEY];

    if (kv->set == NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "a parameter server is a worker of its own: start it by ctrun");
    int code =
        ct_rpc_serve(&server->loop, &address->endpoint, &options, &service, &server->service, err);
    if (code != 0)
        return code;
    address->endpoint = *ct_rpc_server_endpoint(server->service);
    size_t size = ct_ps_address_put(address, bytes);
    code = kv->set(kv->context, ct_ps_address_key(server->index, key), bytes, size);
    return code == 0 ? 0
                     : ct_error_set(err, code,
                                    "the rendezvous does not take the address of "
                                    "parameter server %d: %s",
                                    server->index, ct_strerror(code));
}

static int allocate(struct ct_ps_server *server, struct ct_error *err)
{
    size_t workers = (size_t)server->round->workers;
    size_t bytes = ct_ps_update_part(server->update).bytes;
    int code = 0;

    server->registrations = calloc(workers, sizeof *server->registrations);
    server->sources = calloc(workers, sizeof *server->sources);
    server->schedule.progress = calloc(workers, sizeof *server->schedule.progress);
    server->open_pulls = calloc(workers * CT_RPC_OPEN_MAX, sizeof *server->open_pulls);
    server->answer = malloc(CT_PS_HEAD_BYTES + CT_PS_BLOCK_MAX);
    if (server->registrations == NULL || server->sources == NULL ||
        server->schedule.progress == NULL || server->open_pulls == NULL || server->answer == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for %zu workers", workers);
    if (bytes > 0)
        code = ct_device_alloc(server->device, workers * bytes, &server->slots, err);
    for (size_t i = 0; i < workers; i++)
        server->registrations[i].slot = (char *)server->slots + i * bytes;
    return code;
}

static void release(struct ct_ps_server *server)
{
    size_t workers = (size_t)server->round->workers;

    ct_device_release(server->device, server->slots,
                      workers * ct_ps_update_part(server->update).bytes);
    free(server->registrations);
    free(server->sources);
    free(server->schedule.progress);
    free(server->open_pulls);
    free(server->answer);
    server->slots = NULL;
    server->registrations = NULL;
    server->sources = NULL;
    server->schedule.progress = NULL;
    server->open_pulls = NULL;
    server->answer = NULL;
}

static int serve(struct ct_ps_server *server, struct ct_error *err)
{
    int code = choose_address(server, err);

    if (code == 0)
        code = listen_and_publish(server, err);
    if (code != 0)
        return code;
    (void)uv_timer_start(&server->tick, on_tick, TICK_MS, TICK_MS);
    if (!server->over)
        (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    if (server->code != 0 && err != NULL)
        *err = server->why;
    return server->code;
}

int ct_ps_server_run(struct ct_ps_server *server, const struct ct_ps_round *round,
                     enum ct_ps_end *ret_end, struct ct_error *err)
{
    server->round = round;
    server->initial = ct_ps_server_holding(server);
    server->initial_note = server->note;
    server->generation = round->job->assignment.generation;
    server->service = NULL;
    server->open_pull_count = 0;
    server->stored = server->begun = server->over = false;
    server->lost_ms = 0;
    server->end = CT_PS_COMPLETE;
    server->code = 0;
    if (uv_loop_init(&server->loop) != 0)
        return ct_error_set(err, CT_EOS, "no event loop for a parameter server");
    (void)uv_timer_init(&server->loop, &server->tick);
    server->tick.data = server;
    int code = allocate(server, err);
    if (code == 0)
        code = serve(server, err);
    ct_rpc_stop(server->service);
    uv_close((uv_handle_t *)&server->tick, NULL);
    while (uv_run(&server->loop, UV_RUN_DEFAULT) != 0)
        ;
    CT_ASSERT(uv_loop_close(&server->loop) == 0);
    ct_net_key_wipe(&server->address.key);
    release(server);
    *ret_end = server->end;
    return code;
}
