/* Key rings: what is written reads back, what is none is named by its line, and keys of roles are
 * those that another implementation derives. */
#include "keys/key_ring.h"

#include "base/assert.h"
#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define ID "7b314b4f305f97a5" /* of it */

static char directory[64], path[96];
static struct ct_error err;
static struct ct_key_ring *ring;
static struct ct_key counting; /* bytes 0 to 31 */

static void set_up(void)
{
    (void)snprintf(directory, sizeof directory, "/tmp/ct-ring-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/ring", directory);
    for (unsigned i = 0; i < CT_KEY_BYTES; i++)
        counting.secret[i] = (unsigned char)i;
}

static void tear_down(void)
{
    ct_key_ring_unref(ring);
    (void)ct_fs_remove_tree(directory);
}

TestSuite(key_ring, .init = set_up, .fini = tear_down, .timeout = 20);

static void add(const char *name, enum ct_role role, const char *jobs, unsigned char mark)
{
    struct ct_grant grant = {.role = role};
    struct ct_key key = counting;

    key.secret[31] = mark;
    cr_assert_eq(ct_grant_read_name(&grant, name, &err), 0);
    cr_assert_eq(ct_grant_read_jobs(&grant, jobs, &err), 0);
    grant.users[grant.user_count++] = 1000;
    cr_assert_eq(ct_key_ring_add(path, &grant, &key, &err), 0, "%s", err.text);
}

