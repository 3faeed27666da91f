/* See cluster.h. */
#include "cluster.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct hosts hosts;

const struct hosts *cluster_hosts(void)
{
    return &hosts;
}

void cluster_up(int count)
{
    if (!hosts_can_be_made())
        cr_skip_test("skipped: network namespaces need root");
    cr_assert_eq(hosts.count, 0);
    cr_assert(hosts_up(&hosts, "ct", count, false), "the hosts cannot be made");
}

void cluster_down(void)
{
    hosts_down(&hosts);
}

const char *cluster_address(int host)
{
    return hosts_address(&hosts, host);
}

void cluster_start(struct proc *proc, int host, const char *const argv[])
{
    char name[16];

    (void)snprintf(name, sizeof name, "host%d", host);
    cr_assert_eq(hosts_spawn(&hosts, host, name, proc, argv, NULL), 0);
}

void cluster_cut(int host)
{
    cr_assert(hosts_cut(&hosts, host));
}

void cluster_lose(int host, enum hosts_way way, int percent)
{
    cr_assert(hosts_lose(&hosts, host, way, percent));
}

void cluster_slow(int host, const char *rate)
{
    cr_assert(hosts_slow(&hosts, host, rate));
}

void cluster_reset(int host, int but)
{
    cr_assert(hosts_reset(&hosts, host, but));
}

void cluster_restore(int host)
{
    cr_assert(hosts_restore(&hosts, host));
}

void cluster_reboot(int host)
{
    cr_assert(hosts_reboot(&hosts, host));
}
