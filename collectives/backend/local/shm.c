/* Backend shm: the members are processes of one node; the segment is a memfd.
 *
 * A memfd has no name, so nothing can be left behind, whoever dies when. Rank 0 makes it and says
 * where it is found, as /proc/PID/fd/FD; the others open it there, which needs the same user, as
 * workers of one agent have, and the same PID namespace. Where this fails the group tries the next
 * backend. When all have mapped it, the descriptor is closed. */
#include "backend/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct address {
    int32_t pid, fd;
    uint64_t token[2];
};
_Static_assert(sizeof(struct address) <= CT_BLOB_BYTES, "fits the blob");

static bool suits(const struct ct_setup *setup)
{
    for (int i = 1; i < setup->size; i++)
        if (ct_job_node(setup->job, setup->ranks[i]) != ct_job_node(setup->job, setup->ranks[0]))
            return false;
    return true;
}

static void release(struct ct_local *local)
{
    if (local->head != NULL)
        (void)munmap(local->head, local->total_bytes);
}

static int os_error(struct ct_error *err, const char *what, size_t bytes)
{
    int code = -errno;

    return ct_error_set(err, code, "%s for a shared segment of %zu bytes failed: %s", what, bytes,
                        strerrordesc_np(-code));
}

/* Rank 0's segment behind `fd`: of the right size, so that touching it is safe. */
static int map_segment(struct ct_local *local, int fd, struct ct_error *err)
{
    struct stat status;
    void *memory;

    if (fstat(fd, &status) != 0)
        return os_error(err, "fstat", local->total_bytes);
    if ((uint64_t)status.st_size != local->total_bytes)
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "rank 0's shared segment has %lld bytes, this rank expects %zu",
                            (long long)status.st_size, local->total_bytes);
    memory = mmap(NULL, local->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return os_error(err, "mmap", local->total_bytes);
    local->head = memory;
    return 0;
}

static int make_segment(struct ct_local *local, struct ct_blob *ret_blob, struct ct_error *err)
{
    struct address address = {.pid = getpid()};
    int code;

    local->fd = memfd_create("ctrun-group", MFD_CLOEXEC);
    if (local->fd < 0)
        return os_error(err, "memfd_create", local->total_bytes);
    if (ftruncate(local->fd, (off_t)local->total_bytes) != 0)
        return os_error(err, "ftruncate", local->total_bytes);
    if (getrandom(address.token, sizeof address.token, 0) != sizeof address.token)
        return os_error(err, "getrandom", local->total_bytes);
    code = map_segment(local, local->fd, err);
    if (code != 0)
        return code;
    address.fd = local->fd;
    memcpy(local->head->token, address.token, sizeof address.token);
    memcpy(ret_blob->data, &address, sizeof address);
    return 0;
}

static int prepare(const struct ct_setup *setup, struct ct_blob *ret_blob, void **ret_state,
                   struct ct_error *err)
{
    struct ct_local *local = ct_local_new(setup);

    if (local == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", setup->size);
    local->release = release;
    *ret_state = local;
    return setup->rank == 0 ? make_segment(local, ret_blob, err) : 0;
}

static int open_segment(struct ct_local *local, const struct address *address, struct ct_error *err)
{
    char path[64];
    int code;

    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", address->pid, address->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        code = -errno;
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "the shared segment %s of rank 0 cannot be opened: %s", path,
                            strerrordesc_np(-code));
    }
    code = map_segment(local, fd, err);
    (void)close(fd);
    if (code == 0 && memcmp(local->head->token, address->token, sizeof address->token) != 0)
        code = ct_error_set(err, CT_EUNSUPPORTED, "%s is not the shared segment of rank 0", path);
    return code;
}

static int connect(void *state, const struct ct_setup *setup, const struct ct_blob *blobs,
                   struct ct_error *err)
{
    struct ct_local *local = state;
    struct address address;
    int code;

    memcpy(&address, blobs[0].data, sizeof address);
    code = setup->rank == 0 ? 0 : open_segment(local, &address, err);
    if (code == 0)
        ct_local_attach(local, local->head);
    return code;
}

const struct ct_backend ct_backend_shm = {
    .name = "shm",
    .suits = suits,
    .prepare = prepare,
    .connect = connect,
    .finish_setup = ct_local_complete,
    .progress = ct_local_progress,
    .post = ct_local_post,
    .collect = ct_local_collect,
    .spins = ct_local_spins,
    .arm = ct_local_arm,
    .park = ct_local_park,
    .missing = ct_local_missing,
    .fail = ct_local_fail,
    .wake = ct_local_wake,
    .revoke = ct_local_revoke,
    .close = ct_local_close,
};
