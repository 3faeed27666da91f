/* The reports of a group: its slot in the worker's record (wire/worker_record.h), and each of its
 * calls in the flight recorder behind it (wire/flight.h).
 *
 *   ct_request_start    begin     the call and its call site
 *   first progress      start     at once, when no call was before it
 *   completed, failed   end
 *
 * Without an agent nothing is written. The group's thread calls. */
#ifndef CT_COLL_GROUP_RECORDER_H
#define CT_COLL_GROUP_RECORDER_H

#include "group/group.h"

/* Get a slot for a group that has its members and its key; without an agent a private one. */
void ct_recorder_open(struct ct_group *group);

/* Return the slot. Half-built groups are fine. */
void ct_recorder_close(struct ct_group *group);

/* Return the recorder's entry of a call. */
struct ct_flight_call ct_recorder_call(const struct ct_request *request);

/* Record that a request begins, with its call; its call site. */
static inline void ct_recorder_begin(struct ct_request *request)
{
    struct ct_group *group = request->group;

    request->started = group->queued == 0;
    if (group->flight == NULL)
        return;
    struct ct_flight_call call = ct_recorder_call(request);
    request->queued = ct_ticks();
    request->entry = ct_flight_begin(group->flight, &call, !request->started, request->queued);
}

static inline void ct_recorder_site(const struct ct_request *request, const void *site)
{
    if (request->group->flight != NULL)
        ct_flight_site(request->group->flight, request->entry, (uint64_t)(uintptr_t)site);
}

/* Record the first progress of a request; its end. */
static inline void ct_recorder_start(struct ct_request *request)
{
    if (request->started)
        return;
    request->started = true;
    if (request->group->flight != NULL)
        ct_flight_start(request->group->flight, request->entry, ct_ticks_since(request->queued));
}

static inline void ct_recorder_end(const struct ct_request *request, bool failed)
{
    if (request->group->flight != NULL)
        ct_flight_end(request->group->flight, request->entry, ct_ticks_since(request->queued),
                      failed);
}

#endif
