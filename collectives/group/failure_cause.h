/* Why a call failed, when what ended it here is not the reason: another member has left
 * (CT_ECLOSED), or says that members called different things (CT_EMISMATCH) without saying which:
 * an echo (base/error.h).
 *
 *   who sees both sides      SET ct/group/KEY/mismatch, its sentence; then it breaks the group
 *   who is told, or is left  WAIT for that key     there: CT_EMISMATCH, the sentence
 *                                                  the round is revoked meanwhile: CT_EREVOKED
 *                                                  neither, in time: what it was
 *
 * So every member ends with the sentence that names both sides, on each backend, and a rank that
 * died is a revoked round to all survivors, not a closed connection to some. */
#ifndef CT_COLL_GROUP_FAILURE_CAUSE_H
#define CT_COLL_GROUP_FAILURE_CAUSE_H

#include "group/group.h"

enum { CT_CAUSE_CLOSED_MS = 40, CT_CAUSE_MISMATCH_MS = 1000 };

/* A call of the group has failed with `code`, group->failure says how; it is not broken yet. The
 * code to break it with; the sentence may be another. Waits for at most the times above. */
int ct_cause_settle(struct ct_group *group, int code);

#endif
