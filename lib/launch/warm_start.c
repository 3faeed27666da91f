/* See warm_start.h. Arguments and environment travel as a file in memory, as they may be longer
 * than a message; the message has its descriptor first, then the worker's, and a byte for each that
 * says which one it becomes. */
#include "launch/warm_start.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SCRIPT_BYTES = 256 * 1024, BOOT_FD = 3 };

/* What the interpreter runs at first. Its names are deleted before the script is __main__. The
 * descriptors that it is given have higher numbers than the places that they are moved to. */
static const char boot[] =
    "import sys\n"
    "def _ahead():\n"
    "    import ast, importlib.util, os, socket\n"
    "    os.close(3)\n"
    "    link, script = socket.socket(fileno=0), sys.argv[1]\n"
    "    sys.path[0] = os.path.dirname(os.path.realpath(script))\n"
    "    def installed(name):\n"
    "        found = importlib.util.find_spec(name.partition('.')[0])\n"
    "        return found is not None and not (found.origin or '').startswith(sys.path[0] + "
    "os.sep)\n"
    "    try:\n"
    "        with open(script, 'rb') as file:\n"
    "            body = ast.parse(file.read()).body\n"
    "    except (OSError, SyntaxError, ValueError):\n"
    "        body = []\n"
    "    names = []\n"
    "    for part in body:\n"
    "        if isinstance(part, ast.Import):\n"
    "            names += [name.name for name in part.names]\n"
    "        elif isinstance(part, ast.ImportFrom) and part.module and not part.level:\n"
    "            names.append(part.module)\n"
    "        elif not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)):\n"
    "            break\n"
    "    if any(name.partition('.')[0] == 'ctrun' for name in names):\n"
    "        if any((name + '.').startswith('ctrun.torch.') for name in names):\n"
    "            names.append('ctrun.torch.ahead')\n"
    "        for name in names:\n"
    "            try:\n"
    "                if installed(name):\n"
    "                    __import__(name)\n"
    "            except Exception:\n"
    "                pass\n"
    "    else:\n"
    "        link.shutdown(socket.SHUT_RD)\n"
    "    places, given, _, _ = socket.recv_fds(link, 16, 16)\n"
    "    if not places:\n"
    "        os._exit(0)\n"
    "    link.close()\n"
    "    with open(given[0], 'rb') as file:\n"
    "        count, *words = file.read().split(b'\\0')[:-1]\n"
    "    for place, fd in zip(places[1:], given[1:]):\n"
    "        os.dup2(fd, place)\n"
    "        os.close(fd)\n"
    "    arguments, settings = words[:int(count)], words[int(count):]\n"
    "    os.environb.clear()\n"
    "    os.environb.update(word.split(b'=', 1) for word in settings)\n"
    "    if os.environ.get('PYTHONFAULTHANDLER'):\n"
    "        import faulthandler\n"
    "        faulthandler.enable()\n"
    "    sys.argv = [os.fsdecode(word) for word in arguments[2:]]\n"
    "    with open(script, 'rb') as file:\n"
    "        return script, compile(file.read(), script, 'exec')\n"
    "__file__, _code = _ahead()\n"
    "del _ahead, sys\n"
    "exec(_code)\n";

