/* The folders of this node's worker files.
 *
 *     LOG_DIR/
 *         RUN_ID_XXXXXX/                      of one ctrun: no later one, and no other node that
 *         |                                   shares LOG_DIR, writes there (RUN_ID_HOST_XXXXXX when
 *         |                                   the job has several nodes)
 *         +-- attempt_RESTARTS_gGENERATION/   of one round
 *         |   +-- LOCAL_RANK/                 stdout.log, stderr.log, error.json
 *         |   +-- filtered_stdout.log         the lines of all its workers that pass the filters
 *         |   `-- filtered_stderr.log
 *         +-- events.jsonl                    what happened to the job, on its first node
 *         +-- hang-rank-RRRR.gG.txt           the stacks of a rank that hung
 *         +-- flight_rank_RRRR.gG.json        the flight recorder of a rank
 *         `-- torch_flight.gG_rank_R          the same of PyTorch, as it dumped it: a pickle
 *
 * Error files need a folder even where no logs are wanted: then it is a temporary one, with only
 * attempt_RESTARTS_gGENERATION_LOCAL_RANK_error.json in it, which is removed with ctrun unless the
 * final report names an error file in it. */
#ifndef CT_CTRUN_AGENT_LOG_FOLDER_H
#define CT_CTRUN_AGENT_LOG_FOLDER_H

#include "base/arena.h"
#include "base/error.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

struct folder {
    const char *path; /* "": this node keeps no files */
    bool stays;       /* else it is removed at the end: no logs there */
};

struct folder_request {
    const struct ct_config *cfg;
    const char *host; /* NULL for a job of one node */
    char *const *env; /* TMPDIR */
    bool native;      /* its workers write no error files */
};

/* Make it. 0; CT_ECANTCREAT with a sentence; CT_ENOMEM. */
int folder_make(const struct folder_request *request, struct ct_arena *arena,
                struct folder *ret_folder, struct ct_error *err);

/* Return the folder of a round; NULL without memory. */
const char *folder_of_round(const struct folder *folder, uint32_t restarts, uint64_t generation,
                            struct ct_arena *arena);

/* Write the PREFIX of the dumps of PyTorch's flight recorders in a round (diagnose/torch_flight.h)
 * to `to`, of PATH_MAX bytes: a rank is appended to it. "" when this node keeps no files. */
void folder_flight_dumps(const struct folder *folder, uint64_t generation, char *to);

/* Return the path of a temporary folder, else "". */
const char *folder_temporary(const struct folder *folder);

/* Remove a temporary folder, unless the report named a file in it (`named`), pipes that workers
 * left in a permanent one, and that one if it is empty. */
void folder_drop(const struct folder *folder, bool named);

#endif
