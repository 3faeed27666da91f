/* Munge without a munged: names, lines of a ring, identities. */
#include "keys/key_ring.h"
#include "keys/munge.h"
#include "keys/psk_munge.h"

#include "base/fs.h"

#include <assert.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<munge.h>)
#include <munge.h>

/* What munge.c and munge.def declare by hand is what the library has. */
static_assert(sizeof(munge_err_t) == sizeof(int) && sizeof(munge_opt_t) == sizeof(int),
              "its enums are passed as int");
static_assert(MUNGE_OPT_TTL == 4 && MUNGE_OPT_SOCKET == 8 && MUNGE_OPT_UID_RESTRICTION == 9,
              "options");
static_assert(EMUNGE_SOCKET == 6 && EMUNGE_TIMEOUT == 7 && EMUNGE_BAD_CRED == 8, "errors");
#endif

static struct ct_error err;
static struct ct_key_ring *ring;

static void set_up(void)
{
    err = (struct ct_error){0};
    ring = NULL;
}

static void tear_down(void)
{
    ct_key_ring_unref(ring);
}

TestSuite(munge, .init = set_up, .fini = tear_down, .timeout = 10);

/* ---- names ---- */

Test(munge, a_key_by_munge_names_an_account_and_a_socket)
{
    static const struct {
        const char *text;
        long account; /* -1: this user's */
        const char *socket;
    } rows[] = {
        {"munge:", -1, ""},
        {"munge:root", 0, ""},
        {"munge:1234", 1234, ""},
        {"munge::/run/m", -1, "/run/m"},
        {"munge:root:/run/m:2", 0, "/run/m:2"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ct_key key;
        int code = ct_net_key_load(rows[i].text, &key, &err);

        if (code == CT_EUNSUPPORTED)
            cr_skip_test("skipped: libmunge is not installed (scripts/deps --test)");
        cr_assert_eq(code, 0, "%s: %s", rows[i].text, err.text);
        cr_assert_eq(key.kind, CT_KEY_MUNGE);
        cr_assert_eq(key.munge.account,
                     rows[i].account < 0 ? geteuid() : (unsigned)rows[i].account);
        cr_assert_str_eq(key.munge.socket, rows[i].socket);
    }
}

Test(munge, an_account_that_is_none_and_a_socket_that_is_no_path_are_refused)
{
    struct ct_key key;

    cr_assert_eq(ct_net_key_load("munge:no such user", &key, &err), CT_EUSAGE);
    cr_assert_not_null(strstr(err.text, "names no account"), "%s", err.text);
    cr_assert_eq(ct_net_key_load("munge::socket", &key, &err), CT_EUSAGE);
    cr_assert_not_null(strstr(err.text, "no absolute path"), "%s", err.text);
}

/* ---- lines ---- */

static void parse(const char *text)
{
    cr_assert_eq(ct_key_ring_parse(text, "ring", &ring, &err), 0, "%s", err.text);
}

static struct ct_grant grant_of(uint32_t uid, const char *name)
{
    struct ct_munge_user user = {.uid = uid};
    struct ct_grant grant = {.role = CT_ROLES};

    (void)snprintf(user.name, sizeof user.name, "%s", name);
    cr_assert_eq(ct_munge_lines_find(ct_key_ring_munge(ring), &user, &grant, &err), 0, "%s",
                 err.text);
    return grant;
}

Test(munge, a_line_that_names_a_user_counts_before_one_for_all)
{
    parse("munge all reader * * -\n"
          "munge ops operator %u-*,%uu,x%u 7,1000 -\n"
          "munge late agent * 1000 -\n");
    const struct ct_grant ada = grant_of(1000, "ada");
    cr_assert_eq(ada.role, CT_ROLE_OPERATOR);
    cr_assert_str_eq(ada.jobs, "ada-*,adau,xada");
    cr_assert(ada.user_count == 1 && ada.users[0] == 1000);
    cr_assert_eq(ct_grant_may(&ada, CT_RIGHT_ORDER, "ada-1", 1000, NULL), 0);
    cr_assert_eq(ct_grant_may(&ada, CT_RIGHT_ORDER, "bob-1", 1000, NULL), CT_EAUTH);
    cr_assert_eq(ct_grant_may(&ada, CT_RIGHT_ORDER, "ada-1", 7, NULL), CT_EAUTH, "of ada alone");
    cr_assert_eq(grant_of(1001, "bob").role, CT_ROLE_READER);
}

Test(munge, whom_no_line_is_for_is_refused_by_name)
{
    static const struct ct_munge_user bob = {.uid = 1001, .name = "bob"};
    static const struct ct_key own = {.kind = CT_KEY_MUNGE};
    const struct ct_munge_user me = {.uid = geteuid(), .name = "me"}, root = {.name = "root"};
    struct ct_grant grant;

    parse("munge ada reader * 1000 -\n");
    cr_assert_eq(ct_munge_lines_find(ct_key_ring_munge(ring), &bob, &grant, &err), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "user bob (1001), for whom the key ring has no line"));
    ct_key_ring_unref(ring);
    cr_assert_eq(ct_key_ring_of(&own, true, &ring, &err), 0, "%s", err.text);
    cr_assert_eq(ct_munge_lines_find(ct_key_ring_munge(ring), &bob, &grant, &err), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "neither this one"), "%s", err.text);
    cr_assert_eq(grant_of(me.uid, me.name).role, CT_ROLE_ALL);
    cr_assert_eq(grant_of(root.uid, root.name).role, CT_ROLE_ALL);
}

