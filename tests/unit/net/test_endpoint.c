/* Endpoints as users write them. */
#include "net/endpoint.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(endpoint, .timeout = 10);

Test(endpoint, every_spelling_is_understood_and_prints_back)
{
    static const struct {
        const char *text, *host, *printed;
        int default_port;
        unsigned port;
    } rows[] = {
        {"node0:29400", "node0", "node0:29400", -1, 29400},
        {"10.0.0.1:0", "10.0.0.1", "10.0.0.1:0", -1, 0},
        {"[2001:db8::1]:80", "2001:db8::1", "[2001:db8::1]:80", -1, 80},
        {"[::1]", "::1", "[::1]:29400", 29400, 29400},
        {"node0", "node0", "node0:29400", 29400, 29400},
        {"*:7", "", "*:7", -1, 7},
        {":7", "", "*:7", -1, 7},
    };
    struct ct_endpoint endpoint, again;
    char text[CT_ENDPOINT_TEXT];

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        cr_assert_eq(ct_endpoint_parse(rows[i].text, rows[i].default_port, &endpoint, NULL), 0);
        cr_assert_not(endpoint.is_unix);
        cr_assert_str_eq(endpoint.host, rows[i].host);
        cr_assert_eq(endpoint.port, rows[i].port);
        cr_assert_str_eq(ct_endpoint_print(&endpoint, text), rows[i].printed);
        cr_assert_eq(ct_endpoint_parse(text, -1, &again, NULL), 0);
        cr_assert_eq(memcmp(&endpoint, &again, sizeof(again)), 0);
    }
}

Test(endpoint, a_path_is_a_unix_socket)
{
    struct ct_endpoint endpoint;
    char text[CT_ENDPOINT_TEXT];

    cr_assert_eq(ct_endpoint_parse("/run/x/s", -1, &endpoint, NULL), 0);
    cr_assert(endpoint.is_unix);
    cr_assert_str_eq(ct_endpoint_print(&endpoint, text), "unix:/run/x/s");
    cr_assert_eq(ct_endpoint_parse(text, -1, &endpoint, NULL), 0);
    cr_assert_str_eq(endpoint.path, "/run/x/s");
}

Test(endpoint, what_is_none_gets_a_sentence)
{
    static const struct {
        const char *text, *sentence;
    } rows[] = {
        {"", "an endpoint is empty: write HOST:PORT"},
        {"node0", "endpoint node0 names no port: write HOST:PORT"},
        {"node0:", "endpoint node0:: port \"\" is no number from 0 to 65535"},
        {"node0:65536", "endpoint node0:65536: port \"65536\" is no number from 0 to 65535"},
        {"node0:-1", "endpoint node0:-1: port \"-1\" is no number from 0 to 65535"},
        {"::1", "endpoint ::1: write an IPv6 address in brackets, [address]:port"},
        {"[::1", "endpoint [::1: write [address]:port"},
        {"[::1]80", "endpoint [::1]80: write [address]:port"},
        {"unix:", "endpoint unix: names no path"},
    };
    struct ct_endpoint endpoint;

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_error err = {0};
        cr_assert_eq(ct_endpoint_parse(rows[i].text, -1, &endpoint, &err), CT_EUSAGE);
        cr_assert_str_eq(err.text, rows[i].sentence);
    }
}

Test(endpoint, names_and_paths_that_are_too_long_are_refused)
{
    struct ct_endpoint endpoint;
    char text[400];

    memset(text, 'a', sizeof(text));
    memcpy(text + CT_ENDPOINT_HOST - 1, ":1", 3);
    cr_assert_eq(ct_endpoint_parse(text, -1, &endpoint, NULL), 0);
    memset(text, 'a', sizeof(text));
    memcpy(text + CT_ENDPOINT_HOST, ":1", 3);
    cr_assert_eq(ct_endpoint_parse(text, -1, &endpoint, NULL), CT_EUSAGE);
    memset(text, 'a', sizeof(text));
    text[0] = '/';
    text[CT_ENDPOINT_PATH - 1] = '\0';
    cr_assert_eq(ct_endpoint_parse(text, -1, &endpoint, NULL), 0);
    text[CT_ENDPOINT_PATH - 1] = 'a';
    text[CT_ENDPOINT_PATH] = '\0';
    cr_assert_eq(ct_endpoint_parse(text, -1, &endpoint, NULL), CT_EUSAGE);
}

Test(endpoint, a_list_is_walked_to_its_end)
{
    const char *list = "a:1,[::1]:2,c";
    char one[CT_ENDPOINT_TEXT];

    ct_endpoint_next(&list, one);
    cr_assert_str_eq(one, "a:1");
    ct_endpoint_next(&list, one);
    cr_assert_str_eq(one, "[::1]:2");
    ct_endpoint_next(&list, one);
    cr_assert_str_eq(one, "c");
    cr_assert_str_eq(list, "");
}
