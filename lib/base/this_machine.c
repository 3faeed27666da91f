/* See this_machine.h. */
#include "base/this_machine.h"

#include "base/assert.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The processor's name, from the first page that the kernel tells of it: "AMD EPYC". */
static void read_processor(char *name, size_t room)
{
    static const char key[] = "model name";
    int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    char text[4096];
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;

    if (fd >= 0)
        (void)close(fd);
    text[CT_MAX(got, 0)] = '\0';
    const char *at = strstr(text, key);
    at = at != NULL ? strchr(at, ':') : NULL;
    (void)ct_str_copy(name, room, at != NULL ? at + 1 + strspn(at + 1, " ") : "an unknown kind");
    name[strcspn(name, "\n#")] = '\0';
    for (size_t length = strlen(name); length > 0 && name[length - 1] == ' '; length--)
        name[length - 1] = '\0';
}

void ct_this_machine_name(char *name, size_t room)
{
    char processor[64];

    read_processor(processor, sizeof processor);
    (void)snprintf(name, room, "%ld cores of %s", sysconf(_SC_NPROCESSORS_ONLN), processor);
}

void ct_this_machine_path(const char *file, char *path, size_t room)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    path[0] = '\0';
    if (config != NULL && *config == '/')
        (void)snprintf(path, room, "%s/ctrun/%s", config, file);
    else if (home != NULL && *home == '/')
        (void)snprintf(path, room, "%s/.config/ctrun/%s", home, file);
}
