/* See tcp_silence.h. */
#include "backend/tcp/tcp_silence.h"

#include "base/assert.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { PROBES_LOST = 2 };

static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value); /* else it is the timeout's affair */
}

/* Half of the time until the first probe, then one a second. */
void ct_tcp_keep_alive(int fd, size_t silence_ms)
{
    int half_s = (int)CT_MAX(silence_ms / 2000, (size_t)1);

    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, half_s);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, half_s);
}

/* A peer that does not read answers the probes of its closed window, so these count as lost only
 * when several are. */
bool ct_tcp_is_silent(int fd, size_t silence_ms)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    return (info.tcpi_retransmits > 0 || info.tcpi_probes > PROBES_LOST) &&
           info.tcpi_last_ack_recv >= silence_ms;
}
