/* This machine by a name, and the user's files about it. */
#ifndef CT_BASE_THIS_MACHINE_H
#define CT_BASE_THIS_MACHINE_H

#include <stddef.h>

/* Write what tells this machine from others that share a home: "2 cores of AMD EPYC". */
void ct_this_machine_name(char *name, size_t room);

/* Write the path of a file of the user's configuration: $XDG_CONFIG_HOME/ctrun/FILE, or else
 * ~/.config/ctrun/FILE; "" without a home. */
void ct_this_machine_path(const char *file, char *path, size_t room);

#endif
