/* See web_places.h. */
#include "net/web_places.h"

#include "base/assert.h"

#include <stddef.h>

void ct_web_places_enter(struct ct_web_places *places, struct ct_web_place *place)
{
    CT_ASSERT(place->link == NULL);
    place->next = places->newest;
    place->link = &places->newest;
    if (place->next != NULL)
        place->next->link = &place->next;
    places->newest = place;
    places->count++;
}

void ct_web_places_leave(struct ct_web_places *places, struct ct_web_place *place)
{
    if (place->link == NULL)
        return;
    *place->link = place->next;
    if (place->next != NULL)
        place->next->link = place->link;
    place->link = NULL;
    places->count--;
}

static uint32_t count_of(const struct ct_web_places *places, uint64_t account)
{
    uint32_t count = 0;

    for (const struct ct_web_place *at = places->newest; at != NULL; at = at->next)
        count += at->account == account;
    return count;
}

struct ct_web_place *ct_web_places_displaced(const struct ct_web_places *places, uint64_t account,
                                             uint64_t now_ms)
{
    struct ct_web_place *of_most = NULL, *silent = NULL;
    uint32_t most = count_of(places, account) + 1; /* with the newcomer */

    for (struct ct_web_place *at = places->newest; at != NULL; at = at->next) {
        uint32_t count = count_of(places, at->account);
        if (count > most || (of_most != NULL && count == most)) { /* later ones are older */
            most = count;
            of_most = at;
        }
        if (!at->asked && now_ms - at->since_ms >= CT_WEB_PATIENCE_MS)
            silent = at;
    }
    return of_most != NULL ? of_most : silent;
}
