/* See domains.h. */
#include "algorithm/domains.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/fs.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { FILE_MAX = 4096, CACHES_MAX = 16 };

/* ---- one core --------------------------------------------------------------------------------*/

/* The first number of a file, -1 without one: of a list like "4-7,12", the lowest core. */
static int32_t number_in(const char *folder, int core, const char *file)
{
    char path[512];
    struct ct_buf text;
    struct ct_error err = {0};
    int32_t number = -1;

    (void)snprintf(path, sizeof path, "%s/cpu%d/%s", folder, core, file);
    ct_buf_init(&text, 0);
    if (ct_fs_read(path, FILE_MAX, &text, &err) == 0) {
        const char *from = ct_buf_str(&text);
        char *end;
        long value = strtol(from, &end, 10);

        if (end != from && value >= 0 && value <= INT32_MAX)
            number = (int32_t)value;
    }
    ct_buf_deinit(&text);
    return number;
}

/* The lowest of the cores with which this one shares the cache that is farthest from it: a name for
 * it. */
static int32_t cache_of(const char *folder, int core)
{
    int32_t highest = 0, cache = -1;
    char file[64];

    for (int i = 0; i < CACHES_MAX; i++) {
        (void)snprintf(file, sizeof file, "cache/index%d/level", i);
        int32_t level = number_in(folder, core, file);
        if (level < 0)
            break;
        if (level < highest)
            continue;
        highest = level;
        (void)snprintf(file, sizeof file, "cache/index%d/shared_cpu_list", i);
        cache = number_in(folder, core, file);
    }
    return cache;
}

/* ---- a rank ----------------------------------------------------------------------------------*/

struct ct_seat ct_seat_of(const char *folder, const uint64_t cpus[CT_SEAT_WORDS])
{
    struct ct_seat seat = {-1, -1};
    bool any = false;

    for (int core = 0; core < CT_SEAT_WORDS * 64; core++) {
        if ((cpus[core / 64] >> core % 64 & 1) == 0)
            continue;
        struct ct_seat here = {cache_of(folder, core),
                               number_in(folder, core, "topology/physical_package_id")};
        if (!any)
            seat = here;
        any = true;
        seat.cache = here.cache == seat.cache ? seat.cache : -1;
        seat.socket = here.socket == seat.socket ? seat.socket : -1;
        if (seat.socket < 0)
            return (struct ct_seat){-1, -1};
    }
    return seat;
}

/* ---- all ranks -------------------------------------------------------------------------------*/

/* Runs of ranks with the same number; none when a rank has none, when they are more than there may
 * be, or when most are of one rank. */
static struct ct_domains runs_of(const struct ct_seat *seats, int size, bool of_caches)
{
    struct ct_domains domains = {0}, none = {.count = 1, .first = {0, size}};
    int32_t last = -1;

    for (int rank = 0; rank < size; rank++) {
        int32_t number = of_caches ? seats[rank].cache : seats[rank].socket;

        if (number < 0)
            return none;
        if (rank > 0 && number == last)
            continue;
        if (domains.count == CT_DOMAINS_MAX)
            return none;
        domains.first[domains.count++] = rank;
        last = number;
    }
    domains.first[domains.count] = size;
    return size >= 2 * domains.count ? domains : none;
}

struct ct_domains ct_domains_of(const struct ct_seat *seats, int size)
{
    struct ct_domains domains = runs_of(seats, size, true);

    return domains.count > 1 ? domains : runs_of(seats, size, false);
}

int ct_domains_find(const struct ct_domains *domains, int rank)
{
    int d = 0;

    while (rank >= domains->first[d + 1])
        d++;
    return d;
}
