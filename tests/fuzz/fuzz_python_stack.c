/* Fuzz: stacks of Python as a stranger may print them. A place that is found must be well-formed:
 * its strings end, can be printed, and have a file. */
#include "base/assert.h"
#include "diagnose/python_stack.h"

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
    return 0;
}
