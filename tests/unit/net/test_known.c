/* Who is known by its address, each once. */
#include "net/known.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct ct_known known;

static void forget(void)
{
    memset(&known, 0, sizeof known);
}

TestSuite(known, .init = forget, .timeout = 30);

static bool add(const char *text)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        memcpy(&address, &v4, sizeof v4);
    } else {
        cr_assert_eq(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
        memcpy(&address, &v6, sizeof v6);
    }
    return ct_known_add(&known, &address);
}

Test(known, an_address_is_known_once_however_it_is_written)
{
    cr_assert(add("10.0.0.1"));
    cr_assert(!add("10.0.0.1") && !add("::ffff:10.0.0.1"));
    cr_assert(add("10.0.0.2"));
    cr_assert_eq(known.addresses[1].words[0], 0x0a000002);
    cr_assert_eq(known.count, 2);
}

Test(known, an_ipv6_address_stands_for_its_64)
{
    cr_assert(add("fd09::1"));
    cr_assert(!add("fd09::2"));
    cr_assert(add("fd09:0:0:1::1"));
    cr_assert(known.addresses[1].words[0] == 0xfd090000 && known.addresses[1].words[1] == 1);
}

Test(known, the_newest_take_the_places_of_the_oldest)
{
    char text[32];
    for (int i = 0; i <= CT_KNOWN; i++) {
        (void)snprintf(text, sizeof text, "10.0.%d.%d", i / 256, i % 256);
        cr_assert(add(text));
    }
    cr_assert(add("10.0.0.0"), "it was the oldest");
    cr_assert(!add("10.0.0.2"));
}

Test(known, a_path_is_no_address)
{
    struct sockaddr_storage address = {.ss_family = AF_UNIX};
    cr_assert(!ct_known_add(&known, &address));
    cr_assert_eq(known.count, 0);
}

/* As many as there can be, of either family: the kernel takes the program. */
Test(known, the_kernel_takes_as_many_as_are_known)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[32];
    int second, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    cr_assert_eq(listen(fd, 1), 0);
    cr_assert_eq(ct_known_listen(fd, &second), 0);
    for (int i = 0; i < 2 * CT_KNOWN; i++) {
        (void)snprintf(text, sizeof text, i % 2 == 0 ? "10.0.%d.%d" : "fd09:%x:0:%x::", i / 256,
                       i % 256);
        cr_assert(add(text));
        if (i % 64 == 0)
            cr_assert_eq(ct_known_update(&known, fd), 0);
    }
    cr_assert_eq(ct_known_update(&known, fd), 0);
    for (int i = 0; i < CT_KNOWN; i++) {
        (void)snprintf(text, sizeof text, "fd0a:%x::", i);
        cr_assert(add(text));
    }
    cr_assert_eq(ct_known_update(&known, second), 0, "IPv6 alone, the longest");
}
