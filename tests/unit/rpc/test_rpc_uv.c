/* Remote calls over real sockets in one loop. */
#include "base/assert.h"
#include "base/str.h"
#include "net/conn_uv.h"
#include "rpc/rpc_uv.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SAME = 1, REFUSE, KEEP, DROP, CALLS = CT_RPC_OPEN_MAX };

/* What became of a call. */
struct ended {
    int times, code;
    size_t bytes;
    char text[256];
};

static uv_loop_t loop;
static uv_timer_t guard;
static struct ct_rpc_server *server;
static struct ct_rpc_client *client;
static struct ct_error err;
static struct ended ended[CALLS + 1];
static struct ct_rpc_caller *kept; /* who has made a call of method KEEP, and which */
static uint64_t kept_id[CALLS];
static int kept_count, gone;
static bool late;
static struct ct_rpc_options options;

static void on_guard(uv_timer_t *timer)
{
    (void)timer;
    late = true;
}

static void on_call(void *context, struct ct_rpc_caller *caller, const struct ct_msg_call *call)
{
    CT_ASSERT(context == &server);
    if (call->method == SAME)
        (void)ct_rpc_answer(caller, call->id, call->body);
    if (call->method == REFUSE)
        (void)ct_rpc_refuse(caller, call->id, CT_ENOTFOUND, "there is no such thing");
    if (call->method == DROP)
        ct_rpc_drop(caller, CT_EPROTOCOL, "it has said the wrong word");
    if (call->method == KEEP) {
        kept = caller;
        kept_id[kept_count++] = call->id;
    }
}

static void on_gone(void *context, struct ct_rpc_caller *caller, const struct ct_error *why)
{
    CT_ASSERT(context == &server && caller != NULL && why->code < 0);
    gone++;
}

static void on_answer(void *context, const struct ct_rpc_result *result)
{
    struct ended *end = context;

    end->times++;
    end->code = result->code;
    end->bytes = result->body.size;
    if (result->why != NULL)
        (void)ct_str_copy(end->text, sizeof end->text, result->why->text);
    else if (result->body.size < sizeof end->text && result->body.size > 0)
        memcpy(end->text, result->body.data, result->body.size);
}

