/* Fair turns: an account that sends without end, and one that sends now and then. */
#include "net_test.h"

#include "net/turns_uv.h"

#include <criterion/criterion.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(turns, .init = net_set_up, .fini = net_tear_down, .timeout = 60);

static const struct ct_key key = {.secret = "0123456789abcdef0123456789abcdeA"};

enum { GREEDY = 4, EACH = 2000 };

/* Several connections of one account, and the last of another one. */
static struct crowd {
    struct end greedy[GREEDY], honest;
    struct end *greedy_in[GREEDY], *honest_in; /* the server's ends of them */
} crowd;

static void send_one(struct end *end, const struct end *in)
{
    int before = in->messages;

    net_heartbeat(end, 1);
    NET_UNTIL(in->messages == before + 1);
}

/* Between the two nobody is alone. */
static void mix(void)
{
    send_one(&crowd.honest, crowd.honest_in);
    send_one(&crowd.greedy[0], crowd.greedy_in[0]);
}

static void begin_alone(const struct ct_key *with)
{
    struct ct_listener_options server = net_server(with);
    struct ct_conn_options client = net_client(with);

    crowd = (struct crowd){.honest = {.opened = 0}};
    net_listen(&server);
    for (int i = 0; i <= GREEDY; i++) {
        struct end *end = i < GREEDY ? &crowd.greedy[i] : &crowd.honest;
        net_connect(end, &client);
        NET_UNTIL(net.accepted == i + 1 && end->opened == 1);
        net_heartbeat(end, 1);
        NET_UNTIL(net.ends[i].messages == 1);
        if (i < GREEDY)
            crowd.greedy_in[i] = &net.ends[i];
    }
    crowd.honest_in = &net.ends[GREEDY];
    net_set_account(crowd.honest_in->conn, 4711);
}

static void begin(const struct ct_key *with)
{
    begin_alone(with);
    mix();
}

static void flood(struct end *end, int count)
{
    for (int i = 0; i < count; i++)
        cr_assert_eq(net_heartbeat(end, (uint64_t)i + 2), 0);
}

static int greedy_messages(void)
{
    int sum = 0;

    for (int i = 0; i < GREEDY; i++)
        sum += crowd.greedy_in[i]->messages;
    return sum;
}

/* What a burst allows, the turns that pass meanwhile, and one more that was under way. */
enum { OF_A_BURST = CT_TURN_BURST / CT_TURN_MESSAGE, MOST = 2 * OF_A_BURST + 2 };

static void see_honest_served(void)
{
    for (int i = 0; i < GREEDY; i++)
        flood(&crowd.greedy[i], EACH);
    int before = greedy_messages();
    net_heartbeat(&crowd.honest, 7);
    NET_UNTIL(crowd.honest_in->last_step == 7);
    int between = greedy_messages() - before;
    cr_assert_leq(between, MOST, "%d messages of the greedy one came first", between);
    NET_UNTIL(greedy_messages() - before >= GREEDY * EACH);
    for (int i = 0; i < GREEDY; i++)
        cr_assert_eq(crowd.greedy_in[i]->last_step, (uint64_t)EACH + 1, "all came, in order");
}

Test(turns, who_sends_now_and_then_waits_for_no_more_than_a_burst_of_who_sends_without_end)
{
    begin(NULL);
    see_honest_served();
}

Test(turns, likewise_with_tls)
{
    begin(&key);
    see_honest_served();
}

/* Else a loop that works for it would not even see that others come. */
Test(turns, who_is_alone_has_no_more_than_so_much_until_the_loop_has_looked_at_all_others)
{
    enum { MESSAGES = 20000, OF_ONE_ALONE = 2 * (CT_TURN_ALONE / CT_TURN_MESSAGE) + 2 };

    begin_alone(&key);
    for (int i = 0; i < GREEDY; i++)
        flood(&crowd.greedy[i], MESSAGES);
    while (greedy_messages() < GREEDY * (1 + MESSAGES)) { /* and the first of each */
        int before = greedy_messages();
        NET_UNTIL(greedy_messages() > before);
        int between = greedy_messages() - before; /* read, and resumed */
        cr_assert_leq(between, OF_ONE_ALONE, "%d messages in one turn", between);
    }
}

