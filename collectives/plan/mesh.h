/* The mesh: maps ranks to process groups by axis. Pure arithmetic.
 *
 *     rank = ((stage * replicas + replica) * shards + part) * tensor + slice
 *
 *              a sample's path through the layers  ------->   stages
 *     stage 0  [ slice 0 | slice 1 ]  part 0  .- replica 0    tensor parallelism: slices
 *              [ slice 0 | slice 1 ]  part 1  |               sharded state: parts
 *              [ slice 0 | slice 1 ]  part 0  .- replica 1    copies of it: replicas
 *              [ slice 0 | slice 1 ]  part 1
 *     stage 1  ...
 *
 * Slices communicate most, so they are neighbours. Parts and replicas see different samples; slices
 * and stages share theirs: a batch is divided by the index along CT_AXIS_DATA, never by rank. An
 * axis divides the world into groups: ranks that differ only in its coordinates. */
#ifndef CT_PLAN_MESH_H
#define CT_PLAN_MESH_H

#include "base/error.h"
#include "graph/program.h"

#include <stdbool.h>

/* The number of each; all >= 1. */
struct ct_mesh {
    int stages, replicas, shards, tensor;
};

/* The coordinates of a rank; each from 0. */
struct ct_mesh_place {
    int stage, replica, part, slice;
};

/* Distribute `world` >= 1 ranks: as many stages, replicas and slices as `wanted` says (0 is 1); the
 * rest are shards. 0, or CT_ECONFIG with the keys and numbers when they do not divide the world. */
int ct_mesh_init(struct ct_mesh *ret_mesh, int world, const struct ct_mesh *wanted,
                 struct ct_error *err);

/* Return the number of ranks of the mesh. */
int ct_mesh_world(const struct ct_mesh *mesh);

/* Return the coordinates of a rank. */
struct ct_mesh_place ct_mesh_place(const struct ct_mesh *mesh, int rank);

/* Return the size of a group of the axis; `rank`'s index in its group; the number of that group. */
int ct_mesh_size(const struct ct_mesh *mesh, enum ct_axis axis);
int ct_mesh_index(const struct ct_mesh *mesh, enum ct_axis axis, int rank);
int ct_mesh_group(const struct ct_mesh *mesh, enum ct_axis axis, int rank);

/* Return the rank with number `index` in `rank`'s group of the axis. */
int ct_mesh_member(const struct ct_mesh *mesh, enum ct_axis axis, int rank, int index);

/* Return whether the groups of two axes have the same ranks. */
bool ct_mesh_same(const struct ct_mesh *mesh, enum ct_axis a, enum ct_axis b);

/* Return whether one group may serve both axes: they have the same ranks, and neither is that of
 * slices or stages, whose ops run between computing ops, concurrently with reductions. */
bool ct_mesh_shared(const struct ct_mesh *mesh, enum ct_axis a, enum ct_axis b);

#endif
