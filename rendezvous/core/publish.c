/* What readers outside the job may take: which publications count.
 *
 *      PUBLISH(g, step) -> g may still act? -> MANIFEST on record -> PUBLISHED
 *                                      `-> no: PUBLISHED(CT_EFENCED)
 *
 * Only the last committed round may publish, and only until the fence is up, that is until the base
 * of the next round is chosen (ct_rdzv_advance, which waits for a record under way here). Whoever
 * promised by then holds at least the published step, so a base that is chosen afterwards descends
 * from everything published. Repeated requests are answered alike. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>

static bool may_publish(const struct ct_rdzv *job, const struct ct_rdzv_member *member,
                        uint64_t generation)
{
    return (ct_rdzv_acts(job) || job->phase == CT_RDZV_PREPARE) && member->place >= 0 &&
           generation > 0 && generation == job->roster.generation;
}

static void answer(struct ct_rdzv *job, uint64_t link, const struct ct_rdzv_event *event, int code,
                   const char *text)
{
    struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_PUBLISHED, link);
    action->generation = event->generation;
    action->step = event->step;
    action->code = code;
    (void)snprintf(action->text, sizeof(action->text), "%s", text);
}

/* Why a publication does not count: the code and the sentence, 0 when it does. */
static int refusal(const struct ct_rdzv *job, const struct ct_rdzv_member *member,
                   const struct ct_rdzv_event *event, char *text, size_t room)
{
    const struct ct_rdzv_publication *last = &job->published;
    if (!may_publish(job, member, event->generation)) {
        (void)snprintf(text, room,
                       "step %" PRIu64 " of round %" PRIu64
                       " does not count, for that round is over: "
                       "ask again in the next one",
                       event->step, event->generation);
        return CT_EFENCED;
    }
    if (event->step < last->step) {
        (void)snprintf(text, room,
                       "step %" PRIu64 " does not count: round %" PRIu64 " has published step "
                       "%" PRIu64,
                       event->step, last->generation, last->step);
        return CT_EFENCED;
    }
    if (event->step == last->step && last->generation > 0 && event->digest != last->digest &&
        event->digest != 0 && last->digest != 0) {
        (void)snprintf(text, room,
                       "step %" PRIu64 " was published by round %" PRIu64 " with digest "
                       "%016" PRIx64 ", and now has %016" PRIx64,
                       event->step, last->generation, last->digest, event->digest);
        return CT_EDIVERGED;
    }
    return 0;
}

void ct_rdzv_on_publish(struct ct_rdzv *job, const struct ct_rdzv_member *member,
                        const struct ct_rdzv_event *event)
{
    const struct ct_rdzv_publication *last = &job->published;
    char text[512] = "";
    if (event->generation == last->generation && event->step == last->step) {
        answer(job, member->link, event, 0, ""); /* again: the answer was lost */
        return;
    }
    if (job->publishing.generation != 0)
        return; /* one at a time: the agent repeats it */
    int code = refusal(job, member, event, text, sizeof(text));
    if (code != 0 || (event->step == last->step && last->generation > 0)) {
        answer(job, member->link, event, code, text); /* a step that is on record already counts */
        return;
    }
    const struct ct_rdzv_roster *round = &job->roster;
    bool is_base = round->base_node >= 0 && round->base_step == event->step;
    job->publishing = (struct ct_rdzv_publication){
        .generation = event->generation,
        .lineage = is_base ? round->lineage : event->generation,
        .step = event->step,
        .digest = event->digest,
    };
    job->publisher = (uint32_t)(member - job->members);
    job->publishing_seq = ct_rdzv_push_record(job, CT_RDZV_RECORD_MANIFEST);
}

void ct_rdzv_on_publish_record(struct ct_rdzv *job, bool is_kept)
{
    const struct ct_rdzv_member *member = &job->members[job->publisher];
    const struct ct_rdzv_event event = {.generation = job->publishing.generation,
                                        .step = job->publishing.step};
    if (is_kept) {
        job->published = job->publishing;
        ct_rdzv_announce(job, CT_ANNOUNCE_CHECKPOINT, "checkpoint of step %" PRIu64 " saved",
                         event.step);
    }
    job->publishing.generation = 0;
    job->publishing_seq = 0;
    if (is_kept && member->state != CT_RDZV_FREE && member->link != 0)
        answer(job, member->link, &event, 0, "");
    ct_rdzv_advance(job);
}
