/* See figures_uv.h. */
#include "figures_uv.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"
#include "diagnose/process_facts.h"
#include "diagnose/traces.h"
#include "node_state_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 4096 }; /* in one message */

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Of its last steps; 0: it has none. */
static double median_step_s(const struct ct_worker_record *record)
{
    uint32_t us[CT_RECORD_DURATIONS];
    uint32_t count = record != NULL ? ct_worker_record_durations(record, us, CT_COUNT(us)) : 0;

    qsort(us, count, sizeof us[0], compare);
    return count > 0 ? us[count / 2] / 1e6 : 0;
}

/* The call that it has waited in longest: in which, for whom? */
static void read_waits(const struct ct_record_view *view, uint64_t now_ns,
                       struct ct_wire_rank_figures *to)
{
    for (uint32_t i = 0; i < view->group_count; i++) {
        const struct ct_record_call *call = &view->groups[i];

        if (call->waiting == 0 || call->since_ns == 0 || call->since_ns > now_ns)
            continue;
        double waits_s = (double)(now_ns - call->since_ns) / 1e9;
        if (waits_s <= to->waits_s)
            continue;
        to->waits_s = waits_s;
        to->awaits = call->awaited;
    }
}

static uint64_t resident_bytes(pid_t pid)
{
    char path[64];
    unsigned long long pages = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1)
        pages = 0;
    (void)fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void read_machine(struct ct_msg_figures *to)
{
    char line[128];
    unsigned long long kib, total = 0, available = 0;
    FILE *file = fopen("/proc/meminfo", "re");

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemTotal: %llu", &kib) == 1)
            total = kib;
        else if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            available = kib;
    }
    if (file != NULL)
        (void)fclose(file);
    to->memory_total = (uint64_t)total << 10;
    to->memory = (uint64_t)(total - CT_MIN(available, total)) << 10;
    if (getloadavg(&to->load, 1) != 1)
        to->load = 0;
}

static bool read_rank(const struct node *node, uint32_t i, uint64_t now_ns,
                      struct ct_wire_rank_figures *to)
{
    struct ct_worker_trace worker;
    struct ct_process_facts facts;
    struct ct_record_view view;

    if (!ct_workers_trace(node->workers, i, &worker))
        return false;
    *to = (struct ct_wire_rank_figures){
        .rank = node->round->own->first_rank + i, .pid = (int32_t)worker.pid, .awaits = -1};
    if (worker.ended || !ct_process_facts(worker.pid, &facts) || facts.state == 'Z')
        to->life = worker.stopped ? CT_TRACE_DOWN : CT_TRACE_ENDED;
    else
        to->life = facts.state == 'T' || facts.state == 't' ? CT_TRACE_STOPPED : CT_TRACE_RUNS;
    to->memory = worker.ended ? 0 : resident_bytes(worker.pid);
    to->step_s = median_step_s(worker.record);
    ct_worker_record_read(worker.record, &view);
    to->step = view.step;
    read_waits(&view, now_ns, to);
    return true;
}

/* The first fault that the GPUs of its workers have reported in this round. */
static void read_trouble(const struct node *node, char text[256])
{
    struct ct_buf lines;

    ct_buf_init(&lines, 0);
    for (uint32_t i = 0; lines.size == 0 && i < node->job->slots; i++)
        health_explain(node->health, i, &lines);
    (void)snprintf(text, 256, "%.*s", (int)CT_MIN(strcspn(ct_buf_str(&lines), "\n"), (size_t)255),
                   ct_buf_str(&lines));
    ct_buf_deinit(&lines);
}

void figures_tell(struct node *node)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    uint32_t slots = CT_MIN(node->job->slots, (uint32_t)RANKS_MAX);
    struct ct_wire_rank_figures *ranks;
    char trouble[256];

    if (node->agent == NULL || agent_core_is_ending(&node->core) || node->round == NULL)
        return;
    ranks = calloc(slots, sizeof *ranks);
    if (ranks == NULL)
        return;
    struct ct_msg_figures figures = {.generation = node->round->generation, .trouble = trouble};
    read_machine(&figures);
    read_trouble(node, trouble);
    for (uint32_t i = 0; ct_workers_running(node->workers) && i < slots; i++)
        figures.ranks.count += read_rank(node, i, now_ns, &ranks[figures.ranks.count]);
    figures.ranks.data = ranks;
    ct_agent_figures(node->agent, &figures);
    free(ranks);
}
