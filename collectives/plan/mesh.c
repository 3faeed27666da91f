/* See mesh.h. A rank is a number of four digits, one a coordinate; an axis is the set of those that
 * vary among the ranks of one of its groups. */
#include "collectives/plan/mesh.h"

#include "base/assert.h"

/* Digits of a rank, the most significant first. */
enum digit { STAGE, REPLICA, PART, SLICE, DIGITS };

struct digits {
    int of[DIGITS];
};

static const unsigned varying[] = {
    [CT_AXIS_WORLD] = 1u << STAGE | 1u << REPLICA | 1u << PART | 1u << SLICE,
    [CT_AXIS_DATA] = 1u << REPLICA | 1u << PART,
    [CT_AXIS_SHARD] = 1u << PART,
    [CT_AXIS_REPLICA] = 1u << REPLICA,
    [CT_AXIS_TENSOR] = 1u << SLICE,
    [CT_AXIS_STAGE] = 1u << STAGE,
    [CT_AXIS_COPY] = 1u << STAGE | 1u << PART | 1u << SLICE,
};
_Static_assert(CT_COUNT(varying) == CT_AXIS_COUNT, "the coordinates of every axis");

static struct digits extents(const struct ct_mesh *mesh)
{
    return (struct digits){{mesh->stages, mesh->replicas, mesh->shards, mesh->tensor}};
}

static struct digits digits_of(const struct ct_mesh *mesh, int rank)
{
    struct digits extent = extents(mesh), at;

    CT_ASSERT(rank >= 0 && rank < ct_mesh_world(mesh));
    for (int d = DIGITS - 1; d >= 0; d--) {
        at.of[d] = rank % extent.of[d];
        rank /= extent.of[d];
    }
    return at;
}

/* The number that the digits in `which` make. */
static int number(const struct ct_mesh *mesh, struct digits at, unsigned which)
{
    struct digits extent = extents(mesh);
    int value = 0;

    for (int d = 0; d < DIGITS; d++)
        if ((which & 1u << d) != 0)
            value = value * extent.of[d] + at.of[d];
    return value;
}

int ct_mesh_init(struct ct_mesh *ret_mesh, int world, const struct ct_mesh *wanted,
                 struct ct_error *err)
{
    struct ct_mesh mesh = {.stages = wanted->stages == 0 ? 1 : wanted->stages,
                           .replicas = wanted->replicas == 0 ? 1 : wanted->replicas,
                           .tensor = wanted->tensor == 0 ? 1 : wanted->tensor};
    const struct {
        const char *key;
        int count;
    } factors[] = {{"parallel.pipeline", mesh.stages},
                   {"parallel.replicate", mesh.replicas},
                   {"parallel.tensor", mesh.tensor}};
    int64_t product = 1;
    int others = 0;

    for (size_t i = 0; i < CT_COUNT(factors); i++) {
        if (factors[i].count < 1 || world % factors[i].count != 0)
            return ct_error_set(err, CT_ECONFIG, "%s is %d, must divide the %d workers",
                                factors[i].key, factors[i].count, world);
        product *= factors[i].count;
        others += factors[i].count > 1;
    }
    if (others > 1 && world % product != 0)
        return ct_error_set(err, CT_ECONFIG,
                            "parallel.pipeline %d times parallel.replicate %d times "
                            "parallel.tensor %d is %lld, must divide the %d workers",
                            mesh.stages, mesh.replicas, mesh.tensor, (long long)product, world);
    mesh.shards = world / (int)product;
    *ret_mesh = mesh;
    return 0;
}

int ct_mesh_world(const struct ct_mesh *mesh)
{
    return mesh->stages * mesh->replicas * mesh->shards * mesh->tensor;
}

struct ct_mesh_place ct_mesh_place(const struct ct_mesh *mesh, int rank)
{
    struct digits at = digits_of(mesh, rank);

    return (struct ct_mesh_place){at.of[STAGE], at.of[REPLICA], at.of[PART], at.of[SLICE]};
}

int ct_mesh_size(const struct ct_mesh *mesh, enum ct_axis axis)
{
    struct digits extent = extents(mesh);
    int size = 1;

    for (int d = 0; d < DIGITS; d++)
        size *= (varying[axis] & 1u << d) != 0 ? extent.of[d] : 1;
    return size;
}

int ct_mesh_index(const struct ct_mesh *mesh, enum ct_axis axis, int rank)
{
    return number(mesh, digits_of(mesh, rank), varying[axis]);
}

int ct_mesh_group(const struct ct_mesh *mesh, enum ct_axis axis, int rank)
{
    return number(mesh, digits_of(mesh, rank), ~varying[axis]);
}

int ct_mesh_member(const struct ct_mesh *mesh, enum ct_axis axis, int rank, int index)
{
    struct digits extent = extents(mesh), at = digits_of(mesh, rank);

    CT_ASSERT(index >= 0 && index < ct_mesh_size(mesh, axis));
    for (int d = DIGITS - 1; d >= 0; d--) {
        if ((varying[axis] & 1u << d) == 0)
            continue;
        at.of[d] = index % extent.of[d];
        index /= extent.of[d];
    }
    return number(mesh, at, ~0u);
}

bool ct_mesh_same(const struct ct_mesh *mesh, enum ct_axis a, enum ct_axis b)
{
    struct digits extent = extents(mesh);
    unsigned differ = varying[a] ^ varying[b];

    for (int d = 0; d < DIGITS; d++)
        if ((differ & 1u << d) != 0 && extent.of[d] > 1)
            return false;
    return true;
}

static bool is_beside(enum ct_axis axis)
{
    return axis == CT_AXIS_TENSOR || axis == CT_AXIS_STAGE;
}

bool ct_mesh_shared(const struct ct_mesh *mesh, enum ct_axis a, enum ct_axis b)
{
    return a == b || (!is_beside(a) && !is_beside(b) && ct_mesh_same(mesh, a, b));
}
