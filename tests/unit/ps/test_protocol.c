/* Heads and addresses: what is written is read, what is cut is not. */
#include "base/assert.h"
#include "collectives/ps/protocol.h"
#include "collectives/ps/ps_address.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(ps_protocol, .timeout = 20);

Test(ps_protocol, a_head_and_what_follows_come_back)
{
    const struct ct_ps_commit sent = {.step = 7,
                                      .update = UINT64_MAX,
                                      .lr = 1e-3,
                                      .loss = -0.0,
                                      .correct = 12,
                                      .sumsq = 1e308,
                                      .leave_vote = 1};
    unsigned char bytes[CT_PS_HEAD_BYTES + 3];
    struct ct_ps_commit got;
    struct ct_bytes data;
    size_t size = ct_ps_put(CT_PS_HEAD_commit, &sent, bytes);

    cr_assert_eq(size, 7 * 8);
    memcpy(bytes + size, "abc", 3);
    cr_assert_eq(
        ct_ps_get(CT_PS_HEAD_commit, (struct ct_bytes){bytes, size + 3}, &got, &data, NULL), 0);
    cr_assert_eq(memcmp(&got, &sent, sizeof got), 0);
    cr_assert_eq(data.size, 3);
    cr_assert_eq(memcmp(data.data, "abc", 3), 0);
}

Test(ps_protocol, the_bytes_of_a_head_are_its_fields_in_order_little_endian)
{
    const struct ct_ps_block block = {.range = 1, .at = 0x0203, .bytes = 0xff00000000000000};
    static const unsigned char expected[] = {1, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0,
                                             0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff};
    unsigned char bytes[CT_PS_HEAD_BYTES];

    cr_assert_eq(ct_ps_put(CT_PS_HEAD_block, &block, bytes), sizeof expected);
    cr_assert_eq(memcmp(bytes, expected, sizeof expected), 0);
}

Test(ps_protocol, a_head_that_is_cut_is_refused_by_name)
{
    const struct ct_ps_pull pull = {.step = 1};
    unsigned char bytes[CT_PS_HEAD_BYTES];
    size_t size = ct_ps_put(CT_PS_HEAD_pull, &pull, bytes);
    struct ct_error err = {0};
    struct ct_ps_pull got;
    struct ct_bytes data;

    for (size_t cut = 0; cut < size; cut++)
        cr_assert_eq(ct_ps_get(CT_PS_HEAD_pull, (struct ct_bytes){bytes, cut}, &got, &data, &err),
                     CT_EPROTOCOL);
    cr_assert_str_eq(err.text, "pull: 23 bytes, a head has 24");
}

Test(ps_protocol, an_address_comes_back_and_a_cut_one_does_not)
{
    static const char *const endpoints[] = {"127.0.0.1:4567", "[2001:db8::1]:1", "node-7:65535"};
    unsigned char bytes[CT_PS_ADDRESS_BYTES];
    char text[CT_ENDPOINT_TEXT];
    struct ct_error err = {0};

    for (size_t i = 0; i < CT_COUNT(endpoints); i++) {
        struct ct_ps_address sent = {.encrypted = i == 1, .token = {1, 2, 3, UINT64_MAX}}, got;
        memset(sent.key.secret, (int)i + 1, CT_KEY_BYTES);
        cr_assert_eq(ct_endpoint_parse(endpoints[i], -1, &sent.endpoint, &err), 0);
        size_t size = ct_ps_address_put(&sent, bytes);
        cr_assert_eq(ct_ps_address_get(&got, bytes, size, &err), 0, "%s", err.text);
        cr_assert_str_eq(ct_endpoint_print(&got.endpoint, text), endpoints[i]);
        cr_assert_eq(got.encrypted, sent.encrypted);
        cr_assert_eq(memcmp(got.token, sent.token, sizeof got.token), 0);
        cr_assert_eq(memcmp(&got.key, &sent.key, sizeof got.key), 0);
        cr_assert_eq(ct_ps_address_get(&got, bytes, size - strlen(endpoints[i]), &err),
                     CT_EPROTOCOL);
        bytes[0] = 2;
        cr_assert_eq(ct_ps_address_get(&got, bytes, size, &err), CT_EPROTOCOL);
    }
}

Test(ps_protocol, methods_have_names)
{
    cr_assert_str_eq(ct_ps_method_name(CT_PS_PULL), "pull");
    cr_assert_str_eq(ct_ps_method_name(0), "?");
}