bool ct_warm_suits(const char *script)
{
    int fd = open(script, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? malloc(SCRIPT_BYTES) : NULL;
    ssize_t size = text != NULL ? read(fd, text, SCRIPT_BYTES) : 0;
    bool suits = size > 0 && memmem(text, (size_t)size, "ctrun", 5) != NULL;

    free(text);
    if (fd >= 0)
        (void)close(fd);
    return suits;
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

/* A file in memory with these bytes, to be read from its start; -1 without one. */
static int file_of(const char *name, const void *data, size_t size)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    const char *at = data;

    while (fd >= 0 && size > 0) {
        ssize_t written = write(fd, at, size);

        if (written < 0) {
            (void)close(fd);
            return -1;
        }
        at += written;
        size -= (size_t)written;
    }
    if (fd >= 0)
        (void)lseek(fd, 0, SEEK_SET);
    return fd;
}

static int start(struct ct_warm *warm, const struct ct_spawn *spawn, struct ct_error *err)
{
    static char interpreter_flag[] = "-u", boot_path[] = "/proc/self/fd/3";
    int ends[2] = {-1, -1}, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int code = file_of("ctrun", boot, sizeof boot - 1), rc = CT_EOS;
    char *argv[] = {spawn->argv[0], interpreter_flag, boot_path, spawn->argv[2], NULL};

    if (null >= 0 && code >= 0 &&
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
        struct ct_spawn ahead = {.path = spawn->path, .argv = argv, .envp = spawn->envp};
        const int fds[CT_SPAWN_FDS] = {ends[1], null, null, code, -1, -1};

        _Static_assert(BOOT_FD == 3, "boot_path names it");
        memcpy(ahead.fds, fds, sizeof fds);
        rc = ct_spawn(&ahead, &warm->pid, err);
    } else {
        (void)ct_error_set(err, CT_EOS, "no interpreter is started ahead: %s", ct_strerror(-errno));
    }
    warm->fd = ends[0];
    close_all((const int[]){null, code, ends[1], rc == 0 ? -1 : ends[0]}, 4);
    return rc;
}

int ct_warm_fill(struct ct_warm_pool *pool, uint32_t wanted, const struct ct_spawn *spawn,
                 struct ct_error *err)
{
    if (wanted > pool->room) {
        struct ct_warm *all = realloc(pool->all, wanted * sizeof *all);

        if (all == NULL)
            return ct_error_set(err, CT_ENOMEM, "out of memory for %u interpreters", wanted);
        pool->all = all;
        pool->room = wanted;
    }
    while (pool->count < wanted) {
        int rc = start(&pool->all[pool->count], spawn, err);

        if (rc != 0)
            return rc;
        pool->count++;
    }
    return 0;
}

/* "COUNT\0" arguments and environment, each with its end. */
static int words_of(const struct ct_spawn *spawn)
{
    struct ct_buf words;
    size_t count = 0;

    while (spawn->argv[count] != NULL)
        count++;
    ct_buf_init(&words, 0);
    (void)ct_buf_printf(&words, "%zu", count);
    (void)ct_buf_append(&words, "", 1);
    for (size_t i = 0; i < count; i++)
        (void)ct_buf_append(&words, spawn->argv[i], strlen(spawn->argv[i]) + 1);
    for (size_t i = 0; spawn->envp[i] != NULL; i++)
        (void)ct_buf_append(&words, spawn->envp[i], strlen(spawn->envp[i]) + 1);
    int fd = words.failed ? -1 : file_of("ctrun", words.data, words.size);
    ct_buf_deinit(&words);
    return fd;
}

static bool send_descriptors(int to, const struct ct_spawn *spawn, int words)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * (CT_SPAWN_FDS + 1))];
    } control = {0};
    unsigned char places[CT_SPAWN_FDS + 1] = {0};
    int given[CT_SPAWN_FDS + 1] = {words};
    size_t count = 1;

    for (int i = 0; i < CT_SPAWN_FDS; i++)
        if (spawn->fds[i] >= 0) {
            places[count] = (unsigned char)i;
            given[count++] = spawn->fds[i];
        }
    struct iovec text = {places, count};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), given, sizeof(int) * count);
    return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)count;
}

bool ct_warm_become(struct ct_warm_pool *pool, const struct ct_spawn *spawn, pid_t *ret_pid)
{
    int words = pool->count > 0 ? words_of(spawn) : -1;
    bool sent = false;

    while (words >= 0 && pool->count > 0 && !sent) {
        struct ct_warm warm = pool->all[--pool->count];

        sent = send_descriptors(warm.fd, spawn, words);
        (void)close(warm.fd);
        *ret_pid = warm.pid;
    }
    if (words >= 0)
        (void)close(words);
    if (sent && spawn->cpus != NULL)
        (void)sched_setaffinity(*ret_pid, sizeof *spawn->cpus,
                                (const cpu_set_t *)(const void *)spawn->cpus);
    if (sent && spawn->files != NULL)
        (void)prlimit(*ret_pid, RLIMIT_NOFILE, spawn->files, NULL);
    return sent;
}

void ct_warm_drop(struct ct_warm_pool *pool)
{
    while (pool->count > 0)
        (void)close(pool->all[--pool->count].fd);
    free(pool->all);
    *pool = (struct ct_warm_pool){0};
}
