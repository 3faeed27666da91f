/* ctrun key: make keys, say what their holders may do, and take them back. */
#include "cli/commands.h"

#include "base/assert.h"
#include "base/error.h"
#include "cli/cli_options.h"
#include "keys/key.h"
#include "keys/key_ring.h"
#include "keys/munge.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLACES = 3 };

struct asked {
    const char *places[PLACES]; /* "new", "FILE" */
    int count;
    const char *role, *ring, *name, *jobs, *users;
};

static int usage(struct ct_error *err, const char *line)
{
    return ct_error_set(err, CT_EUSAGE, "usage: ctrun key %s", line);
}

/* Names of users become numbers. */
static int read_users(const char *list, struct ct_grant *grant, struct ct_error *err)
{
    struct ct_buf numbers;
    int code = 0;

    ct_buf_init(&numbers, 1024);
    for (const char *at = list; code == 0 && at[0] != '\0';) {
        size_t size = strcspn(at, ",");
        char name[64];

        (void)snprintf(name, sizeof name, "%.*s", (int)CT_MIN(size, sizeof name - 1), at);
        const struct passwd *user = size < sizeof name ? getpwnam(name) : NULL;
        if (user != NULL)
            (void)ct_buf_printf(&numbers, "%u", (unsigned)user->pw_uid);
        else if (name[strspn(name, "0123456789*")] == '\0')
            (void)ct_buf_puts(&numbers, name);
        else
            code = ct_error_set(err, CT_EUSAGE, "--users: this machine knows no user %s", name);
        at += size;
        if (at[0] == ',') {
            (void)ct_buf_puts(&numbers, ",");
            at++;
        }
    }
    if (code == 0 && numbers.failed)
        code = ct_error_set(err, CT_EUSAGE, "--users names more than %d", CT_GRANT_USERS);
    if (code == 0)
        code = ct_grant_read_users(grant, ct_buf_str(&numbers), err);
    ct_buf_deinit(&numbers);
    return code;
}

static int read_role(const char *name, enum ct_role *ret_role, struct ct_error *err)
{
    *ret_role = ct_role_find(name);
    return *ret_role != CT_ROLES
               ? 0
               : ct_error_set(err, CT_EUSAGE, "--role %s is none of %s", name, ct_role_names());
}

/* What the options say of a key for a ring. */
static int read_grant(const struct asked *asked, struct ct_grant *ret_grant, struct ct_error *err)
{
    *ret_grant = (struct ct_grant){.name = ""};
    if (asked->name == NULL || asked->role == NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "a key for a ring needs --name NAME and --role ROLE, one of %s",
                            ct_role_names());
    int code = ct_grant_read_name(ret_grant, asked->name, err);
    if (code == 0)
        code = read_role(asked->role, &ret_grant->role, err);
    if (code == 0)
        code = ct_grant_read_jobs(ret_grant, asked->jobs != NULL ? asked->jobs : "*", err);
    if (code == 0)
        code = read_users(asked->users != NULL ? asked->users : "*", ret_grant, err);
    return code;
}

/* Users whom munge names, instead of a key. */
static int add_munge(const struct asked *asked, struct ct_grant *grant, struct ct_error *err)
{
    struct ct_key munge = {.kind = CT_KEY_MUNGE};
    int code = ct_key_ring_add(asked->ring, grant, &munge, err);

    if (code == 0)
        (void)printf("users whom munge names are in %s: %s (%s), jobs %s; SIGHUP has ctrund read "
                     "the ring again\n",
                     asked->ring, grant->name, ct_role_name(grant->role), grant->jobs);
    return code;
}

/* A key that could not be added to the ring is none. */
static int add_to_ring(const struct asked *asked, struct ct_grant *grant, struct ct_error *err)
{
    const char *file = asked->places[1];
    struct ct_key key = {.kind = CT_KEY_SECRET};
    int code = ct_net_key_load(file, &key, err);

    if (code == 0)
        code = ct_key_ring_add(asked->ring, grant, &key, err);
    ct_net_key_wipe(&key);
    if (code != 0) {
        (void)unlink(file);
        return code;
    }
    (void)printf("%s holds a new key, %s in %s: %s (%s), jobs %s; SIGHUP has ctrund read the ring "
                 "again\n",
                 file, grant->id, asked->ring, grant->name, ct_role_name(grant->role), grant->jobs);
    return 0;
}

static int make(const struct asked *asked, struct ct_error *err)
{
    struct ct_grant grant;

    if (asked->count != 2)
        return usage(err, "new FILE (copy the file to every node)");
    if (asked->ring == NULL && asked->role != NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "a new key has the role that a ring gives it (--ring RING); `ctrun key "
                            "derive KEY FILE --role %s` makes one of a job's key",
                            asked->role);
    if (asked->ring == NULL && ct_munge_is_meant(asked->places[1]))
        return ct_error_set(err, CT_EUSAGE,
                            "munge needs no key: a line for its users is made with --ring RING");
    int code = asked->ring != NULL ? read_grant(asked, &grant, err) : 0;
    if (code == 0 && ct_munge_is_meant(asked->places[1]))
        return add_munge(asked, &grant, err);
    if (code == 0)
        code = ct_net_key_new(asked->places[1], err);
    if (code == 0 && asked->ring != NULL)
        code = add_to_ring(asked, &grant, err);
    else if (code == 0)
        (void)printf("%s holds a new key; copy it to every node (mode 0600) and give --key_file\n",
                     asked->places[1]);
    return code;
}

