/* See hang_file_uv.h. */
#include "hang_file_uv.h"

#include "diagnose/backtrace_uv.h"
#include "node_state_uv.h"

#include <stdio.h>

bool hang_file_write(struct node *node, const struct hang_file *hang,
                     void (*done)(void *context, const char *failure), void *context)
{
    char file[4096], titles[CT_DIAGNOSE_PROCESSES][64];
    const struct ct_diagnose what = {.file = file,
                                     .preface = hang->preface,
                                     .pids = {hang->pid, hang->other_pid},
                                     .titles = {titles[0], titles[1]}};

    if (!node->job->folder.stays)
        return false;
    (void)snprintf(titles[0], sizeof titles[0], "rank %u, which hangs", hang->rank);
    (void)snprintf(titles[1], sizeof titles[1], "rank %u, for comparison", hang->other_rank);
    (void)snprintf(file, sizeof file, "%s/hang-rank-%04u.g%llu.txt", node->job->folder.path,
                   hang->rank, (unsigned long long)hang->generation);
    ct_log_event(&node->log, CT_LOG_INFO, "hang_stacks", "its threads are written to %s", file);
    int rc = ct_diagnose(&node->loop, &what, done, context);
    if (rc != 0)
        done(context, ct_strerror(rc));
    return true;
}

void hang_file_report(const struct node *node, const char *failure)
{
    if (failure != NULL)
        ct_log_event(&node->log, CT_LOG_WARN, "hang_stacks", "%s", failure);
}
