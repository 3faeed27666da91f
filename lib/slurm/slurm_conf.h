/* What slurm.conf says of how Slurm knows its users. Pure. */
#ifndef CT_SLURM_CONF_H
#define CT_SLURM_CONF_H

#include <stdbool.h>

enum { CT_SLURM_SOCKET = 108 };

/* Return whether the cluster has munge, which is Slurm's default, and the socket that AuthInfo
 * names ("": none). `text` is slurm.conf, or what of it is there; what Include names is not looked
 * at. */
bool ct_slurm_conf_munge(const char *text, char ret_socket[CT_SLURM_SOCKET]);

#endif
