/* Fuzz: stacks of Python, and flight recorders of PyTorch, as a stranger may print them. A place
 * that is found must be well-formed: its strings end, can be printed, and have a file. */
#include "base/assert.h"
#include "diagnose/torch_flight.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_BYTES = 8192, PID = 7 };

static void check_text(const char *text, size_t room)
{
    size_t length = strnlen(text, room);

    CT_ASSERT(length < room);
    for (size_t i = 0; i < length; i++)
        CT_ASSERT((unsigned char)text[i] >= 0x20 && (unsigned char)text[i] < 0x7f);
}

static void check(const struct ct_python_place *place)
{
    CT_ASSERT(place->known && place->file[0] != '\0');
    check_text(place->file, sizeof place->file);
    check_text(place->function, sizeof place->function);
    check_text(place->call, sizeof place->call);
    CT_ASSERT(ct_python_place_equal(place, place));
}

static void check_flight(const char *text)
{
    struct ct_torch_flight flight;
    bool known = ct_torch_flight_parse(text, PID, &flight);

    CT_ASSERT(known == (flight.group_count > 0) && flight.group_count <= CT_FLIGHT_GROUPS);
    for (size_t i = 0; i < flight.group_count; i++)
        check_text(flight.groups[i].name, sizeof flight.groups[i].name);
    if (flight.waits.known)
        check(&flight.waits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[TEXT_BYTES + 1];
    struct ct_python_place place;

    size = CT_MIN(size, (size_t)TEXT_BYTES);
    memcpy(text, data, size);
    text[size] = '\0';
    if (ct_python_place_find(text, PID, &place))
        check(&place);
    int child = ct_python_child_find(text, PID, &place);
    CT_ASSERT(child >= 0 && child != PID);
    if (child != 0)
        check(&place);
    check_flight(text);
    return 0;
}