static int derive(const struct asked *asked, struct ct_error *err)
{
    struct ct_key whole = {.kind = CT_KEY_SECRET}, derived = {.kind = CT_KEY_SECRET};
    enum ct_role role;

    if (asked->count != 3 || asked->role == NULL)
        return usage(err, "derive KEY FILE --role ROLE");
    int code = read_role(asked->role, &role, err);
    if (code == 0 && role == CT_ROLE_ALL)
        code = ct_error_set(err, CT_EUSAGE, "--role all is what %s has: copy it", asked->places[1]);
    if (code == 0)
        code = ct_net_key_load(asked->places[1], &whole, err);
    if (code != 0)
        return code;
    code = ct_key_derive(&whole, role, &derived, err);
    if (code == 0)
        code = ct_net_key_write(asked->places[2], &derived, err);
    if (code == 0)
        (void)printf("%s holds a key of the role %s, which is accepted where %s is\n",
                     asked->places[2], asked->role, asked->places[1]);
    ct_net_key_wipe(&whole);
    ct_net_key_wipe(&derived);
    return code;
}

static void print_grant(const struct ct_grant *grant)
{
    struct ct_buf users;

    ct_buf_init(&users, 0);
    ct_grant_put_users(grant, &users);
    (void)printf("%-16s  %-16s  %-8s  %-24s  %s\n", grant->id, grant->name,
                 ct_role_name(grant->role), grant->jobs, ct_buf_str(&users));
    ct_buf_deinit(&users);
}

static int list(const struct asked *asked, struct ct_error *err)
{
    struct ct_key_ring *ring = NULL;
    const struct ct_key *key;

    if (asked->count != 2)
        return usage(err, "list RING");
    int code = ct_key_ring_load(asked->places[1], NULL, &ring, err);
    if (code != 0)
        return code;
    (void)printf("%-16s  %-16s  %-8s  %-24s  %s\n", "id", "name", "role", "jobs", "users");
    for (size_t i = 0; i < ct_key_ring_count(ring); i++)
        print_grant(ct_key_ring_at(ring, i, &key));
    const struct ct_munge_lines *munge = ct_key_ring_munge(ring);
    for (size_t i = 0; munge != NULL && i < munge->count; i++)
        print_grant(&munge->at[i]);
    ct_key_ring_unref(ring);
    return 0;
}

static int take_back(const struct asked *asked, struct ct_error *err)
{
    if (asked->count != 3)
        return usage(err, "revoke RING NAME|ID");
    int code = ct_key_ring_remove(asked->places[1], asked->places[2], err);
    if (code == 0)
        (void)printf("key %s is no longer in %s; SIGHUP has ctrund read the ring again and end its "
                     "links\n",
                     asked->places[2], asked->places[1]);
    return code;
}

static int print_token(const struct asked *asked, struct ct_error *err)
{
    char token[CT_KEY_TOKEN];
    struct ct_key key = {.kind = CT_KEY_SECRET};

    if (asked->count != 2)
        return usage(err, "token KEY");
    int code = ct_net_key_load(asked->places[1], &key, err);
    if (code == 0)
        code = ct_key_token(&key, token, err);
    ct_net_key_wipe(&key);
    if (code == 0)
        (void)puts(token);
    return code;
}

static int carry_out(const struct asked *asked, struct ct_error *err)
{
    static const struct {
        const char *name;
        int (*act)(const struct asked *asked, struct ct_error *err);
    } rows[] = {
        {"new", make},         {"derive", derive},     {"list", list},
        {"revoke", take_back}, {"token", print_token},
    };

    for (size_t i = 0; asked->count > 0 && i < CT_COUNT(rows); i++)
        if (strcmp(asked->places[0], rows[i].name) == 0)
            return rows[i].act(asked, err);
    return usage(err, "new FILE | derive KEY FILE --role ROLE | list RING | revoke RING NAME | "
                      "token KEY; see ctrun help key");
}

int ct_cmd_key(int argc, char **argv)
{
    struct asked asked = {.count = 0};
    const struct ct_option options[] = {
        {"role", CT_OPTION_TEXT, &asked.role},   {"ring", CT_OPTION_TEXT, &asked.ring},
        {"name", CT_OPTION_TEXT, &asked.name},   {"jobs", CT_OPTION_TEXT, &asked.jobs},
        {"users", CT_OPTION_TEXT, &asked.users},
    };
    struct ct_cli_options cli = {.command = "key",
                                 .options = options,
                                 .option_count = CT_COUNT(options),
                                 .places = asked.places,
                                 .room = PLACES};
    struct ct_error err = {0};
    int code = ct_cli_options_read(&cli, argc - 1, argv + 1, &err);

    asked.count = cli.count;
    if (code == 0)
        code = carry_out(&asked, &err);
    if (code == 0 && fflush(stdout) != 0)
        code = ct_error_set(&err, CT_EIO, "cannot write to standard output");
    return code == 0 ? 0 : ct_command_fail("ctrun key", code, err.text);
}
