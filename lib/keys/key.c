/* See key.h. */
#include "keys/key.h"

#include "base/fs.h"
#include "keys/certificates.h"
#include "keys/munge.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int fill_random(unsigned char *to, size_t size)
{
    while (size > 0) {
        ssize_t count = getrandom(to, size, 0);
        if (count < 0 && errno != EINTR)
            return -errno;
        if (count > 0) {
            to += count;
            size -= (size_t)count;
        }
    }
    return 0;
}

int ct_net_key_new(const char *path, struct ct_error *err)
{
    struct ct_key key = {.kind = CT_KEY_SECRET};
    int code = fill_random(key.secret, sizeof(key.secret));

    if (code != 0)
        return ct_error_set(err, CT_ECANTCREAT, "no random bytes for a key: %s", strerror(-code));
    code = ct_net_key_write(path, &key, err);
    ct_net_key_wipe(&key);
    return code;
}

int ct_net_key_write(const char *path, const struct ct_key *key, struct ct_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 && errno == EEXIST)
        return ct_error_set(err, CT_ECANTCREAT,
                            "key file %s exists already: remove it first, or name another", path);
    if (fd < 0)
        return ct_error_set(err, CT_ECANTCREAT, "cannot create key file %s: %s", path,
                            strerror(errno));
    int code = ct_fs_write_all(fd, key->secret, sizeof(key->secret));
    if (code == 0 && fsync(fd) != 0)
        code = -errno;
    if (close(fd) != 0 && code == 0)
        code = -errno;
    if (code == 0)
        return 0;
    unlink(path);
    return ct_error_set(err, CT_ECANTCREAT, "cannot write key file %s: %s", path, strerror(-code));
}

/* Is the open file what a file with a secret must be? */
static int judge(const char *what, const char *path, const struct stat *stat, struct ct_error *err)
{
    if (!S_ISREG(stat->st_mode))
        return ct_error_set(err, CT_EAUTH, "%s %s is no regular file", what, path);
    if (stat->st_uid != geteuid() && stat->st_uid != 0)
        return ct_error_set(err, CT_EAUTH, "%s %s belongs to user %u, not to you (%u)", what, path,
                            (unsigned)stat->st_uid, (unsigned)geteuid());
    if ((stat->st_mode & (stat->st_uid == 0 ? 037 : 077)) != 0)
        return ct_error_set(err, CT_EAUTH, "%s %s is open to others (mode %04o): chmod 600 %s",
                            what, path, (unsigned)(stat->st_mode & 07777), path);
    return 0;
}

int ct_net_secret_open(const char *what, const char *path, int *ret_fd, off_t *ret_size,
                       struct ct_error *err)
{
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */

    if (fd < 0)
        return ct_error_set(err, CT_ENOINPUT, "cannot open %s %s: %s", what, path, strerror(errno));
    int code = fstat(fd, &stat) != 0 ? ct_error_set(err, CT_ENOINPUT, "cannot look at %s %s: %s",
                                                    what, path, strerror(errno))
                                     : judge(what, path, &stat, err);
    if (code != 0) {
        close(fd);
        return code;
    }
    *ret_fd = fd;
    *ret_size = stat.st_size;
    return 0;
}

int ct_net_key_load(const char *path, struct ct_key *ret_key, struct ct_error *err)
{
    struct ct_key key = {.kind = CT_KEY_SECRET};
    off_t size = 0;
    int fd = -1, code;

    if (ct_munge_is_meant(path))
        return ct_munge_parse(path, ret_key, err);
    code = ct_net_secret_open("key file", path, &fd, &size, err);
    if (code != 0)
        return code;
    if (size != CT_KEY_BYTES)
        code =
            ct_error_set(err, CT_EAUTH,
                         "key file %s has %lld bytes, a key has %d: make one with `ctrun key new`",
                         path, (long long)size, CT_KEY_BYTES);
    if (code == 0) {
        ssize_t count = read(fd, key.secret, sizeof(key.secret));
        if (count == CT_KEY_BYTES)
            *ret_key = key;
        else
            code = ct_error_set(err, CT_ENOINPUT, "cannot read key file %s: %s", path,
                                count < 0 ? strerror(errno) : "it got shorter");
        ct_net_key_wipe(&key);
    }
    close(fd);
    return code;
}

void ct_net_key_copy(struct ct_key *to, const struct ct_key *from)
{
    *to = *from;
    (void)ct_certificates_ref(to->certificates);
}

void ct_net_key_wipe(struct ct_key *key)
{
    ct_certificates_unref(key->certificates);
    explicit_bzero(key, sizeof(*key));
}
