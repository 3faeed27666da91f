/* See tokens.h. */
#include "data/tokens.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/number/hash.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct shard {
    char *name;
    const unsigned char *ids; /* little-endian in files, which is this machine's own order */
    size_t count;
    size_t width;          /* bytes of an id: 2 or 4 */
    uint64_t first_window; /* of all shards */
    void *map;             /* NULL: `ids` is memory of our own */
    size_t map_bytes;
};

struct ct_tokens {
    size_t context;
    uint64_t windows;
    size_t shards;
    struct shard shard[];
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids in files are read as they are");

/* ---- start and end ---------------------------------------------------------------------------*/

static struct ct_tokens *allocate(size_t shards, size_t context)
{
    struct ct_tokens *tokens = calloc(1, sizeof *tokens + shards * sizeof tokens->shard[0]);

    CT_ASSERT(context > 0 && context <= CT_TOKENS_MAX_CONTEXT);
    if (tokens != NULL) {
        tokens->context = context;
        tokens->shards = shards;
    }
    return tokens;
}

void ct_tokens_free(struct ct_tokens *tokens)
{
    if (tokens == NULL)
        return;
    for (size_t i = 0; i < tokens->shards; i++) {
        struct shard *shard = &tokens->shard[i];
        if (shard->map != NULL)
            (void)munmap(shard->map, shard->map_bytes);
        else
            free((void *)shard->ids);
        free(shard->name);
    }
    free(tokens);
}

/* Number the windows; CT_EDATA when there is none. */
static int number(struct ct_tokens *tokens, const char *what, struct ct_error *err)
{
    size_t most = 0;

    for (size_t i = 0; i < tokens->shards; i++) {
        struct shard *shard = &tokens->shard[i];
        shard->first_window = tokens->windows;
        tokens->windows += shard->count == 0 ? 0 : (shard->count - 1) / tokens->context;
        most = CT_MAX(most, shard->count);
    }
    if (tokens->windows > 0)
        return 0;
    return ct_error_set(err, CT_EDATA, "%s: has %zu tokens; a window of %zu needs %zu", what, most,
                        tokens->context, tokens->context + 1);
}

int ct_tokens_from_list(struct ct_tokens **ret, const char *name, struct ct_token_list *list,
                        size_t context, struct ct_error *err)
{
    struct ct_tokens *tokens = allocate(1, context);
    char *copy = strdup(name);

    if (tokens == NULL || copy == NULL) {
        free(tokens);
        free(copy);
        return ct_error_set(err, CT_ENOMEM, "%s: no memory for its tokens", name);
    }
    tokens->shard[0] = (struct shard){.name = copy,
                                      .ids = (const unsigned char *)list->ids,
                                      .count = list->count,
                                      .width = sizeof *list->ids};
    *list = (struct ct_token_list){0};
    int code = number(tokens, name, err);
    if (code != 0)
        ct_tokens_free(tokens);
    else
        *ret = tokens;
    return code;
}

/* ---- files -----------------------------------------------------------------------------------*/

enum { HEADER_BYTES = 1024 };

/* The headers that llm.c writes. */
static const struct header {
    uint32_t magic, version;
    size_t width;
} headers[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static int read_header(struct shard *shard, struct ct_error *err)
{
    const unsigned char *at = shard->map;
    const struct header *header = NULL;

    for (size_t i = 0; shard->map_bytes >= HEADER_BYTES && i < CT_COUNT(headers); i++)
        if (ct_get_le32(at) == headers[i].magic && ct_get_le32(at + 4) == headers[i].version)
            header = &headers[i];
    if (header == NULL)
        return ct_error_set(err, CT_EDATA,
                            "%s: does not start with llm.c's header; for bare ids set ids to u16 "
                            "or u32",
                            shard->name);
    shard->ids = at + HEADER_BYTES;
    shard->width = header->width;
    shard->count = ct_get_le32(at + 8);
    if (shard->count * shard->width != shard->map_bytes - HEADER_BYTES)
        return ct_error_set(
            err, CT_EDATA, "%s: its header says %zu ids of %zu bytes, but %zu bytes follow",
            shard->name, shard->count, shard->width, shard->map_bytes - HEADER_BYTES);
    return 0;
}

static int read_bare(struct shard *shard, size_t width, struct ct_error *err)
{
    if (shard->map_bytes % width != 0)
        return ct_error_set(err, CT_EDATA, "%s: its %zu bytes are no whole number of ids of %zu",
                            shard->name, shard->map_bytes, width);
    shard->ids = shard->map;
    shard->width = width;
    shard->count = shard->map_bytes / width;
    return 0;
}

static int map_file(struct shard *shard, const char *path, struct ct_error *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return ct_error_set(err, CT_ENOINPUT, "%s: cannot be opened: %s", path, strerror(errno));
    shard->name = strdup(path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
        (void)close(fd);
        return ct_error_set(err, CT_ENOINPUT, "%s: is empty or no file", path);
    }
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (map == MAP_FAILED || shard->name == NULL)
        return ct_error_set(err, CT_ENOMEM, "%s: cannot be mapped", path);
    shard->map = map;
    shard->map_bytes = (size_t)info.st_size;
    return 0;
}

static int open_shards(struct ct_tokens *tokens, char *const *paths, enum ct_token_format format,
                       struct ct_error *err)
{
    int code = 0;

    for (size_t i = 0; code == 0 && i < tokens->shards; i++) {
        struct shard *shard = &tokens->shard[i];
        code = map_file(shard, paths[i], err);
        if (code == 0 && format == CT_TOKENS_AUTO)
            code = read_header(shard, err);
        else if (code == 0)
            code = read_bare(shard, format == CT_TOKENS_U16 ? 2 : 4, err);
    }
    return code;
}

int ct_tokens_open(struct ct_tokens **ret, const char *pattern, enum ct_token_format format,
                   size_t context, struct ct_error *err)
{
    glob_t found;
    int problem = glob(pattern, 0, NULL, &found);

    if (problem != 0) {
        globfree(&found);
        return problem == GLOB_NOSPACE
                   ? ct_error_set(err, CT_ENOMEM, "%s: no memory to look for it", pattern)
                   : ct_error_set(err, CT_ENOINPUT, "%s: no such file", pattern);
    }
    struct ct_tokens *tokens = allocate(found.gl_pathc, context);
    int code = 0;
    if (tokens == NULL)
        code =
            ct_error_set(err, CT_ENOMEM, "%s: no memory for %zu shards", pattern, found.gl_pathc);
    if (code == 0)
        code = open_shards(tokens, found.gl_pathv, format, err);
    if (code == 0)
        code = number(tokens, pattern, err);
    globfree(&found);
    if (code != 0)
        ct_tokens_free(tokens);
    else
        *ret = tokens;
    return code;
}

/* ---- windows ---------------------------------------------------------------------------------*/

uint64_t ct_tokens_windows(const struct ct_tokens *tokens)
{
    return tokens->windows;
}

static uint32_t id_at(const struct shard *shard, size_t index)
{
    const unsigned char *at = shard->ids + index * shard->width;

    return shard->width == 2 ? ct_get_le16(at) : ct_get_le32(at);
}

/* The shard of a window: the last that starts at or before it and is not empty of windows. */
static const struct shard *find(const struct ct_tokens *tokens, uint64_t window, size_t *ret_first)
{
    size_t low = 0, high = tokens->shards;

    CT_ASSERT(window < tokens->windows);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (tokens->shard[middle].first_window <= window)
            low = middle;
        else
            high = middle;
    }
    *ret_first = (size_t)(window - tokens->shard[low].first_window) * tokens->context;
    return &tokens->shard[low];
}

bool ct_tokens_window(const struct ct_tokens *tokens, uint64_t window, int32_t vocabulary,
                      int32_t *x, int32_t *labels)
{
    size_t first, context = tokens->context;
    const struct shard *shard = find(tokens, window, &first);
    uint32_t most = 0;

    for (size_t i = 0; i <= context; i++) {
        uint32_t id = id_at(shard, first + i);
        most = CT_MAX(most, id);
        if (i < context)
            x[i] = (int32_t)id;
        if (i > 0)
            labels[i - 1] = (int32_t)id;
    }
    if (most < (uint32_t)vocabulary)
        return true;
    memset(x, 0, context * sizeof *x);
    memset(labels, -1, context * sizeof *labels);
    return false;
}

int ct_tokens_explain(const struct ct_tokens *tokens, uint64_t window, int32_t vocabulary,
                      struct ct_error *err)
{
    size_t first;
    const struct shard *shard = find(tokens, window, &first);

    for (size_t i = first; i <= first + tokens->context; i++)
        if (id_at(shard, i) >= (uint32_t)vocabulary)
            return ct_error_set(err, CT_EDATA, "%s: token %zu is %u, but the vocabulary has %d",
                                shard->name, i, (unsigned)id_at(shard, i), (int)vocabulary);
    return ct_error_set(err, CT_EDATA, "%s: changed while it was read", shard->name);
}

uint64_t ct_tokens_digest(const struct ct_tokens *tokens)
{
    enum { ENDS = 64 * 1024 };
    uint64_t hash = ct_hash64(&tokens->shards, sizeof tokens->shards, tokens->context);

    for (size_t i = 0; i < tokens->shards; i++) {
        const struct shard *shard = &tokens->shard[i];
        size_t bytes = shard->count * shard->width, end = CT_MIN(bytes, (size_t)ENDS);
        hash = ct_hash64(&shard->count, sizeof shard->count, hash);
        hash = ct_hash64(shard->ids, end, hash);
        hash = ct_hash64(shard->ids + bytes - end, end, hash);
    }
    return hash;
}