Test(munge, a_grant_is_in_a_ring_while_its_user_may_do_the_same)
{
    parse("munge all reader %u-* * -\n");
    const struct ct_grant ada = grant_of(1000, "ada");
    cr_assert(ct_key_ring_has(ring, &ada));
    ct_key_ring_unref(ring);
    parse("munge all reader %u-* * -\nmunge ada agent %u-* 1000 -\n");
    cr_assert_not(ct_key_ring_has(ring, &ada), "a line for her came");
    const struct ct_grant bob = grant_of(1001, "bob");
    ct_key_ring_unref(ring);
    parse("munge ada agent %u-* 1000 -\n");
    cr_assert_not(ct_key_ring_has(ring, &bob), "his line has gone");
}

Test(munge, lines_that_are_none_are_refused_with_their_number)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"munge a reader * *\n", "line 1: it has not the six words"},
        {"\nmunge a reader * * x\n", "line 2: a line of munge has no secret"},
        {"munge a nobody * * -\n", "role \"nobody\" is none of"},
        {"munge a reader * * -\nmunge a agent * 7 -\n", "a munge line of the name a already"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_assert_eq(ct_key_ring_parse(rows[i].text, "ring", &ring, &err), CT_EDATA);
        cr_assert_not_null(strstr(err.text, rows[i].words), "%s", err.text);
    }
}

Test(munge, patterns_that_grow_too_long_with_a_name_let_nobody_in)
{
    struct ct_munge_user user = {.uid = 7, .name = "a_user_with_a_long_name"};
    struct ct_grant grant;
    char text[400] = "munge all reader ";

    for (int i = 0; i < 50; i++)
        strcat(text, i > 0 ? ",%u" : "%u");
    parse(strcat(text, " * -\n"));
    cr_assert_eq(ct_munge_lines_find(ct_key_ring_munge(ring), &user, &grant, &err), CT_EAUTH);
    cr_assert_not_null(strstr(err.text, "too long"), "%s", err.text);
}

