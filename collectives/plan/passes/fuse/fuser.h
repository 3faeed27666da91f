/* Shared by the fusing passes: they walk a list once, note groups of ops that become fewer, and
 * rewrite it.
 *
 *     for each op, in order       pass->match(f, op) may call ct_fuse_add_group(f, group)
 *     for each op, in order       at its group's place: pass->emit(f, group); elsewhere in a group:
 *                                 nothing; in no group: the op as it is
 *
 * A group runs where one of its ops was, its place; ct_fuse_may_move says whether another op may
 * run there. Inside of collectives/plan only. */
#ifndef CT_COLL_PLAN_FUSER_H
#define CT_COLL_PLAN_FUSER_H

#include "plan/passes/passes.h"

enum { CT_FUSE_ROLES = 3 };

/* Ops by their role in the group, which the pass defines; CT_NONE: none has it. */
struct ct_fuse_group {
    int place; /* one of them */
    int ops[CT_FUSE_ROLES];
};

struct ct_fuser {
    struct ct_program *program;
    struct ct_program_op *ops; /* as they were */
    int op_count;
    int *reads;  /* by root: how many ops of the list read it */
    int *writer; /* by root: the last op in front of this one that writes it; CT_NONE */
    int *note;   /* by root: for the pass's own use, 0 at first */
    struct ct_fuse_group *groups;
    int group_count;
    int *group_of; /* by op; CT_NONE */
};

/* `begin` (may be NULL) is called before the first `match`. `emit` appends at most as many ops as
 * the group has; their stage and micro-batch are those of its place. */
struct ct_fuse_pass {
    void (*begin)(struct ct_fuser *f);
    void (*match)(struct ct_fuser *f, int op);
    void (*emit)(struct ct_fuser *f, const struct ct_fuse_group *group);
};

/* Run `pass` over the list. 0, CT_ENOMEM, or the error of an emitted op. */
int ct_fuse_run(const struct ct_fuse_pass *pass, struct ct_plan_list *list, struct ct_error *err);

/* Return the root of a value, CT_NONE for CT_NONE. */
int ct_fuse_root(const struct ct_fuser *f, int value);

/* Return whether op `op` may run together with op `place`, at its position: both are of one
 * micro-batch and stage; no op in between writes what `op` reads, or touches its outputs; and the
 * later of the two overwrites nothing of the earlier one. */
bool ct_fuse_may_move(const struct ct_fuser *f, int op, int place);

/* Add a group; no op of it is in another one (asserted). */
void ct_fuse_add_group(struct ct_fuser *f, struct ct_fuse_group group);

#endif
