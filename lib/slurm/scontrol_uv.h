/* Asks Slurm in the background whether nodes are down (node_state.h), by `scontrol`.
 *
 *      ask -> a thread of the loop's pool: scontrol --oneliner show node LIST, for CT_SCONTROL_MS
 *                                                     '-> the loop: `answered`
 *
 * Without scontrol, without an answer of slurmctld in time, with an error or another output nothing
 * is known to be down, and the answer says why. All on the loop's thread. */
#ifndef CT_SLURM_SCONTROL_UV_H
#define CT_SLURM_SCONTROL_UV_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum {
    CT_SCONTROL_MS = 5000,    /* then it is given up */
    CT_SCONTROL_BYTES = 65536 /* of an answer that is read */
};

struct ct_scontrol;

struct ct_scontrol_options {
    uv_loop_t *loop;
    const char *path;         /* PATH, in which scontrol is looked for now, once; NULL: none */
    const char *const *nodes; /* they outlive it */
    size_t count;
    void *context;

    /* They are all down, or `why` says what is known instead. */
    void (*answered)(void *context, bool down, const char *why);
};

/* NULL without memory. */
struct ct_scontrol *ct_scontrol_new(const struct ct_scontrol_options *options);

/* Ask, unless a question is open; `answered` follows. */
void ct_scontrol_ask(struct ct_scontrol *scontrol);

/* Nothing is answered any more. NULL: nothing. */
void ct_scontrol_free(struct ct_scontrol *scontrol);

#endif
