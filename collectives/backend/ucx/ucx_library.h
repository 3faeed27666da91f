/* The used part of libucp, loaded at run time. Not available where UCX's headers are absent. */
#ifndef CT_COLL_UCX_LIBRARY_H
#define CT_COLL_UCX_LIBRARY_H

#include "base/error.h"

#include <ucp/api/ucp.h>

#define CT_UCX_FUNCTIONS(X)       \
    X(ucp_config_read)            \
    X(ucp_config_modify)          \
    X(ucp_config_release)         \
    X(ucp_init_version)           \
    X(ucp_cleanup)                \
    X(ucp_worker_create)          \
    X(ucp_worker_destroy)         \
    X(ucp_worker_get_address)     \
    X(ucp_worker_release_address) \
    X(ucp_worker_get_efd)         \
    X(ucp_worker_arm)             \
    X(ucp_worker_progress)        \
    X(ucp_ep_create)              \
    X(ucp_ep_close_nbx)           \
    X(ucp_tag_send_nbx)           \
    X(ucp_tag_send_sync_nbx)      \
    X(ucp_tag_recv_nbx)           \
    X(ucp_tag_probe_nb)           \
    X(ucp_tag_msg_recv_nbx)       \
    X(ucp_request_cancel)         \
    X(ucp_request_free)           \
    X(ucp_request_check_status)   \
    X(ucs_status_string)

struct ct_ucx_library {
    void *handle;
#define MEMBER(name) __typeof__(name) *name;
    CT_UCX_FUNCTIONS(MEMBER)
#undef MEMBER
};

/* Load libucp; it stays loaded until the process ends. 0, or CT_EUNSUPPORTED with a sentence that
 * says what to install. */
int ct_ucx_library_load(struct ct_ucx_library *lib, struct ct_error *err);

#endif
