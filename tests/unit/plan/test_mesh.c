/* The mesh: every rank has one place, and every axis cuts the world into groups. */
#include "base/assert.h"
#include "collectives/plan/mesh.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(mesh, .timeout = 30);

static const struct ct_mesh meshes[] = {
    {1, 1, 1, 1}, {1, 4, 1, 1}, {1, 1, 4, 1}, {1, 2, 2, 1}, {1, 1, 1, 4},
    {2, 1, 2, 2}, {2, 2, 2, 2}, {3, 1, 2, 1}, {1, 3, 1, 2},
};

Test(mesh, the_slice_runs_fastest_and_the_stage_slowest)
{
    struct ct_mesh mesh = {.stages = 2, .replicas = 3, .shards = 5, .tensor = 7};
    int rank = 0;

    for (int stage = 0; stage < 2; stage++)
        for (int replica = 0; replica < 3; replica++)
            for (int part = 0; part < 5; part++)
                for (int slice = 0; slice < 7; slice++) {
                    struct ct_mesh_place at = ct_mesh_place(&mesh, rank);
                    cr_assert_eq(at.stage, stage);
                    cr_assert_eq(at.replica, replica);
                    cr_assert_eq(at.part, part);
                    cr_assert_eq(at.slice, slice);
                    cr_assert_eq(ct_mesh_index(&mesh, CT_AXIS_DATA, rank), replica * 5 + part);
                    rank++;
                }
    cr_assert_eq(rank, ct_mesh_world(&mesh));
}

Test(mesh, every_axis_cuts_the_world_into_groups_of_one_size)
{
    for (size_t i = 0; i < CT_COUNT(meshes); i++)
        for (int a = 0; a < CT_AXIS_COUNT; a++) {
            const struct ct_mesh *mesh = &meshes[i];
            enum ct_axis axis = (enum ct_axis)a;
            int world = ct_mesh_world(mesh), size = ct_mesh_size(mesh, axis);
            for (int rank = 0; rank < world; rank++) {
                int group = ct_mesh_group(mesh, axis, rank), members = 0;
                cr_assert(group >= 0 && group < world / size);
                for (int other = 0; other < world; other++) {
                    if (ct_mesh_group(mesh, axis, other) != group)
                        continue;
                    cr_assert_eq(ct_mesh_index(mesh, axis, other), members);
                    cr_assert_eq(ct_mesh_member(mesh, axis, rank, members), other);
                    members++;
                }
                cr_assert_eq(members, size);
            }
        }
}

Test(mesh, axes_are_the_same_exactly_when_their_groups_are)
{
    for (size_t i = 0; i < CT_COUNT(meshes); i++)
        for (int a = 0; a < CT_AXIS_COUNT; a++)
            for (int b = 0; b < CT_AXIS_COUNT; b++) {
                const struct ct_mesh *mesh = &meshes[i];
                enum ct_axis one = (enum ct_axis)a, two = (enum ct_axis)b;
                bool same = ct_mesh_size(mesh, one) == ct_mesh_size(mesh, two);
                for (int rank = 0; rank < ct_mesh_world(mesh) && same; rank++)
                    for (int k = 0; k < ct_mesh_size(mesh, one) && same; k++)
                        same = ct_mesh_member(mesh, one, rank, k) ==
                               ct_mesh_member(mesh, two, rank, k);
                cr_assert_eq(ct_mesh_same(mesh, one, two), same, "mesh %zu, axes %d and %d", i, a,
                             b);
            }
}

Test(mesh, what_is_left_over_is_shards)
{
    struct ct_mesh mesh;

    cr_assert_eq(ct_mesh_init(&mesh, 24, &(struct ct_mesh){.stages = 2, .tensor = 3}, NULL), 0);
    cr_assert_eq(mesh.replicas, 1);
    cr_assert_eq(mesh.shards, 4);
    cr_assert_eq(ct_mesh_world(&mesh), 24);
}

Test(mesh, sizes_that_do_not_divide_the_world_are_refused_with_the_numbers)
{
    static const struct {
        struct ct_mesh wanted;
        const char *text;
    } bad[] = {
        {{.tensor = 3}, "parallel.tensor is 3, must divide the 8 workers"},
        {{.stages = 5}, "parallel.pipeline is 5, must divide the 8 workers"},
        {{.replicas = -1}, "parallel.replicate is -1, must divide the 8 workers"},
        {{.stages = 4, .tensor = 4},
         "parallel.pipeline 4 times parallel.replicate 1 times parallel.tensor 4 is 16, must "
         "divide the 8 workers"},
    };

    for (size_t i = 0; i < CT_COUNT(bad); i++) {
        struct ct_mesh mesh = {0};
        struct ct_error err = {0};
        cr_assert_eq(ct_mesh_init(&mesh, 8, &bad[i].wanted, &err), CT_ECONFIG);
        cr_assert_str_eq(err.text, bad[i].text);
        cr_assert_eq(mesh.shards, 0);
    }
}
