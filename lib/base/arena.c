/* See arena.h. A block is a header and the bytes behind it; new blocks go to the front. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16 * 1024 };

struct ct_arena_block {
    struct ct_arena_block *next;
    size_t used;
    size_t size;
    max_align_t bytes[];
};

void ct_arena_init(struct ct_arena *arena, size_t limit_bytes)
{
    *arena = (struct ct_arena){.limit_bytes = limit_bytes};
}

void ct_arena_deinit(struct ct_arena *arena)
{
    if (arena == NULL)
        return;
    while (arena->head != NULL) {
        struct ct_arena_block *next = arena->head->next;

        free(arena->head);
        arena->head = next;
    }
    arena->used_bytes = 0;
}

static struct ct_arena_block *block_new(struct ct_arena *arena, size_t size)
{
    size_t wanted = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    struct ct_arena_block *block = calloc(1, sizeof *block + wanted);

    if (block != NULL) {
        block->size = wanted;
        block->next = arena->head;
        arena->head = block;
    }
    return block;
}

void *ct_arena_alloc(struct ct_arena *arena, size_t size)
{
    const size_t align = sizeof(max_align_t);

    if (size > arena->limit_bytes || arena->used_bytes > arena->limit_bytes - size)
        return NULL;
    size = (size + align - 1) / align * align;
    struct ct_arena_block *block = arena->head;
    if (block == NULL || block->size - block->used < size)
        block = block_new(arena, size);
    if (block == NULL)
        return NULL;
    void *result = (char *)block->bytes + block->used;
    block->used += size;
    arena->used_bytes += size;
    return result;
}

void *ct_arena_array(struct ct_arena *arena, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        return NULL;
    return ct_arena_alloc(arena, count * size);
}

char *ct_arena_strndup(struct ct_arena *arena, const char *text, size_t length)
{
    char *copy = ct_arena_alloc(arena, length + 1);

    if (copy != NULL)
        memcpy(copy, text, length);
    return copy;
}

char *ct_arena_strdup(struct ct_arena *arena, const char *text)
{
    return ct_arena_strndup(arena, text, strlen(text));
}

char *ct_arena_printf(struct ct_arena *arena, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : ct_arena_alloc(arena, (size_t)length + 1);
    if (text != NULL) {
        va_start(args, format);
        (void)vsnprintf(text, (size_t)length + 1, format, args);
        va_end(args);
    }
    return text;
}
