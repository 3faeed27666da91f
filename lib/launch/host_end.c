/* See host_end.h. */
#include "launch/host_end.h"

enum ct_host_end ct_host_next(const struct ct_host_view *view)
{
    if (view->alone || view->forced)
        return CT_HOST_CLOSE;
    if (view->released && view->jobs > 0)
        return view->can_yield ? CT_HOST_YIELD : CT_HOST_STAY;
    if (view->released && view->unserved)
        return CT_HOST_STAY;
    return view->links > 0 && view->waited_ms <= CT_HOST_WAIT_MS ? CT_HOST_WAIT : CT_HOST_CLOSE;
}

bool ct_host_boundary_comes(bool connected, bool lives_on)
{
    return connected && lives_on;
}
