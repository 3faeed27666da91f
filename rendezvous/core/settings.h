/* Settings that all nodes of a job must share, as text: "--key=value" a line, in the order of one
 * table, without those that have their default. Pure. */
#ifndef CT_RENDEZVOUS_CORE_SETTINGS_H
#define CT_RENDEZVOUS_CORE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

/* Name the first setting that differs, as in "--torch_store local here, agent on the nodes before".
 * False: no difference in the settings as far as they were recorded. */
bool ct_rdzv_settings_differ(const char *here, const char *before, char *text, size_t room);

#endif
