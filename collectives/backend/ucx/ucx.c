/* Backend ucx: the engine of message.h over UCX's tagged messages, for fabrics that UCX knows
 * (InfiniBand, RoCE; TCP and shared memory for tests). Members' worker addresses travel through the
 * store; endpoints are made when a call first needs them (ucx_worker.h).
 *
 * Asked for by name it takes whatever devices UCX finds; "auto" comes to it only where all members
 * have an RDMA device. A peer's death is told by its endpoint, at once where the connection breaks,
 * else by a keepalive within a second. UCX knows no authentication: groups are kept apart by a
 * number that member 0 draws, so it needs a fabric that is trusted. */
#include "backend/ucx/ucx_worker.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/number/hash.h"
#include "job/job_resource.h"

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    SPINS = 200,
    HEAD_BYTES = 16,
    ADDRESS_MAX = 16384,
    ADDRESS_MS = 10000, /* for a long address to come from the store */
    TEND_NS = 1000000,  /* how often to answer members that connect, beside another group's call */
};

/* What a member tells the others. An address that does not fit is under a key of its own. */
struct address {
    uint64_t secret; /* member 0's counts */
    uint32_t bytes;
    uint32_t unused;
    unsigned char data[CT_BLOB_BYTES - HEAD_BYTES];
};
_Static_assert(sizeof(struct address) <= CT_BLOB_BYTES, "fits the blob");

struct group {
    struct ct_engine engine;
    struct ct_ucx_port port;
    unsigned char *addresses; /* of all members, one behind the other; long ones are not here */
    uint32_t *address_at;     /* where each begins, and the end of the last */
    uint64_t tended_ns;
};

/* Its data goes in clear: not for a group that asked for encryption. */
static bool suits(const struct ct_setup *setup)
{
    return setup->size > 1 && !setup->encrypt;
}

/* ---- creation --------------------------------------------------------------------------------*/

static bool has_rdma_device(void)
{
    DIR *devices = opendir("/sys/class/infiniband");
    bool found = false;

    if (devices == NULL)
        return false;
    for (const struct dirent *entry = readdir(devices); entry != NULL && !found;
         entry = readdir(devices))
        found = entry->d_name[0] != '.';
    (void)closedir(devices);
    return found;
}

static void close_resource(struct ct_job *job, void *ucx)
{
    (void)job;
    ct_ucx_close(ucx);
}

static const struct ct_job_resource_type resource = {.name = "ucx", .close = close_resource};

/* The job's worker, made by the first group that asks; another thread may come first. */
static int worker_of(struct ct_job *job, struct ct_ucx **ret_ucx, struct ct_error *err)
{
    struct ct_ucx *made = NULL;

    *ret_ucx = ct_job_resource(job, &resource);
    if (*ret_ucx != NULL)
        return 0;
    int code = ct_ucx_open(&made, err);
    if (code != 0)
        return code;
    *ret_ucx = ct_job_resource_keep(job, &resource, made);
    if (*ret_ucx != made)
        ct_ucx_close(made);
    return *ret_ucx != NULL ? 0 : ct_error_set(err, CT_ENOMEM, "no memory for UCX's worker");
}

bool ct_ucx_has_fabric(struct ct_job *job)
{
    struct ct_ucx *ucx;
    struct ct_error unread = {0};

    return has_rdma_device() && worker_of(job, &ucx, &unread) == 0;
}

static void address_key(char *key, size_t room, const char *group, int member)
{
    (void)snprintf(key, room, "ct/group/%s/ucx/address/%d", group, member);
}

static int write_address(const struct ct_setup *setup, const struct group *group,
                         struct ct_blob *ret_blob, struct ct_error *err)
{
    struct address address = {0};
    size_t bytes;
    const void *own = ct_ucx_address(group->port.ucx, &bytes);

    if (bytes > ADDRESS_MAX)
        return ct_error_set(err, CT_ELIMIT,
                            "UCX's address of this process has %zu bytes, at most %d can be told: "
                            "name the devices to use in UCX_NET_DEVICES",
                            bytes, ADDRESS_MAX);
    if (getrandom(&address.secret, sizeof address.secret, 0) != sizeof address.secret)
        return ct_error_set(err, CT_EUNAVAILABLE, "getrandom failed");
    address.bytes = (uint32_t)bytes;
    if (bytes <= sizeof address.data) {
        memcpy(address.data, own, bytes);
    } else {
        const struct ct_kv *kv = &setup->job->kv;
        char key[256];

        address_key(key, sizeof key, setup->key, setup->rank);
        int code = kv->set(kv->context, key, own, bytes);
        if (code != 0)
            return ct_error_set(err, code, "UCX's address cannot be stored: %s", ct_strerror(code));
    }
    memcpy(ret_blob->data, &address, sizeof address);
    return 0;
}

static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    struct group *group = calloc(1, sizeof *group);
    int code;

    if (group == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    *ret_state = group;
    group->port = (struct ct_ucx_port){.rank = setup->rank, .size = setup->size, .wakeup = -1};
    if (setup->automatic && !has_rdma_device())
        return ct_error_set(err, CT_EUNSUPPORTED, "rank %d has no RDMA device", setup->rank);
    code = worker_of(setup->job, &group->port.ucx, err);
    if (code != 0)
        return code;
    group->port.peers = calloc((size_t)setup->size, sizeof(struct ct_ucx_peer *));
    if (group->port.peers == NULL ||
        ct_engine_init(&group->engine, setup, &ct_ucx_transport, &group->port) != 0)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    group->port.wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (group->port.wakeup < 0)
        return ct_error_set(err, CT_EUNAVAILABLE, "eventfd failed");
    return write_address(setup, group, ret_blob, err);
}