Test(munge, lines_are_put_into_a_ring_and_taken_out_by_their_names)
{
    static const struct ct_key munge = {.kind = CT_KEY_MUNGE};
    static const struct ct_key secret = {.secret = "0123456789abcdef0123456789abcdeA"};
    struct ct_grant staff = {.name = "staff", .role = CT_ROLE_AGENT, .jobs = "%u-*"};
    struct ct_grant ops = {
        .name = "ops", .role = CT_ROLE_ALL, .jobs = "*", .users = {7, 8}, .user_count = 2};
    struct ct_grant of_key = {.name = "staff", .role = CT_ROLE_READER, .jobs = "*"};
    char folder[] = "/tmp/ct-ring-XXXXXX", path[64], text[1024] = "";

    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/ring", folder);
    cr_assert_eq(ct_key_ring_add(path, &staff, &munge, &err), 0, "%s", err.text);
    cr_assert_str_eq(staff.id, "munge");
    cr_assert_eq(ct_key_ring_add(path, &ops, &munge, &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_add(path, &ops, &munge, &err), CT_EUSAGE);
    cr_assert_eq(ct_key_ring_add(path, &of_key, &secret, &err), 0, "%s", err.text);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    (void)fclose(file);
    cr_assert_not_null(strstr(text, "\nmunge staff agent %u-* * -\nmunge ops all * 7,8 -\n"), "%s",
                       text);
    cr_assert_eq(ct_key_ring_remove(path, "staff", &err), CT_EUSAGE, "a key has the name, too");
    cr_assert_not_null(strstr(err.text, "munge:staff"), "%s", err.text);
    cr_assert_eq(ct_key_ring_remove(path, "munge:staff", &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_remove(path, "staff", &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_load(path, NULL, &ring, &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_munge(ring)->count, 1);
    cr_assert_str_eq(ct_key_ring_munge(ring)->at[0].name, "ops");
    cr_assert_eq(ct_key_ring_count(ring), 0);
    ct_fs_remove_tree(folder);
}

/* ---- identities ---- */

static const char tag[] = "0123456789abcdef";

Test(munge, an_identity_reads_back)
{
    char name[CT_PSK_MUNGE], job[CT_PSK_TAG], credential[CT_MUNGE_CREDENTIAL];

    ct_psk_munge_name(tag, "MUNGE:AwQF+/==:", name);
    cr_assert(ct_psk_munge_parse(name, strlen(name), job, credential));
    cr_assert_str_eq(job, tag);
    cr_assert_str_eq(credential, "MUNGE:AwQF+/==:");
}

Test(munge, the_longest_credential_fits_and_one_byte_more_does_not)
{
    char text[CT_MUNGE_CREDENTIAL + 1], name[2 * CT_PSK_MUNGE], job[CT_PSK_TAG];
    char credential[CT_MUNGE_CREDENTIAL];

    memset(text, 'A', sizeof text);
    memcpy(text, "MUNGE:", 6);
    for (size_t size = CT_MUNGE_CREDENTIAL - 1; size <= CT_MUNGE_CREDENTIAL; size++) {
        text[size - 1] = ':';
        text[size] = '\0';
        (void)snprintf(name, sizeof name, "ctrun/2 munge %s %s", tag, text);
        cr_assert_eq(ct_psk_munge_parse(name, strlen(name), job, credential),
                     size < CT_MUNGE_CREDENTIAL);
        text[size - 1] = 'A';
    }
}

Test(munge, what_is_no_identity_is_told_from_one)
{
    static const char *const others[] = {
        "",
        "ctrun/2 munge ",
        "ctrun/2 munge 0123456789abcdef ",
        "ctrun/2 munge 0123456789abcdef MUNGE::",
        "ctrun/2 munge 0123456789abcdef MUNGE:A",
        "ctrun/2 munge 0123456789abcdef MUNGE:A:x",
        "ctrun/2 munge 0123456789abcdef MUNGE:A b:",
        "ctrun/2 munge 0123456789abcdef munge:A:",
        "ctrun/2 munge 0123456789abcdeF MUNGE:A:",
        "ctrun/2 munge 0123456789abcdef  MUNGE:A:",
        "ctrun/1 agent 0123456789abcdef 0123456789abcdef",
    };
    char job[CT_PSK_TAG], credential[CT_MUNGE_CREDENTIAL];

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        cr_assert_not(ct_psk_munge_parse(others[i], strlen(others[i]), job, credential), "%s",
                      others[i]);
    cr_assert_not(
        ct_psk_munge_parse("ctrun/2 munge 0123456789abcdef MUNGE:A:\0", 40, job, credential),
        "a terminator is no part of it");
}

/* One identity of an extension. */
static size_t put(unsigned char *to, const char *name)
{
    size_t size = strlen(name);

    to[0] = (unsigned char)(size >> 8);
    to[1] = (unsigned char)size;
    memcpy(to + 2, name, size);
    memset(to + 2 + size, 0, 4);
    return 2 + size + 4;
}

Test(munge, it_is_found_among_others_and_cut_lists_are_survived)
{
    unsigned char list[512];
    char credential[CT_MUNGE_CREDENTIAL] = "";
    size_t size = 2;

    size += put(list + size, "ctrun/1 agent 0123456789abcdef 0123456789abcdef");
    size += put(list + size, "");
    size_t before = size;
    size += put(list + size, "ctrun/2 munge 0123456789abcdef MUNGE:AwQF:");
    list[0] = (unsigned char)((size - 2) >> 8);
    list[1] = (unsigned char)(size - 2);
    cr_assert(ct_psk_munge_find(list, size, credential));
    cr_assert_str_eq(credential, "MUNGE:AwQF:");
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *part = malloc(cut > 0 ? cut : 1); /* its end is guarded under ASan */

        memcpy(part, list, cut);
        cr_assert_not(ct_psk_munge_find(part, cut, credential), "its first %zu bytes", cut);
        if (cut >= 2) {
            part[0] = (unsigned char)((cut - 2) >> 8);
            part[1] = (unsigned char)(cut - 2);
            cr_assert_not(ct_psk_munge_find(part, cut, credential), "%zu bytes", cut);
        }
        free(part);
    }
    cr_assert_lt(before, size);
}