/* The other connections of the same account are not the last ones each time either. */
Test(turns, a_connection_that_floods_does_not_starve_another_one_of_its_account)
{
    begin(NULL);
    flood(&crowd.greedy[0], EACH);
    flood(&crowd.greedy[1], EACH);
    flood(&crowd.greedy[2], EACH);
    net_heartbeat(&crowd.greedy[3], 7);
    NET_UNTIL(crowd.greedy_in[3]->last_step == 7);
    cr_assert_leq(greedy_messages(), 8 * OF_A_BURST, "%d came first", greedy_messages());
}

Test(turns, a_handshake_is_an_eighth_of_a_burst)
{
    enum { STRANGERS = 20 };
    int fds[STRANGERS], answered = 0;
    struct ct_buf hellos[STRANGERS];
    char byte;

    begin(&key);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = net_raw();
        net_make_hello(&key, &hellos[i]);
    }
    NET_UNTIL(ct_listener_connections(net.listener) == GREEDY + 1 + STRANGERS);
    mix();
    for (int i = 0; i < STRANGERS; i++)
        cr_assert_eq(write(fds[i], hellos[i].data, hellos[i].size), (ssize_t)hellos[i].size);
    net_heartbeat(&crowd.honest, 7);
    NET_UNTIL(crowd.honest_in->last_step == 7);
    for (int i = 0; i < STRANGERS; i++)
        answered += recv(fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    cr_assert_leq(answered, 12, "%d handshakes came first", answered);
    for (int i = 0; i < STRANGERS; i++) { /* the others come in later turns */
        NET_UNTIL(recv(fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
        close(fds[i]);
        ct_buf_deinit(&hellos[i]);
    }
}

Test(turns, one_that_waits_when_nobody_listens_any_more_is_served_to_its_end)
{
    begin(NULL);
    flood(&crowd.greedy[0], EACH);
    flood(&crowd.greedy[1], EACH);
    NET_UNTIL(greedy_messages() > OF_A_BURST / 2);
    ct_listener_stop(net.listener);
    net.listener = NULL;
    for (int i = 0; i < 2; i++)
        NET_UNTIL(crowd.greedy_in[i]->last_step == (uint64_t)EACH + 1);
}

Test(turns, one_that_waits_can_be_closed)
{
    begin(NULL);
    flood(&crowd.greedy[0], EACH);
    flood(&crowd.greedy[1], EACH);
    NET_UNTIL(greedy_messages() > OF_A_BURST / 2);
    ct_conn_close(crowd.greedy_in[0]->conn, 0, NULL);
    ct_conn_close(crowd.greedy_in[1]->conn, 0, NULL);
    NET_UNTIL(crowd.greedy[0].closed == 1 && crowd.greedy[1].closed == 1);
    NET_UNTIL(crowd.greedy_in[0]->closed == 1 && crowd.greedy_in[1]->closed == 1);
}

/* Its own answer may be the one for which there is no room any more. */
Test(turns, who_reads_slowly_is_not_dropped_for_what_waits_for_another_account)
{
    enum { DEAF = 8 };
    static unsigned char value[60000];
    struct ct_conn_budget budget = {.limit = 4 << 20};
    struct ct_listener_options server = net_server(NULL);
    const struct ct_message reply = {.type = CT_MSG_STORE_REPLY,
                                     .store_reply = {.value = {value, sizeof value}}};
    int fds[1 + DEAF];

    server.conn.queue_limit = 16 << 20;
    server.conn.budget = &budget;
    net_listen(&server);
    for (int i = 0; i <= DEAF; i++) {
        fds[i] = net_raw();
        NET_UNTIL(net.accepted == i + 1);
    }
    struct end *slow = &net.ends[0];
    net_set_account(slow->conn, 4711);
    while (ct_conn_queued(slow->conn) <= CT_CONN_SHARE)
        cr_assert_eq(ct_conn_send(slow->conn, &reply, NULL), 0);
    for (int i = 0; budget.used + sizeof value < budget.limit; i++)
        cr_assert_eq(ct_conn_send(net.ends[1 + i % DEAF].conn, &reply, NULL), 0);
    cr_assert_eq(ct_conn_send(slow->conn, &reply, NULL), 0);
    cr_assert_gt(budget.used, budget.limit, "it was the one too many");
    cr_assert(net_is_open(slow->conn));
    cr_assert_neq(ct_conn_send(net.ends[1].conn, &reply, NULL), 0, "but not the one that goes");
    for (int i = 0; i <= DEAF; i++)
        close(fds[i]);
    for (int i = 0; i <= DEAF; i++)
        NET_UNTIL(net.ends[i].closed == 1);
    cr_assert_eq(budget.used, 0u);
}
