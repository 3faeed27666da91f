/* The peers of a ctrund: who they are, and what no list of them is. */
#include "rendezvous/holder/peers.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(peers, .timeout = 10);

static int read_list(struct ct_peers *peers, const char *list, const char *listen,
                     struct ct_error *err)
{
    return ct_peers_read(peers, list, &listen, 1, err);
}

Test(peers, ids_and_era_are_the_same_on_each_of_them_whatever_the_order)
{
    struct ct_peers a, b, other;
    struct ct_error err = {0};

    cr_assert_eq(read_list(&a, "h0:29400,h1:29400,h2:29400", "h0:29400", &err), 0, "%s", err.text);
    cr_assert_eq(read_list(&b, "h2,h1,h0", "h1:29400", &err), 0, "%s", err.text);
    cr_assert_eq(a.era, b.era);
    cr_assert_str_eq(a.name, b.name);
    cr_assert_eq(a.count, 3);
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(a.list[i].id, b.list[i].id);
        cr_assert_neq(a.list[i].id, 0);
        cr_assert_str_eq(a.list[i].address, b.list[i].address);
    }
    cr_assert_str_eq(a.list[a.own].address, "h0:29400");
    cr_assert_str_eq(b.list[b.own].address, "h1:29400");
    cr_assert_eq(read_list(&other, "h0,h1,h3", "h1:29400", &err), 0, "%s", err.text);
    cr_assert_neq(other.era, a.era);
    cr_assert_neq(strcmp(other.name, a.name), 0);
}

Test(peers, the_own_address_may_be_any_of_those_that_are_listened_on)
{
    const char *listen[] = {"127.0.0.1:29400", "[fd00::1]:29400"};
    struct ct_peers peers;
    struct ct_error err = {0};

    cr_assert_eq(ct_peers_read(&peers, "[fd00::2],[fd00::1],[fd00::3]", listen, 2, &err), 0, "%s",
                 err.text);
    cr_assert_eq(peers.listener, 1);
    cr_assert_str_eq(peers.list[peers.own].address, "[fd00::1]:29400");
}

Test(peers, each_list_that_is_none_is_refused_with_its_sentence)
{
    static const struct {
        const char *list, *words;
    } rows[] = {
        {"h0,h1", "an even number"},
        {"h0,h1,h2,h3", "no more deaths than 3 do"},
        {"h0", "one daemon alone"},
        {"h0,h1,h1:29400", "names h1:29400 twice"},
        {"h0,h1,h2,h3,h4,h5,h6,h7,h8,h9,h10", "more than 9"},
        {"h1,h2,h3", "listens on h0:29400, which is none of --peers h1,h2,h3"},
        {"h0,unix:/run/x,h2", "as the others reach it"},
        {"h0,:29400,h2", "as the others reach it"},
        {"h0,h1:0,h2", "as the others reach it"},
        {"h0,0.0.0.0,h2", "as the others reach it"},
        {"h0,[::]:29400,h2", "as the others reach it"},
        {"h0,,h2", ""},
        {"", ""},
        {"h0,h1,h2:99999", ""},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_peers peers = {0};
        struct ct_error err = {0};

        cr_assert_eq(read_list(&peers, rows[i].list, "h0:29400", &err), CT_EUSAGE, "%s",
                     rows[i].list);
        cr_assert_not_null(strstr(err.text, rows[i].words), "%s: %s", rows[i].list, err.text);
        cr_assert_neq(err.text[0], '\0');
        cr_assert_eq(peers.count, 0);
    }
}
