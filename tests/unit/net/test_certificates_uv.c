/* Certificates on real sockets: links by them, and how many handshakes strangers may cost. */
#include "net/conn_inner_uv.h"

#include "certificate_site.h"
#include "net_test.h"

#include <criterion/criterion.h>
#include <string.h>

enum { HANDSHAKES = 200, OF_ONE = 40 };

static struct ct_key own, ada;

static void set_up(void)
{
    struct ct_listener_options options = net_server(NULL);

    site_set_up();
    site_sign("daemon", "URI:ctrun://all/*");
    site_sign("ada", "URI:ctrun://agent/digits");
    own = site_load("daemon", "ca");
    ada = site_load("ada", "ca");
    net_set_up();
    options.conn.key = &own;
    net_listen(&options);
}

static void tear_down(void)
{
    net_tear_down();
    ct_net_key_wipe(&own);
    ct_net_key_wipe(&ada);
    site_tear_down();
}

TestSuite(certificates_uv, .init = set_up, .fini = tear_down, .timeout = 60);

Test(certificates_uv, a_link_opens_and_the_server_knows_what_its_peer_may_do)
{
    static struct end client;
    struct ct_conn_options options = net_client(&ada);
    struct ct_error err = {0};

    options.job = "digits";
    net_connect(&client, &options);
    NET_UNTIL(client.opened && net.accepted == 1);
    cr_assert_eq(net_heartbeat(&client, 7), 0);
    NET_UNTIL(net.ends[0].messages == 1);
    const struct ct_conn *conn = net.ends[0].conn;
    cr_assert_str_eq(ct_conn_grant(conn)->name, "ada");
    cr_assert_eq(ct_conn_may(conn, CT_RIGHT_JOIN, "digits", &err), 0, "%s", err.text);
    cr_assert_eq(ct_conn_may(conn, CT_RIGHT_JOIN, "letters", &err), CT_EAUTH);
    cr_assert_str_eq(err.text, "certificate ada is for the jobs digits, not for letters");
}

Test(certificates_uv, a_server_that_may_not_serve_the_job_ends_the_dial)
{
    static struct end client;
    struct ct_conn_options options = net_client(&own); /* who hosts here is an agent of digits */
    struct ct_key_ring *ring = NULL;

    cr_assert_eq(ct_key_ring_of(&ada, true, &ring, NULL), 0);
    ct_listener_change_ring(net.listener, ring);
    ct_key_ring_unref(ring);
    options.job = "letters";
    net_connect(&client, &options);
    NET_UNTIL(client.closed);
    cr_assert_eq(client.why.code, CT_EAUTH);
    cr_assert_not_null(strstr(client.why.text, "may not serve job letters"), "%s", client.why.text);
    cr_assert_eq(client.opened, 0);
}

Test(certificates_uv, strangers_cost_so_many_handshakes_and_keep_no_known_peer_out)
{
    static struct end client;
    struct ct_conn stranger = {.place = CT_PLACE_STRANGER};
    const struct ct_conn known = {.place = CT_PLACE_TRUSTED};
    struct ct_conn_options options = net_client(&ada);
    int count = 0;

    while (ct_listener_may_shake_hands(net.listener, &stranger))
        count++;
    cr_assert_eq(count, OF_ONE, "of one account");
    for (; count <= HANDSHAKES; count++) {
        stranger.account++;
        if (!ct_listener_may_shake_hands(net.listener, &stranger))
            break;
    }
    cr_assert_eq(count, HANDSHAKES);
    cr_assert(ct_listener_may_shake_hands(net.listener, &known));
    options.job = "digits";
    net_connect(&client, &options); /* this user's, on loopback */
    NET_UNTIL(client.opened);
    net_pass(50);
    cr_assert(ct_listener_may_shake_hands(net.listener, &stranger), "ten more by now");
}
