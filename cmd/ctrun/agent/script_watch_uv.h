/* Hang detection for programs that keep no record: any script, where launch.hang_timeout was given.
 * The workers are looked at from outside (diagnose/rhythm.h decides); when all hang, their stacks
 * are collected and compared (diagnose/odd_rank.h), one is named and ended, and the rest is an
 * ordinary failure.
 *
 *     poll --> verdict --> py-spy --> odd one --> one line --> gdb --> SIGKILL --> on_failure
 *                            |  none                           |
 *                            v                                 `--> hang-rank-0003.g7.txt
 *                          SIGABRT, Python prints its stacks
 *
 * In a job of several nodes the agents confer before (diagnose/confer.h), through the round's store
 * (ct/quiet/NODE): no rank but a stopped one is ended while one of another node lives. Then each
 * looks for the one at fault among its own, and who has only ranks in collectives yields. */
#ifndef CT_CTRUN_AGENT_SCRIPT_WATCH_UV_H
#define CT_CTRUN_AGENT_SCRIPT_WATCH_UV_H

#include "wire/worker_record.h"

#include <stdbool.h>

struct ct_msg_store_reply;
struct node;
struct script_watch;

/* `local_rank` in a call of node->calls that is the watch's. */
#define SCRIPT_WATCH_CALLER (UINT32_MAX - 1)

/* Begin to look at whatever round the node is in. *ret_watch is NULL when nobody asked for it, or
 * the program is our trainer. 0 or CT_ENOMEM. */
int script_watch_new(struct node *node, struct script_watch **ret_watch);

/* Return the files whose change is a heartbeat of the worker of each slot; NULL: nobody looks. */
const char *const *script_watch_files(const struct script_watch *watch);

/* Return whether a worker with this record is judged here: it has none, or calls no collectives. */
bool script_watch_judges(const struct script_watch *watch, const struct ct_record_view *view);

/* Handle the answer to a question to node `node_index`. NULL is ignored. */
void script_watch_reply(struct script_watch *watch, uint64_t node_index, uint64_t generation,
                        const struct ct_msg_store_reply *reply);

/* Stop polling. NULL is ignored. */
void script_watch_close(struct script_watch *watch);

/* Free, after the loop has ended. NULL is ignored. */
void script_watch_free(struct script_watch *watch);

#endif
