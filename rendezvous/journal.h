/* What must survive the daemon: records of the jobs, as bytes.
 *
 * See core.h for when a record is asked for. */
#ifndef CT_RENDEZVOUS_JOURNAL_H
#define CT_RENDEZVOUS_JOURNAL_H

#include "base/bytes.h"
#include "rendezvous/core.h"

enum { CT_JOURNAL_RECORD_LIMIT = 8 << 20 };

/* Append the record that `job` asks to be kept. */
void ct_journal_job_record(const struct ct_rdzv *job, enum ct_rdzv_record record,
                           struct ct_buf *out);

#endif
