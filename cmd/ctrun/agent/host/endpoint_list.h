/* The endpoints that a job's nodes were told, "h0:29400,h1:29400": of daemons, or of the nodes
 * themselves. */
#ifndef CT_CTRUN_AGENT_ENDPOINT_LIST_H
#define CT_CTRUN_AGENT_ENDPOINT_LIST_H

#include "config/config.h"
#include "net/endpoint.h"

enum { ENDPOINT_LIST_BYTES = 1024 };

/* Read the endpoints as the user gave them, rdzv_endpoint, or master_addr and master_port: the
 * first, and all of them with their ports. 0; CT_EUSAGE when there is none, or one that is none. */
int endpoint_list_read(const struct ct_config *cfg, struct ct_endpoint *ret_first,
                       char ret_list[ENDPOINT_LIST_BYTES], struct ct_error *err);

/* Return the index of the first endpoint that is an address of this machine, and its text; -1 and
 * "" when none is. */
int endpoint_list_own(const char *list, char ret_own[CT_ENDPOINT_TEXT]);

/* Does somebody accept connections at any endpoint but the first? Waits for 300 ms at most. */
bool endpoint_list_answers(const char *list);

/* Put `first` in the place of the first endpoint. Without room the others are dropped. */
void endpoint_list_set_first(char list[ENDPOINT_LIST_BYTES], const char *first);

#endif
