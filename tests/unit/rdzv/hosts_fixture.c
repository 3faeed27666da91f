/* See hosts_fixture.h. */
#include "hosts_fixture.h"

#include "base/assert.h"

#include <stdlib.h>

struct hosts *world;

void hosts_set_up(void)
{
    world = malloc(sizeof *world);
    CT_ASSERT(world != NULL);
}

void hosts_tear_down(void)
{
    hosts_deinit(world);
    free(world);
}
