/* The root cause of a failed call, when its own error is a secondary failure (base/error.h), caused
 * by another rank's: another member has left (CT_ECLOSED), or reports a mismatch (CT_EMISMATCH)
 * without its details.
 *
 *   member that has both     SET ct/group/KEY/mismatch, its sentence; then it breaks the group
 *   any other member         WAIT for that key     there: CT_EMISMATCH, the sentence
 *                                                  the round is revoked meanwhile: CT_EREVOKED
 *                                                  neither, in time: the original error
 *
 * So every member ends with the sentence that names both sides, on each backend, and a dead rank is
 * a revoked round for all survivors, not a closed connection for some. */
#ifndef CT_COLL_GROUP_FAILURE_CAUSE_H
#define CT_COLL_GROUP_FAILURE_CAUSE_H

#include "group/group.h"

enum { CT_CAUSE_CLOSED_MS = 40, CT_CAUSE_MISMATCH_MS = 1000 };

/* Find the cause of a call's failure with `code` and group->failure; the group is not broken yet.
 * Return the code to break it with; group->failure may get another sentence. Waits for at most the
 * times above. */
int ct_failure_cause_find(struct ct_group *group, int code);

#endif
