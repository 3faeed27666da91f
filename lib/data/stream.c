/* See stream.h. zlib's gzread passes plain files through, so one path serves both. */
#include "data/stream.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

int ct_stream_open(struct ct_stream *stream, const char *path, size_t limit, struct ct_error *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return ct_error_set(err, CT_ENOINPUT, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        (void)close(fd);
        return ct_error_set(err, CT_ENOINPUT, "%s: is %s, not a data file", path,
                            S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
    }
    gzFile gz = gzdopen(fd, "rb");
    if (gz == NULL) {
        (void)close(fd);
        return ct_error_set(err, CT_ENOMEM, "%s: out of memory while opening", path);
    }
    (void)gzbuffer(gz, 128 * 1024);
    *stream = (struct ct_stream){.name = path, .limit = limit, .gz = gz};
    return 0;
}

void ct_stream_close(struct ct_stream *stream)
{
    if (stream->gz != NULL)
        (void)gzclose_r(stream->gz);
    *stream = (struct ct_stream){.name = stream->name};
}

static int read_gz(struct ct_stream *stream, void *to, size_t room, size_t *ret_size,
                   struct ct_error *err)
{
    int problem = Z_OK;
    int got = gzread(stream->gz, to, (unsigned)room);

    (void)gzerror(stream->gz, &problem);
    if (got < 0 && problem == Z_ERRNO)
        return ct_error_set(err, CT_ENOINPUT, "%s: cannot be read: %s", stream->name,
                            strerror(errno));
    if (got < 0 || problem == Z_BUF_ERROR)
        return ct_error_set(err, CT_EDATA, "%s: the gzip stream is %s", stream->name,
                            problem == Z_BUF_ERROR ? "truncated" : "damaged");
    *ret_size = (size_t)got;
    return 0;
}

int ct_stream_read(struct ct_stream *stream, void *to, size_t room, size_t *ret_size,
                   struct ct_error *err)
{
    CT_ASSERT(room > 0 && room <= (size_t)1 << 30);
    if (stream->gz != NULL) {
        int code = read_gz(stream, to, room, ret_size, err);
        if (code != 0)
            return code;
    } else {
        *ret_size = CT_MIN(room, stream->memory_size - stream->given);
        if (*ret_size > 0)
            memcpy(to, stream->memory + stream->given, *ret_size);
    }
    stream->given += *ret_size;
    if (stream->given > stream->limit)
        return ct_error_set(err, CT_ELIMIT, "%s: unpacks to more than the limit of %zu bytes",
                            stream->name, stream->limit);
    return 0;
}

int ct_stream_read_all(struct ct_stream *stream, struct ct_buf *into, struct ct_error *err)
{
    enum { CHUNK = 256 * 1024 };

    for (size_t got = 1; got > 0; into->size += got) {
        char *to = ct_buf_reserve(into, CHUNK);
        if (to == NULL)
            return ct_error_set(err, CT_ENOMEM, "%s: out of memory after %zu bytes", stream->name,
                                stream->given);
        int code = ct_stream_read(stream, to, CHUNK, &got, err);
        if (code != 0)
            return code;
    }
    return 0;
}
