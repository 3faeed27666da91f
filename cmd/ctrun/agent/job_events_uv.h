/* The job's events, where this node is the one that its rendezvous tells of them (the first that
 * asks for it): to events.jsonl in the log folder, and to launch.on_event.
 *
 *   agent_uv.h on_events --> job_events_receive --> output/log_files_uv.h   a line each
 *                                               --> hook/hooks_uv.h         those of on_event_kinds
 *
 * Neither is waited for before the end of ctrun, and there within bounds. */
#ifndef CT_CTRUN_AGENT_JOB_EVENTS_UV_H
#define CT_CTRUN_AGENT_JOB_EVENTS_UV_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct job_events;
struct node;

/* Create; *ret_events is NULL where the job keeps no log files and has no hook. Needs the workers
 * of the node, for their log files. 0; CT_ENOMEM or CT_EOS. */
int job_events_new(struct node *node, struct job_events **ret_events, struct ct_error *err);

/* Receive records, a line each; returns the number of the last. */
uint64_t job_events_receive(struct job_events *events, const char *text, size_t size);

/* A child of this process has ended that is no worker. NULL is ignored, as below. */
void job_events_reaped(struct job_events *events, pid_t pid, int status);

/* No event comes any more: give the hook launch.on_event_timeout for those that are left (none
 * after a second signal), free all, and call `finished`: from the loop, or now if there is no hook.
 */
void job_events_finish(struct job_events *events, void (*finished)(struct node *node),
                       struct node *node);

/* Wait no longer for the hook, if it is waited for. */
void job_events_hurry(struct job_events *events);

#endif