Test(key_ring, keys_that_are_added_read_back_and_can_be_taken_out)
{
    const struct ct_key *key = NULL;
    struct stat info;

    add("ada", CT_ROLE_AGENT, "ada-*,night", 31);
    add("ops", CT_ROLE_OPERATOR, "*", 1);
    add("ops", CT_ROLE_OPERATOR, "*", 2);
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(info.st_mode & 07777, 0600);
    cr_assert_eq(ct_key_ring_load(path, NULL, &ring, &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_count(ring), 3);
    const struct ct_grant *grant = ct_key_ring_find(ring, ID, &key);
    cr_assert_not_null(grant);
    cr_assert_str_eq(grant->name, "ada");
    cr_assert_eq(grant->role, CT_ROLE_AGENT);
    cr_assert_str_eq(grant->jobs, "ada-*,night");
    cr_assert(grant->user_count == 1 && grant->users[0] == 1000);
    cr_assert_eq(memcmp(key, &counting, sizeof counting), 0);
    cr_assert_null(ct_key_ring_whole(ring), "it is of many");

    cr_assert_eq(ct_key_ring_remove(path, "ops", &err), CT_EUSAGE);
    cr_assert_not_null(strstr(err.text, "has 2 keys of the name ops: name one by its id"));
    cr_assert_eq(ct_key_ring_remove(path, "bob", &err), CT_EUSAGE);
    cr_assert_eq(ct_key_ring_remove(path, "ada", &err), 0, "%s", err.text);
    struct ct_key_ring *less = NULL;
    cr_assert_eq(ct_key_ring_load(path, NULL, &less, &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_count(less), 2);
    cr_assert(ct_key_ring_has(ring, grant) && !ct_key_ring_has(less, grant));
    ct_key_ring_unref(less);
}

Test(key_ring, a_key_twice_and_a_key_that_changed_its_role_are_seen)
{
    struct ct_grant grant = {.name = "ada", .role = CT_ROLE_AGENT, .jobs = "*"};

    cr_assert_eq(ct_key_ring_add(path, &grant, &counting, &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_add(path, &grant, &counting, &err), CT_EUSAGE);
    cr_assert_not_null(strstr(err.text, "has this key already (" ID ")"));
    cr_assert_eq(ct_key_ring_load(path, NULL, &ring, &err), 0);
    cr_assert(ct_key_ring_has(ring, &grant));
    grant.role = CT_ROLE_READER;
    cr_assert_not(ct_key_ring_has(ring, &grant));
}

Test(key_ring, a_line_that_is_none_is_named)
{
    static const struct {
        const char *text, *what;
    } rows[] = {
        {"\n\n" ID " ada agent *\n", "line 3: it has not the six words"},
        {ID " ada agent * * " SECRET " more\n", "line 1: it has not the six words"},
        {ID " ada root * * " SECRET, "line 1: role \"root\" is none of all, agent"},
        {ID " a/da agent * * " SECRET, "line 1: name \"a/da\" is none"},
        {ID " ada agent a,,b * " SECRET, "line 1: jobs \"a,,b\" has an empty pattern"},
        {ID " ada agent * bob " SECRET, "line 1: users \"bob\" is neither"},
        {ID " ada agent * * 0001", "the secret is not 64 hexadecimal digits"},
        {"0000000000000000 ada agent * * " SECRET, "the id is not the secret's"},
        {ID " ada agent * * " SECRET "\n" ID " bob agent * * " SECRET, "has key " ID " twice"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        cr_assert_eq(ct_key_ring_parse(rows[i].text, "ring", &ring, &err), CT_EDATA, "%zu", i);
        cr_assert_not_null(strstr(err.text, rows[i].what), "%zu: %s", i, err.text);
        cr_assert_null(strstr(err.text, SECRET), "no sentence has a secret");
    }
    cr_assert_eq(ct_key_ring_parse("# nothing\n   # \n\n", "ring", &ring, &err), 0);
    cr_assert_eq(ct_key_ring_count(ring), 0);
}

Test(key_ring, of_a_whole_key_come_keys_of_roles)
{
    /* python3: h = lambda k, t: hmac.new(k, t, "sha256").digest();
     * h(h(bytes(range(32)), b"ctrun/1 role agent"), b"ctrun/1 key tag")[:8].hex() */
    static const char *const ids[CT_ROLES] = {ID, "27d16855e2a29cb9", "3e7433cc995cd346",
                                              "69d9a2b7171ab0a3", "394651fc0c9420bb"};
    const struct ct_key *key = NULL;
    struct ct_key derived;

    cr_assert_eq(ct_key_ring_of(&counting, true, &ring, &err), 0, "%s", err.text);
    cr_assert_str_eq(ct_key_ring_whole(ring)->id, ID);
    cr_assert_eq(ct_key_ring_count(ring), (size_t)CT_ROLES);
    for (size_t role = 0; role < CT_ROLES; role++) {
        const struct ct_grant *grant = ct_key_ring_find(ring, ids[role], &key);

        cr_assert_not_null(grant, "%zu", role);
        cr_assert_eq(grant->role, (enum ct_role)role);
    }
    cr_assert_eq(ct_key_derive(&counting, CT_ROLE_READER, &derived, &err), 0);
    (void)ct_key_ring_find(ring, ids[CT_ROLE_READER], &key);
    cr_assert_eq(memcmp(key->secret, derived.secret, sizeof derived.secret), 0);
    ct_key_ring_unref(ring);
    cr_assert_eq(ct_key_ring_of(&counting, false, &ring, &err), 0);
    cr_assert_eq(ct_key_ring_count(ring), 1, "none of its roles");
}

Test(key_ring, a_key_beside_the_ring_may_do_everything)
{
    const struct ct_key *key = NULL;

    add("ops", CT_ROLE_OPERATOR, "*", 1);
    cr_assert_eq(ct_key_ring_load(path, &counting, &ring, &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_count(ring), 2);
    cr_assert_eq(ct_key_ring_find(ring, ID, &key)->role, CT_ROLE_ALL);
    ct_key_ring_unref(ring);
    add("ada", CT_ROLE_AGENT, "*", 31);
    cr_assert_eq(ct_key_ring_load(path, &counting, &ring, &err), 0, "%s", err.text);
    cr_assert_eq(ct_key_ring_find(ring, ID, &key)->role, CT_ROLE_AGENT, "the ring says what");
}

Test(key_ring, a_token_is_its_key_s_alone)
{
    char token[CT_KEY_TOKEN];

    cr_assert_eq(ct_key_ring_of(&counting, true, &ring, &err), 0);
    cr_assert_eq(ct_key_token(&counting, token, &err), 0);
    cr_assert_eq(strlen(token), CT_KEY_TOKEN - 1);
    cr_assert_eq(strncmp(token, ID "-", CT_GRANT_ID), 0);
    cr_assert_str_eq(ct_key_ring_find_token(ring, token, strlen(token))->id, ID);
    for (size_t i = 0; i < sizeof token - 1; i++) {
        token[i] ^= 1;
        cr_assert_null(ct_key_ring_find_token(ring, token, strlen(token)), "byte %zu", i);
        token[i] ^= 1;
    }
    cr_assert_null(ct_key_ring_find_token(ring, token, strlen(token) - 1));
    cr_assert_null(ct_key_ring_find_token(ring, "", 0));
}

Test(key_ring, a_file_that_is_open_to_others_or_a_key_is_no_ring)
{
    char key_path[128];

    add("ops", CT_ROLE_OPERATOR, "*", 1);
    cr_assert_eq(chmod(path, 0644), 0);
    cr_assert_eq(ct_key_ring_load(path, NULL, &ring, &err), CT_EAUTH);
    (void)snprintf(key_path, sizeof key_path, "%s/key", directory);
    cr_assert_eq(ct_net_key_write(key_path, &counting, &err), 0);
    cr_assert_eq(ct_key_ring_load(key_path, NULL, &ring, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "is no key ring but binary"), "%s", err.text);
    cr_assert_eq(ct_key_ring_load("/nonexistent", NULL, &ring, &err), CT_ENOINPUT);
    ring = NULL;
}
