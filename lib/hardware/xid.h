/* Xids: faults of GPUs, by the numbers under which NVIDIA's driver writes them to the kernel's log
 * (https://docs.nvidia.com/deploy/xid-errors). Records from the process that waits for them, the
 * recent ones, and texts for people.
 *
 *   {"xid":79,"index":1,"address":"0000:2a:00.0","name":"NVIDIA H100","instance":-1}     one each
 *   {"error":"..."}, {"absent":"..."}    the last one: why no more come (ct_health_print_error)
 *
 * Pure. */
#ifndef CT_HARDWARE_XID_H
#define CT_HARDWARE_XID_H

#include "base/bytes.h"
#include "hardware/health.h"
#include "hardware/nvml.h"

enum { CT_XIDS_MAX = 64 };

/* The Xids of one round in the order of arrival, each number of a GPU once; further ones are
 * dropped. */
struct ct_xids {
    struct ct_nvml_xid at[CT_XIDS_MAX];
    uint32_t count;
};

/* Append a record. */
void ct_xid_print(struct ct_buf *to, const struct ct_nvml_xid *xid);

/* Read a record, without its newline. 0: an Xid; CT_EUNAVAILABLE or CT_ENOTFOUND (events are not
 * supported) with the sentence of an end; CT_EPROTOCOL for an invalid record. */
int ct_xid_parse(const char *line, struct ct_nvml_xid *ret_xid, struct ct_error *err);

/* Keep it; false when it is known already, or one too many. */
bool ct_xids_add(struct ct_xids *xids, const struct ct_nvml_xid *xid);

/* Append its meaning and the remedy, as a sentence without a full stop. */
void ct_xid_describe(const struct ct_nvml_xid *xid, struct ct_buf *to);

/* Append the Xids of the GPUs in the scope, for the report of a worker that failed on them: a line
 * a GPU, with its first Xid, which as a rule caused the others. */
void ct_xids_explain(const struct ct_xids *xids, const struct ct_health_scope *scope,
                     struct ct_buf *to);

#endif
