/* A queue for known addresses; see known.h. */
#include "net/known.h"

#include "base/assert.h"
#include "net/address.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

enum {
    FROM_V4 = 12, /* where the source's address lies in the headers */
    FROM_V6 = 8,
    ANY_QUEUE = 0, /* in the order in which they began to listen */
    KNOWN_QUEUE = 1,
    INSTRUCTIONS = 8 + 5 * CT_KNOWN,
};

/* ---- who is known ---- */

bool ct_known_add(struct ct_known *known, const struct sockaddr_storage *address)
{
    struct ct_known_address new = {.is_v6 = address->ss_family == AF_INET6};
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;

    memcpy(&v6, address, sizeof(v6));
    memcpy(&v4, address, sizeof(v4));
    if (new.is_v6 && IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) { /* its packets are IPv4 */
        new.is_v6 = false;
        memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
    } else if (!new.is_v6 && address->ss_family != AF_INET) {
        return false;
    }
    memcpy(new.words, new.is_v6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr,
           new.is_v6 ? sizeof(new.words) : sizeof(new.words[0]));
    for (size_t i = 0; i < CT_COUNT(new.words); i++)
        new.words[i] = ntohl(new.words[i]);
    for (uint32_t i = 0; i < CT_MIN(known->count, (uint32_t)CT_KNOWN); i++) {
        const struct ct_known_address *old = &known->addresses[i];
        if (old->is_v6 == new.is_v6 && memcmp(old->words, new.words, sizeof(new.words)) == 0)
            return false;
    }
    known->addresses[known->count++ % CT_KNOWN] = new;
    return true;
}

/* ---- the filter ---- */

struct program {
    struct sock_filter code[INSTRUCTIONS];
    unsigned short length;
};

static void put(struct program *program, struct sock_filter instruction)
{
    program->code[program->length++] = instruction;
}

static void put_load(struct program *program, uint32_t at)
{
    put(program,
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + at));
}

/* Go on if the word that was loaded is `word`, else behind the next `skip` instructions. */
static void put_equal(struct program *program, uint32_t word, unsigned char skip)
{
    put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word, 0, skip));
}

static void put_answer(struct program *program, uint32_t queue)
{
    put(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, queue));
}

/* The known addresses of one family: load, compare, answer. */
static void put_known(struct program *program, const struct ct_known *known, bool is_v6)
{
    if (!is_v6)
        put_load(program, FROM_V4);
    for (uint32_t i = 0; i < CT_MIN(known->count, (uint32_t)CT_KNOWN); i++) {
        const struct ct_known_address *one = &known->addresses[i];
        if (one->is_v6 != is_v6)
            continue;
        if (is_v6) {
            put_load(program, FROM_V6);
            put_equal(program, one->words[0], 3);
            put_load(program, FROM_V6 + 4);
            put_equal(program, one->words[1], 1);
        } else {
            put_equal(program, one->words[0], 1);
        }
        put_answer(program, KNOWN_QUEUE);
    }
    put_answer(program, ANY_QUEUE);
}

int ct_known_update(const struct ct_known *known, int fd)
{
    struct program program = {.length = 0};

    put(&program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (uint32_t)SKF_NET_OFF));
    put(&program, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4)); /* the version */
    put_equal(&program, 6, 1);
    struct sock_filter *to_v6 = &program.code[program.length];
    put(&program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0));
    put_known(&program, known, false);
    to_v6->k = (uint32_t)(program.length - (to_v6 - program.code) - 1);
    put_known(&program, known, true);
    CT_ASSERT(program.length <= INSTRUCTIONS);
    const struct sock_fprog filter = {.len = program.length, .filter = program.code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof(filter)) != 0
               ? -errno
               : 0;
}

/* ---- the second socket ---- */

static int listen_again(int fd, int second)
{
    static const struct ct_known nobody;
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(address);
    int on = 1, off = 0;

    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return -errno;
    /* The first has found the address free by now: that two may share it hides no other program. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 ||
        setsockopt(second, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 ||
        setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
        return -errno;
    if (address.ss_family == AF_INET6)
        (void)setsockopt(second, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(second, (struct sockaddr *)&address, size) != 0 || listen(second, 0) != 0)
        return -errno;
    return ct_known_update(&nobody, second);
}

int ct_known_listen(int fd, int *ret_fd)
{
    int family = AF_UNSPEC, off = 0;
    socklen_t size = sizeof(family);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0)
        return -errno;
    int second = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (second < 0)
        return -errno;
    int code = listen_again(fd, second);
    if (code != 0) {
        (void)close(second);
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &off, sizeof(off));
        return code;
    }
    *ret_fd = second;
    return 0;
}

/* ---- who says nothing ---- */

void ct_known_hold_silent(int fd, int seconds)
{
    char cookies[2] = "0";
    int file = open("/proc/sys/net/ipv4/tcp_syncookies", O_RDONLY | O_CLOEXEC);
    bool has_read = file >= 0 && read(file, cookies, 1) == 1;

    if (file >= 0)
        (void)close(file);
    if (has_read && cookies[0] != '0')
        (void)setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
}
