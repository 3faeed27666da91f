/* How this node is and its workers are, told while somebody looks at the job (wire.def:
 * FIGURES). */
#ifndef CT_CTRUN_AGENT_FIGURES_UV_H
#define CT_CTRUN_AGENT_FIGURES_UV_H

struct node;

/* Look, and tell the rendezvous: the machine's memory and load, each worker's process, steps and
 * wait in a collective. Reads two files, and one a worker. */
void figures_tell(struct node *node);

#endif
