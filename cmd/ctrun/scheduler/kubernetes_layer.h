/* Kubernetes as a layer of the configuration, in a pod of an Indexed Job of several nodes:
 *
 *      JOB_COMPLETION_INDEX   the node's rank, where nobody gave another
 *      the first endpoint     a name that the cluster's DNS knows once that pod has an address;
 *                             that may be later than this one's, and is waited for
 *
 * KUBERNETES_SERVICE_HOST says that this is a pod. */
#ifndef CT_CTRUN_KUBERNETES_LAYER_H
#define CT_CTRUN_KUBERNETES_LAYER_H

#include "base/error.h"
#include "base/log/log.h"
#include "config/config.h"

/* Complete the configuration that was loaded, by `env` (as environ), and wait, at most
 * launch.join_timeout; a wait is reported after a second. 0; CT_EUSAGE; CT_ETIMEOUT; CT_EREQUEUE
 * when SIGTERM or SIGINT ended the wait; each with its sentence. Nothing outside of a pod. */
int kubernetes_complete(struct ct_config *cfg, char *const *env, const struct ct_log *log,
                        struct ct_error *err);

#endif
