/* See munge.h. */
#include "keys/munge.h"

#include "keys/library.h"

#include "base/assert.h"
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PREFIX "munge:"

/* Of munge.h of libmunge, whose ABI is fixed. */
enum {
    OPT_TTL = 4,
    OPT_SOCKET = 8,
    OPT_UID_RESTRICTION = 9,
    ERROR_SOCKET = 6,
    ERROR_TIMEOUT = 7,
    ERROR_BAD_CRED = 8,
};

enum { NAMES_BYTES = 16 << 10 };

/* ---- the library ---- */

struct munge_ctx;

struct library {
#define MUNGE_FUNCTION(result, name, arguments) result(*name) arguments;
#include "keys/munge.def"
#undef MUNGE_FUNCTION
};

static struct library library;        /* written once by load */
static char missing[CT_LIBRARY_TEXT]; /* why it is not there; "" when it is */

static const struct ct_library_function functions[] = {
#define MUNGE_FUNCTION(result, name, arguments) {#name, offsetof(struct library, name)},
#include "keys/munge.def"
#undef MUNGE_FUNCTION
};

static void load(void)
{
    ct_library_load("libmunge.so.2", functions, CT_COUNT(functions), &library, missing);
}

static int find_library(const struct library **ret_library, struct ct_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, load);
    if (missing[0] != '\0')
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "\"munge:\" needs libmunge (package libmunge2), which does not load: "
                            "%s",
                            missing);
    *ret_library = &library;
    return 0;
}

/* ---- names ---- */

bool ct_munge_is_meant(const char *path)
{
    return ct_starts_with(path, PREFIX);
}

/* The account's number. False: there is none of that name. */
static bool find_account(const char *name, uint32_t *ret_uid)
{
    char names[NAMES_BYTES];
    struct passwd entry, *found = NULL;
    uint64_t number;

    if (name[0] == '\0') {
        *ret_uid = geteuid();
        return true;
    }
    if (ct_parse_u64(name, &number) == 0 && number < UINT32_MAX) {
        *ret_uid = (uint32_t)number;
        return true;
    }
    if (getpwnam_r(name, &entry, names, sizeof names, &found) != 0 || found == NULL)
        return false;
    *ret_uid = entry.pw_uid;
    return true;
}

int ct_munge_parse(const char *text, struct ct_key *ret_key, struct ct_error *err)
{
    const char *account = text + strlen(PREFIX);
    size_t size = strcspn(account, ":");
    const char *socket = account[size] == ':' ? account + size + 1 : "";
    const struct library *munge = NULL;
    struct ct_key key = {.kind = CT_KEY_MUNGE};
    char name[256];

    CT_ASSERT(ct_munge_is_meant(text));
    (void)snprintf(name, sizeof name, "%.*s", (int)CT_MIN(size, sizeof name - 1), account);
    if (size >= sizeof name || !find_account(name, &key.munge.account))
        return ct_error_set(err, CT_EUSAGE,
                            "\"%.100s\" names no account of this machine: \"munge:\" means your "
                            "own, munge:root root's, munge:1000 that of the user 1000",
                            text);
    if ((socket[0] != '/' && socket[0] != '\0') ||
        !ct_str_copy(key.munge.socket, sizeof key.munge.socket, socket))
        return ct_error_set(err, CT_EUSAGE,
                            "the socket of munged in \"%.140s\" is no absolute path of at most %d "
                            "bytes",
                            text, CT_KEY_SOCKET - 1);
    int code = find_library(&munge, err);
    if (code == 0)
        *ret_key = key;
    return code;
}

/* The name counts in patterns of jobs: one with letters that mean something there is not used. */
static void name_user(struct ct_munge_user *user)
{
    char names[NAMES_BYTES];
    struct passwd entry, *found = NULL;

    if (getpwuid_r(user->uid, &entry, names, sizeof names, &found) == 0 && found != NULL) {
        const char *at = entry.pw_name;

        while (isalnum((unsigned char)*at) || *at == '.' || *at == '_' || *at == '-')
            at++;
        if (at > entry.pw_name && *at == '\0' &&
            ct_str_copy(user->name, sizeof user->name, entry.pw_name))
            return;
    }
    (void)snprintf(user->name, sizeof user->name, "%u", user->uid);
}

