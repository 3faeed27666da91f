/* See ucx_worker.h: in the place of ucx_worker.c where UCX's headers are not installed. */
#include "backend/ucx/ucx_worker.h"

#include "base/assert.h"

int ct_ucx_open(struct ct_ucx **ret_ucx, struct ct_error *err)
{
    (void)ret_ucx;
    return ct_error_set(err, CT_EUNSUPPORTED,
                        "backend ucx is not in this build: install UCX's headers (libucx-dev) and "
                        "build again, or choose another backend");
}

/* Without a worker nothing below is ever reached. */
void ct_ucx_close(struct ct_ucx *ucx)
{
    CT_ASSERT(ucx == NULL);
}

const void *ct_ucx_address(const struct ct_ucx *ucx, size_t *ret_bytes)
{
    CT_ASSERT(ucx != NULL);
    *ret_bytes = 0;
    return NULL;
}

int ct_ucx_peer_get(struct ct_ucx *ucx, const void *address, size_t bytes,
                    struct ct_ucx_peer **ret_peer, struct ct_error *err)
{
    (void)ucx;
    (void)address;
    (void)bytes;
    (void)ret_peer;
    return ct_error_set(err, CT_EUNSUPPORTED, "backend ucx is not in this build");
}

void ct_ucx_peer_put(struct ct_ucx *ucx, struct ct_ucx_peer *peer)
{
    CT_ASSERT(ucx != NULL && peer != NULL);
}

uint32_t ct_ucx_arm(struct ct_ucx_port *port)
{
    CT_ASSERT(port->ucx != NULL);
    return 0;
}

void ct_ucx_park(struct ct_ucx_port *port, uint32_t armed, uint64_t timeout_ns)
{
    (void)armed;
    (void)timeout_ns;
    CT_ASSERT(port->ucx != NULL);
}

const struct ct_message_transport ct_ucx_transport = {0};
