/* The blocking link: what a worker sees of its agent, with deadlines. */
#include "wire/link.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];
static struct ct_link worker, agent;
static struct ct_error err;
static struct ct_arena arena;
static struct ct_message got;

static void set_up(void)
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ct_link_init(&worker, ends[0], CT_FROM_AGENT);
    ct_link_init(&agent, ends[1], CT_FROM_WORKER);
    ct_arena_init(&arena, 1 << 20);
    err = (struct ct_error){0};
}

static void close_end(int i)
{
    if (ends[i] >= 0)
        close(ends[i]);
    ends[i] = -1;
}

static void tear_down(void)
{
    ct_link_deinit(&worker);
    ct_link_deinit(&agent);
    ct_arena_deinit(&arena);
    close_end(0);
    close_end(1);
}

TestSuite(link, .init = set_up, .fini = tear_down, .timeout = 30);

static const struct ct_message ready = {.type = CT_MSG_READY, .ready = {.step = 12}};

Test(link, messages_pass_both_ways)
{
    struct ct_wire_run runs[] = {{1, 2, "reader"}};
    struct ct_message assign = {.type = CT_MSG_ASSIGN,
                                .assign = {.world = 2, .run_id = "digits", .runs = {runs, 1}}};

    cr_assert_eq(ct_link_send(&worker, &ready, -1, &err), 0, "%s", err.text);
    cr_assert_eq(ct_link_receive(&agent, -1, &arena, &got, &err), 0, "%s", err.text);
    cr_assert_eq(got.type, CT_MSG_READY);
    cr_assert_eq(got.ready.step, 12);
    cr_assert_eq(ct_link_send(&agent, &assign, -1, &err), 0, "%s", err.text);
    cr_assert_eq(ct_link_receive(&worker, -1, &arena, &got, &err), 0, "%s", err.text);
    cr_assert_str_eq(got.assign.run_id, "digits");
    cr_assert_str_eq(got.assign.runs.data[0].role, "reader");
}

Test(link, several_messages_in_one_read_are_received_one_by_one)
{
    for (int i = 0; i < 3; i++)
        cr_assert_eq(ct_link_send(&worker, &ready, -1, &err), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(ct_link_receive(&agent, 0, &arena, &got, &err), 0, "%s", err.text);
    cr_assert_eq(ct_link_receive(&agent, 0, &arena, &got, &err), CT_ETIMEOUT);
}

Test(link, a_receive_that_times_out_keeps_the_first_half)
{
    struct ct_buf bytes = {0};

    cr_assert_eq(ct_wire_encode(&ready, 0, &bytes, NULL), 0);
    cr_assert_eq(write(ends[0], bytes.data, 20), 20);
    cr_assert_eq(ct_link_receive(&agent, 1, &arena, &got, &err), CT_ETIMEOUT);
    cr_assert_eq(write(ends[0], bytes.data + 20, bytes.size - 20), (ssize_t)bytes.size - 20);
    cr_assert_eq(ct_link_receive(&agent, -1, &arena, &got, &err), 0, "%s", err.text);
    cr_assert_eq(got.ready.step, 12);
    ct_buf_deinit(&bytes);
}

Test(link, the_end_of_the_peer_is_closed_and_not_an_errno)
{
    close_end(1);
    cr_assert_eq(ct_link_receive(&worker, -1, &arena, &got, &err), CT_ECLOSED);
    cr_assert_eq(ct_link_send(&worker, &ready, -1, &err), CT_ECLOSED);
}

Test(link, an_end_inside_a_message_is_said)
{
    cr_assert_eq(write(ends[1], "CTR", 3), 3);
    close_end(1);
    cr_assert_eq(ct_link_receive(&worker, -1, &arena, &got, &err), CT_ECLOSED);
    cr_assert_str_eq(err.text, "the peer has closed the link in the midst of a message");
}

Test(link, what_was_sent_before_the_end_is_received)
{
    cr_assert_eq(ct_link_send(&worker, &ready, -1, &err), 0);
    close_end(0);
    cr_assert_eq(ct_link_receive(&agent, -1, &arena, &got, &err), 0, "%s", err.text);
    cr_assert_eq(ct_link_receive(&agent, -1, &arena, &got, &err), CT_ECLOSED);
}

Test(link, a_peer_that_does_not_read_costs_the_timeout_and_no_more)
{
    unsigned char *value = calloc(1, CT_WIRE_VALUE_BYTES);
    struct ct_message set = {.type = CT_MSG_STORE_SET,
                             .store_set = {.key = "k", .value = {value, CT_WIRE_VALUE_BYTES}}};

    cr_assert_eq(ct_link_send(&worker, &set, 20, &err), CT_ETIMEOUT);
    cr_assert_str_eq(err.text, "the peer did not take STORE_SET within 20 ms");
    free(value);
}

static void *receive_one(void *result)
{
    *(int *)result = ct_link_receive(&agent, -1, &arena, &got, &err);
    return NULL;
}

Test(link, the_largest_value_passes_while_the_peer_reads)
{
    unsigned char *value = malloc(CT_WIRE_VALUE_BYTES);
    struct ct_message set = {.type = CT_MSG_STORE_SET,
                             .store_set = {.key = "k", .value = {value, CT_WIRE_VALUE_BYTES}}};
    struct ct_error send_err = {0};
    pthread_t thread;
    int result = -1;

    memset(value, 0xa5, CT_WIRE_VALUE_BYTES);
    cr_assert_eq(pthread_create(&thread, NULL, receive_one, &result), 0);
    cr_assert_eq(ct_link_send(&worker, &set, -1, &send_err), 0, "%s", send_err.text);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(result, 0, "%s", err.text);
    cr_assert_eq(got.store_set.value.size, CT_WIRE_VALUE_BYTES);
    cr_assert_eq(memcmp(got.store_set.value.data, value, CT_WIRE_VALUE_BYTES), 0);
    free(value);
}

Test(link, a_message_the_peer_may_not_send_is_refused)
{
    cr_assert_eq(ct_link_send(&agent, &ready, -1, &err), 0);
    cr_assert_eq(ct_link_receive(&worker, -1, &arena, &got, &err), CT_EPROTOCOL);
    cr_assert_str_eq(err.text, "message READY must not come from this peer");
}