/* ---- credentials ---- */

static struct munge_ctx *new_context(const struct library *munge, const char *socket)
{
    struct munge_ctx *context = munge->munge_ctx_create();

    if (context != NULL && socket[0] != '\0' &&
        munge->munge_ctx_set(context, OPT_SOCKET, socket) != 0) {
        munge->munge_ctx_destroy(context);
        context = NULL;
    }
    return context;
}

/* libmunge's own words have the detail: the socket, what the kernel says of it. */
static int fail(const struct library *munge, struct munge_ctx *context, int why, const char *what,
                struct ct_error *err)
{
    const char *detail = munge->munge_ctx_strerror(context);

    if (detail == NULL)
        detail = munge->munge_strerror(why);
    if (why == ERROR_SOCKET || why == ERROR_TIMEOUT)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "munged does not answer on this machine (%s): is it running? "
                            "systemctl status munge",
                            detail);
    return ct_error_set(err, why >= ERROR_BAD_CRED ? CT_EAUTH : CT_EUNAVAILABLE, "%s (%s)", what,
                        detail);
}

static int seal(const struct library *munge, struct munge_ctx *context, uint32_t account,
                struct ct_munge_credential *credential, struct ct_error *err)
{
    char *text = NULL;
    int why = munge->munge_ctx_set(context, OPT_UID_RESTRICTION, (uid_t)account);

    if (why == 0)
        why = munge->munge_ctx_set(context, OPT_TTL, CT_MUNGE_TTL_S);
    if (why == 0)
        why = munge->munge_encode(&text, context, credential->key.secret, CT_KEY_BYTES);
    int code = why != 0 ? fail(munge, context, why, "munge makes no credential", err) : 0;
    if (text != NULL && !ct_str_copy(credential->text, sizeof credential->text, text))
        code = ct_error_set(err, CT_EUNSUPPORTED, "munge's credential has %zu bytes, %d at most",
                            strlen(text), CT_MUNGE_CREDENTIAL - 1);
    free(text);
    return code;
}

int ct_munge_seal(const struct ct_key *key, struct ct_munge_credential *ret_credential,
                  struct ct_error *err)
{
    const struct library *munge = NULL;
    int code = find_library(&munge, err);

    if (munge == NULL)
        return code;
    *ret_credential = (struct ct_munge_credential){.key = {.kind = CT_KEY_SECRET}};
    if (getrandom(ret_credential->key.secret, CT_KEY_BYTES, 0) != CT_KEY_BYTES)
        return ct_error_set(err, CT_EOS, "no random bytes for a key: %s", strerror(errno));
    struct munge_ctx *context = new_context(munge, key->munge.socket);
    if (context == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a munge credential");
    code = seal(munge, context, key->munge.account, ret_credential, err);
    munge->munge_ctx_destroy(context);
    return code;
}

int ct_munge_open(const char *socket, struct ct_munge_credential *credential, struct ct_error *err)
{
    const struct library *munge = NULL;
    int size = 0, code = find_library(&munge, err);
    void *secret = NULL;
    uid_t uid = (uid_t)-1;
    gid_t gid;

    if (munge == NULL)
        return code;
    struct munge_ctx *context = new_context(munge, socket);
    if (context == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a munge credential");
    int why = munge->munge_decode(credential->text, context, &secret, &size, &uid, &gid);
    if (why != 0)
        code = fail(munge, context, why, "the peer's munge credential is refused", err);
    else if (size != CT_KEY_BYTES)
        code =
            ct_error_set(err, CT_EAUTH, "the peer's munge credential holds %d bytes, no key", size);
    if (code == 0) {
        credential->key = (struct ct_key){.kind = CT_KEY_SECRET};
        memcpy(credential->key.secret, secret, CT_KEY_BYTES);
        credential->user.uid = uid;
        name_user(&credential->user);
    }
    if (secret != NULL)
        explicit_bzero(secret, (size_t)size);
    free(secret);
    munge->munge_ctx_destroy(context);
    return code;
}
