/* See network.h. */
#include "network.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

void network_set_up(const char *interface, bool up)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_flags = up ? IFF_UP : 0};

    (void)snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    (void)close(fd);
}

int network_make(void)
{
    int before = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

    if (before < 0 || unshare(CLONE_NEWNET) != 0) {
        fprintf(stderr, "skipped: a network of one's own needs root\n");
        if (before >= 0)
            (void)close(before);
        return -1;
    }
    network_set_up("lo", true);
    return before;
}

void network_leave(int before)
{
    cr_assert_eq(setns(before, CLONE_NEWNET), 0);
    (void)close(before);
}

/* /sys shows the network of who mounted it. */
static bool mount_sys(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("sys", "/sys", "sysfs", 0, NULL) == 0;
}

bool network_add(int count)
{
    char command[256];
    bool added = mount_sys();

    for (int i = 0; i < count && added; i++) {
        (void)snprintf(
            command, sizeof command,
            "ip link add a%d type veth peer name b%d 2>/dev/null && ip link set b%d up && "
            "ip address add 10.99.%d.1/24 dev a%d && ip link set a%d up",
            i, i, i, i, i, i);
        added = system(command) == 0;
    }
    return added;
}
