/* Events, alarms and the table at the end. See soak.h. */
#include "soak.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep(struct soak *soak, const char *text)
{
    struct report *report = &soak->report;

    (void)snprintf(report->events[report->event_count++ % SOAK_EVENTS], sizeof report->events[0],
                   "[%9.3f] %s", soak_now_s(soak), text);
}

void report_event(struct soak *soak, const char *format, ...)
{
    char text[240];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    keep(soak, text);
    (void)printf("[%9.3f] %s\n", soak_now_s(soak), text);
    (void)fflush(stdout);
}

void report_alarm(struct soak *soak, const char *format, ...)
{
    struct report *report = &soak->report;
    uint64_t first = report->event_count > SOAK_EVENTS ? report->event_count - SOAK_EVENTS : 0;
    char text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)printf("\nALARM after %.3f s (seed %" PRIu64 "): %s\nthe last events:\n",
                 soak_now_s(soak), soak->seed, text);
    for (uint64_t i = first; i < report->event_count; i++)
        (void)printf("    %s\n", report->events[i % SOAK_EVENTS]);
    (void)printf("\n");
    (void)fflush(stdout);
    keep(soak, text);
    if (++report->alarms >= SOAK_ALARMS)
        soak->over = true;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Sorts the pauses; the one that `share` of them do not exceed. */
static double quantile(const struct pauses *pauses, double share)
{
    if (pauses->count == 0)
        return 0;
    qsort(pauses->seconds, pauses->count, sizeof *pauses->seconds, by_value);
    double place = share * (double)pauses->count;
    uint32_t index = (uint32_t)place;
    return (double)pauses->seconds[index < pauses->count ? index : pauses->count - 1];
}

static void put_pauses(const char *words, const struct pauses *pauses)
{
    (void)printf("%-58s %7u %9.3f %9.3f %9.3f\n", words, pauses->faults, quantile(pauses, 0.5),
                 quantile(pauses, 0.99), quantile(pauses, 1));
}

static void put_all_pauses(const struct soak *soak)
{
    struct pauses all = {0};
    uint32_t room = 1;

    (void)printf("%-58s %7s %9s %9s %9s\n", "the longest time without a step after (seconds)",
                 "faults", "median", "99 %", "longest");
    for (int kind = 0; kind < FAULT_COUNT; kind++) {
        if (faults_weight(soak, (enum fault_kind)kind) > 0)
            put_pauses(faults_words((enum fault_kind)kind), &soak->steps.pauses[kind]);
        room += soak->steps.pauses[kind].count;
    }
    all.seconds = calloc(room, sizeof *all.seconds);
    for (int kind = 0; all.seconds != NULL && kind < FAULT_COUNT; kind++) {
        const struct pauses *pauses = &soak->steps.pauses[kind];
        all.faults += pauses->faults;
        for (uint32_t i = 0; i < pauses->count; i++)
            all.seconds[all.count++] = pauses->seconds[i];
    }
    put_pauses("all", &all);
    free(all.seconds);
}

static void put_holdings(const struct soak *soak)
{
    static const char *const names[ROLE_COUNT] = {"daemon", "agent", "worker"};

    (void)printf("\n%-28s %8s %13s %13s %22s %10s\n", "who lived longest", "lived", "descriptors",
                 "shared maps", "memory", "slope");
    for (int role = 0; role < ROLE_COUNT; role++) {
        const struct tracked *it = &soak->census.eldest[role];
        if (it->times == 0)
            continue;
        (void)printf("%-22s %5d %6.0f s %5ld -> %4ld %5ld -> %4ld %7ld -> %7ld KiB %4.0f KiB/min\n",
                     names[role], (int)it->pid, it->last_s - it->first_s, it->first.fds,
                     it->last.fds, it->first.memfds, it->last.memfds, it->first.rss_kib,
                     it->last.rss_kib, census_slope(it));
    }
}

void report_table(const struct soak *soak)
{
    const struct steps *steps = &soak->steps;

    (void)printf("\n");
    put_all_pauses(soak);
    put_holdings(soak);
    (void)printf("\nseed %" PRIu64 ", %.0f s, %s; %" PRIu64 " steps, %.0f rounds, %.0f tenures of "
                 "%s; longest stall %.1f s (after %.0f s); %u censuses; %u alarms\n",
                 soak->seed, soak_now_s(soak), soak->hosts.spaces ? "namespaces" : "loopback",
                 steps->last, soak->cast.generation, soak->cast.epoch,
                 soak->leaders ? "leaders" : "the daemon", steps->longest_s, steps->longest_at_s,
                 soak->census.taken, soak->report.alarms);
    (void)fflush(stdout);
}
