/* See executor.h: the host's memory that a plan copies activations to. */
#include "collectives/exec/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file in `dir` that nobody else sees and that goes with its descriptor. */
static int open_unnamed(const char *dir)
{
    char path[4096];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    if (snprintf(path, sizeof path, "%s/ctrun-offload-XXXXXX", dir) >= (int)sizeof path)
        return -1;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

/* All blocks at once: a full disk is told now, not by a signal in the middle of a step. */
static int map_file(const char *dir, size_t bytes, void **ret_memory, struct ct_error *err)
{
    int fd = open_unnamed(dir);

    if (fd < 0)
        return ct_error_set(err, CT_ECANTCREAT, "memory.offload_dir: no file can be made in %s: %s",
                            dir, strerror(errno));
    int rc = posix_fallocate(fd, 0, (off_t)bytes);
    *ret_memory = rc == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : NULL;
    if (rc == 0 && *ret_memory == MAP_FAILED)
        rc = errno;
    (void)close(fd);
    return rc == 0
               ? 0
               : ct_error_set(err, CT_EIO, "memory.offload_dir: no room for %zu bytes in %s: %s",
                              bytes, dir, strerror(rc));
}

int ct_exec_map_host(struct ct_exec *exec, struct ct_error *err)
{
    size_t bytes = exec->plan->host_bytes;
    void *memory = NULL;
    int code = 0;

    if (bytes == 0)
        return 0;
    if (exec->options.offload_dir != NULL)
        code = map_file(exec->options.offload_dir, bytes, &memory, err);
    else
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == 0 && memory == MAP_FAILED)
        code = ct_error_set(err, CT_ENOMEM, "no memory for %zu bytes of activations", bytes);
    if (code != 0)
        return code;
    exec->host = memory;
    return ct_device_reach(exec->device, memory, bytes, err);
}

void ct_exec_unmap_host(struct ct_exec *exec)
{
    if (exec->host == NULL)
        return;
    ct_device_unreach(exec->device, exec->host);
    (void)munmap(exec->host, exec->plan->host_bytes);
}