/* Keep the addresses of all that came with the blobs. */
static bool keep_addresses(struct group *group, const struct ct_blob *blobs)
{
    size_t size = (size_t)group->port.size, used = 0;
    struct address address;

    group->address_at = calloc(size + 1, sizeof *group->address_at);
    for (size_t i = 0; i < size && group->address_at != NULL; i++) {
        memcpy(&address, blobs[i].data, sizeof address);
        used += address.bytes <= sizeof address.data ? address.bytes : 0;
        group->address_at[i + 1] = (uint32_t)used;
    }
    group->addresses = malloc(used + 1);
    if (group->address_at == NULL || group->addresses == NULL)
        return false;
    for (size_t i = 0; i < size; i++) {
        memcpy(&address, blobs[i].data, sizeof address);
        memcpy(group->addresses + group->address_at[i], address.data,
               group->address_at[i + 1] - group->address_at[i]);
    }
    return true;
}

/* The endpoint to one member, whose address has been set before the group formed. */
static int make_endpoint(struct ct_ucx_port *port, int peer, struct ct_error *err)
{
    struct group *group = (struct group *)((char *)port - offsetof(struct group, port));
    const struct ct_kv *kv = &group->engine.job->kv;
    const unsigned char *address = group->addresses + group->address_at[peer];
    unsigned char far[ADDRESS_MAX];
    struct ct_kv_value value = {far, group->address_at[peer + 1] - group->address_at[peer]};
    char key[256];
    int code = 0;

    if (value.size == 0) {
        value.size = sizeof far;
        address = far;
        address_key(key, sizeof key, group->engine.key, peer);
        code = kv->poll != NULL ? kv->poll(kv->context, key, &value, ADDRESS_MS) : CT_EUNSUPPORTED;
        if (code != 0)
            return ct_error_set(err, code, "rank %d's UCX address did not come: %s", peer,
                                ct_strerror(code));
    }
    code = ct_ucx_peer_get(port->ucx, address, value.size, &port->peers[peer], err);
    if (code != 0)
        ct_error_prefix(err, "rank %d to rank %d", port->rank, peer);
    return code;
}

static int connect_group(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                         struct ct_error *err)
{
    struct group *group = state;
    struct address address;

    memcpy(&address, blobs[0].data, sizeof address);
    uint64_t number = ct_hash64(setup->key, strlen(setup->key), address.secret);
    group->port.group = number & ((UINT64_C(1) << CT_UCX_GROUP_BITS) - 1);
    group->port.make_endpoint = make_endpoint;
    if (!keep_addresses(group, blobs))
        return ct_error_set(err, CT_ENOMEM, "no memory for the addresses of %d ranks", setup->size);
    return ct_engine_handshake(&group->engine, setup, err);
}

static void finish_setup(void *state)
{
    (void)state;
}

static void close_group(void *state)
{
    struct group *group = state;

    ct_engine_close(&group->engine);
    ct_engine_deinit(&group->engine);
    for (int i = 0; group->port.peers != NULL && i < group->port.size; i++)
        if (group->port.peers[i] != NULL)
            ct_ucx_peer_put(group->port.ucx, group->port.peers[i]);
    if (group->port.wakeup >= 0)
        (void)close(group->port.wakeup);
    free(group->port.peers);
    free(group->addresses);
    free(group->address_at);
    free(group);
}

/* ---- at work ---------------------------------------------------------------------------------*/

static int progress(void *state, struct ct_task *task, struct ct_error *err)
{
    return ct_engine_progress(&((struct group *)state)->engine, task, err);
}

/* A member that connects needs this one's progress, whatever this one waits for. */
static int tend(void *state, struct ct_error *err)
{
    struct group *group = state;

    (void)err;
    if (group->engine.contact_count == group->port.size - 1)
        return 0;
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    if (now_ns - group->tended_ns < TEND_NS)
        return 0;
    group->tended_ns = now_ns;
    ct_ucx_transport.progress(&group->port);
    return 0;
}

static int spins(const void *state)
{
    (void)state;
    return SPINS;
}

static uint32_t arm(void *state)
{
    return ct_ucx_arm(&((struct group *)state)->port);
}

static void park(void *state, uint32_t armed, uint64_t timeout_ns)
{
    ct_ucx_park(&((struct group *)state)->port, armed, timeout_ns);
}

static int missing(void *state, const struct ct_task *task)
{
    return ct_engine_missing(&((struct group *)state)->engine, task);
}

static void fail(void *state, int code)
{
    ct_engine_fail(&((struct group *)state)->engine, code);
}

static void wake(void *state)
{
    uint64_t one = 1;

    (void)!write(((struct group *)state)->port.wakeup, &one, sizeof one);
}

const struct ct_backend ct_backend_ucx = {
    .name = "ucx",
    .suits = suits,
    .prepare = prepare,
    .connect = connect_group,
    .finish_setup = finish_setup,
    .progress = progress,
    .tend = tend,
    .spins = spins,
    .arm = arm,
    .park = park,
    .missing = missing,
    .fail = fail,
    .wake = wake,
    .close = close_group,
};
