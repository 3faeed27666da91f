/* Who gives way at the page: whoever has most places, else whoever keeps silent. */
#include "net/web_places.h"

#include <criterion/criterion.h>

enum { COUNT = 6 };

static struct ct_web_place room[COUNT];
static struct ct_web_places places;

/* A letter a place, the oldest first; small letters have not asked yet. One comes each 100 ms. */
static void fill(const char *accounts)
{
    places = (struct ct_web_places){.count = 0};
    for (int i = 0; accounts[i] != '\0'; i++) {
        bool asked = accounts[i] >= 'A' && accounts[i] <= 'Z';
        room[i] = (struct ct_web_place){
            .account = (uint64_t)accounts[i] | 0x20, .since_ms = 100 * (uint64_t)i, .asked = asked};
        ct_web_places_enter(&places, &room[i]);
    }
}

/* The index of the one that gives way to a newcomer at 600 ms; -1: none. */
static int displaced(char account)
{
    const struct ct_web_place *place =
        ct_web_places_displaced(&places, (uint64_t)account | 0x20, 600);
    return place != NULL ? (int)(place - room) : -1;
}

Test(web_places, the_oldest_of_whom_has_most_gives_way)
{
    fill("BAAACB");
    cr_assert_eq(displaced('b'), -1, "A would have no more than B then");
    cr_assert_eq(displaced('c'), 1);
    cr_assert_eq(displaced('d'), 1);
    cr_assert_eq(displaced('a'), -1);
    fill("AAAAAA");
    cr_assert_eq(displaced('b'), 0);
}

Test(web_places, among_equals_the_oldest_that_keeps_silent_gives_way)
{
    fill("ABCdef");
    cr_assert_eq(displaced('g'), 3);
    cr_assert_eq(displaced('a'), 3);
    fill("ABCDEf");
    cr_assert_eq(displaced('g'), -1, "it has come 100 ms ago");
    fill("AaAAAA");
    cr_assert_eq(displaced('a'), 1, "also one of the same account");
}

Test(web_places, a_place_is_left_once)
{
    fill("ABC");
    ct_web_places_leave(&places, &room[1]);
    ct_web_places_leave(&places, &room[1]);
    cr_assert_eq(places.count, 2);
    cr_assert_eq(places.newest, &room[2]);
    cr_assert_eq(room[2].next, &room[0]);
    ct_web_places_leave(&places, &room[2]);
    ct_web_places_leave(&places, &room[0]);
    cr_assert_null(places.newest);
}