#define UNTIL(what)                           \
    do {                                      \
        bool holds = (what);                  \
        while (!holds) {                      \
            cr_assert_not(late, "%s", #what); \
            (void)uv_run(&loop, UV_RUN_ONCE); \
            holds = (what);                   \
        }                                     \
    } while (0)

static void serve(void)
{
    const struct ct_rpc_service service = {on_call, on_gone, &server};
    struct ct_endpoint endpoint;

    cr_assert_eq(ct_endpoint_parse("127.0.0.1:0", -1, &endpoint, &err), 0);
    cr_assert_eq(ct_rpc_serve(&loop, &endpoint, &options, &service, &server, &err), 0, "%s",
                 err.text);
    endpoint = *ct_rpc_server_endpoint(server);
    cr_assert_eq(ct_rpc_dial(&loop, &endpoint, &options, &client, &err), 0, "%s", err.text);
    cr_assert_eq(ct_rpc_start(client, &(struct ct_rpc_request){.method = SAME}, &err), CT_ECLOSED,
                 "it is not open yet");
    UNTIL(ct_rpc_is_open(client));
}

static void set_up(void)
{
    memset(ended, 0, sizeof ended);
    kept_count = gone = 0;
    late = false;
    options = (struct ct_rpc_options){.key = NULL};
    cr_assert_eq(uv_loop_init(&loop), 0);
    (void)uv_timer_init(&loop, &guard);
    (void)uv_timer_start(&guard, on_guard, 20000, 1000);
    uv_unref((uv_handle_t *)&guard);
}

static void tear_down(void)
{
    ct_rpc_hang_up(client);
    ct_rpc_stop(server);
    client = NULL;
    server = NULL;
    uv_close((uv_handle_t *)&guard, NULL);
    while (uv_run(&loop, UV_RUN_DEFAULT) != 0)
        ;
    cr_assert_eq(uv_loop_close(&loop), 0);
}

TestSuite(rpc, .init = set_up, .fini = tear_down, .timeout = 60);

static int start(int number, uint16_t method, const void *body, size_t size, uint64_t timeout_ms)
{
    const struct ct_rpc_request request = {.method = method,
                                           .body = {body, size},
                                           .timeout_ms = timeout_ms,
                                           .on_answer = on_answer,
                                           .context = &ended[number]};

    return ct_rpc_start(client, &request, &err);
}

static void check_echo(void)
{
    serve();
    cr_assert_eq(start(0, SAME, "hello", 5, 0), 0);
    cr_assert_eq(ended[0].times, 0, "never from inside");
    UNTIL(ended[0].times == 1);
    cr_assert_eq(ended[0].code, 0);
    cr_assert_str_eq(ended[0].text, "hello");
}

Test(rpc, a_call_is_answered)
{
    check_echo();
}

Test(rpc, a_call_is_answered_under_tls)
{
    static const struct ct_key key = {.secret = "0123456789abcdef0123456789abcdeA"};

    options = (struct ct_rpc_options){.key = &key, .name = "job"};
    check_echo();
}

Test(rpc, the_longest_body_passes_and_one_byte_more_is_refused)
{
    char *body = calloc(1, CT_RPC_BODY_MAX + 1);

    serve();
    cr_assert_not_null(body);
    cr_assert_eq(start(0, SAME, body, CT_RPC_BODY_MAX, 0), 0);
    UNTIL(ended[0].times == 1);
    cr_assert_eq(ended[0].bytes, CT_RPC_BODY_MAX);
    cr_assert_eq(start(1, SAME, body, CT_RPC_BODY_MAX + 1, 0), CT_ELIMIT);
    cr_assert_eq(start(2, SAME, "x", 1, 0), 0, "the connection lives");
    UNTIL(ended[2].times == 1);
    cr_assert_eq(ended[1].times, 0);
    free(body);
}

Test(rpc, a_refusal_has_its_code_and_its_sentence)
{
    serve();
    cr_assert_eq(start(0, REFUSE, NULL, 0, 0), 0);
    UNTIL(ended[0].times == 1);
    cr_assert_eq(ended[0].code, CT_ENOTFOUND);
    cr_assert_str_eq(ended[0].text, "there is no such thing");
}

Test(rpc, answers_come_in_any_order_and_each_goes_to_its_call)
{
    serve();
    for (int i = 0; i < 5; i++)
        cr_assert_eq(start(i, KEEP, NULL, 0, 0), 0);
    UNTIL(kept_count == 5);
    for (int i = 4; i >= 0; i--) {
        const char word[] = {(char)('a' + i)};
        cr_assert_eq(
            ct_rpc_answer(kept, kept_id[i], (struct ct_bytes){(const unsigned char *)word, 1}), 0);
    }
    for (int i = 0; i < 5; i++) {
        UNTIL(ended[i].times == 1);
        cr_assert_eq(ended[i].text[0], 'a' + i);
    }
}

Test(rpc, a_call_above_the_limit_of_open_ones_is_refused)
{
    serve();
    for (int i = 0; i < CALLS; i++)
        cr_assert_eq(start(i, KEEP, NULL, 0, 0), 0);
    cr_assert_eq(start(CALLS, KEEP, NULL, 0, 0), CT_ELIMIT);
    UNTIL(kept_count == CALLS);
    cr_assert_eq(ct_rpc_answer(kept, kept_id[7], (struct ct_bytes){NULL, 0}), 0);
    UNTIL(ended[7].times == 1);
    cr_assert_eq(start(CALLS, SAME, NULL, 0, 0), 0, "there is room again");
    UNTIL(ended[CALLS].times == 1);
}

Test(rpc, a_call_that_is_not_answered_ends_at_its_time_and_a_late_answer_is_dropped)
{
    serve();
    cr_assert_eq(start(0, KEEP, NULL, 0, 30), 0);
    cr_assert_eq(start(1, KEEP, NULL, 0, 0), 0);
    UNTIL(kept_count == 2 && ended[0].times == 1);
    cr_assert_eq(ended[0].code, CT_ETIMEOUT);
    cr_assert_not_null(strstr(ended[0].text, "has not answered in time"), "%s", ended[0].text);
    cr_assert_eq(ended[1].times, 0);
    cr_assert_eq(ct_rpc_answer(kept, kept_id[0], (struct ct_bytes){NULL, 0}), 0);
    cr_assert_eq(ct_rpc_answer(kept, kept_id[1], (struct ct_bytes){NULL, 0}), 0);
    UNTIL(ended[1].times == 1);
    cr_assert_eq(ended[0].times, 1);
}

Test(rpc, a_server_that_goes_ends_all_open_calls)
{
    serve();
    cr_assert_eq(start(0, KEEP, NULL, 0, 0), 0);
    cr_assert_eq(start(1, KEEP, NULL, 0, 0), 0);
    UNTIL(kept_count == 2);
    ct_rpc_stop(server);
    server = NULL;
    UNTIL(ended[0].times == 1 && ended[1].times == 1);
    cr_assert_eq(ended[0].code, CT_ECLOSED, "%s", ended[0].text);
    cr_assert_eq(ct_rpc_failure(client)->code, CT_ECLOSED);
    cr_assert_eq(start(2, SAME, NULL, 0, 0), CT_ECLOSED);
    cr_assert_eq(gone, 0, "the service has ended it itself");
}

Test(rpc, a_caller_that_goes_is_told_once)
{
    serve();
    cr_assert_eq(start(0, KEEP, NULL, 0, 0), 0);
    UNTIL(kept_count == 1);
    ct_rpc_hang_up(client);
    client = NULL;
    UNTIL(gone == 1);
    cr_assert_eq(ended[0].times, 0, "who has hung up hears nothing");
}

Test(rpc, a_caller_that_is_dropped_hears_that_the_connection_is_closed)
{
    serve();
    cr_assert_eq(start(0, DROP, NULL, 0, 0), 0);
    UNTIL(ended[0].times == 1 && gone == 1);
    cr_assert_eq(ended[0].code, CT_ECLOSED);
}

/* A peer that does not keep to the rules: a plain connection that sends calls by itself. */
struct raw {
    struct ct_conn *conn;
    bool open, closed;
};

static void raw_open(struct ct_conn *conn)
{
    ((struct raw *)ct_conn_user(conn))->open = true;
}

static void raw_message(struct ct_conn *conn, const struct ct_message *message)
{
    (void)conn;
    (void)message;
}

static void raw_close(struct ct_conn *conn, const struct ct_error *why)
{
    (void)why;
    ((struct raw *)ct_conn_user(conn))->closed = true;
}

static void raw_connect(struct raw *raw)
{
    static const struct ct_conn_callbacks callbacks = {
        .on_open = raw_open, .on_message = raw_message, .on_close = raw_close};
    const struct ct_conn_options conn = {.from = CT_FROM_CALLEE};

    cr_assert_eq(ct_conn_connect(&loop, ct_rpc_server_endpoint(server), &conn, &callbacks, raw,
                                 &raw->conn, &err),
                 0);
    UNTIL(raw->open);
}

static void raw_call(struct raw *raw, uint64_t id)
{
    const struct ct_message call = {.type = CT_MSG_CALL, .call = {.id = id, .method = KEEP}};

    (void)ct_conn_send(raw->conn, &call, &err);
}

Test(rpc, a_number_that_is_open_already_or_none_ends_the_connection)
{
    serve();
    for (int i = 0; i < 2; i++) {
        struct raw raw = {.conn = NULL};
        raw_connect(&raw);
        raw_call(&raw, 7);
        raw_call(&raw, i == 0 ? 7 : 0);
        UNTIL(raw.closed && gone == i + 1);
        kept_count = 0;
    }
    cr_assert(ct_rpc_is_open(client), "others are not touched");
}

Test(rpc, a_caller_with_more_open_calls_than_it_may_have_is_hung_up_on)
{
    struct raw raw = {.conn = NULL};

    serve();
    raw_connect(&raw);
    for (uint64_t id = 1; id <= CALLS; id++)
        raw_call(&raw, id);
    UNTIL(kept_count == CALLS);
    raw_call(&raw, CALLS + 1);
    UNTIL(raw.closed && gone == 1);
    cr_assert_eq(kept_count, CALLS);
}
