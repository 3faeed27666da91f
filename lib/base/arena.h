/* A bump arena for things that live and die together (a parsed config, a program, a plan).
 *
 * Blocks come from malloc, up to `limit_bytes` in all; everything is freed at once. Not for
 * tensors: those lie in device arenas (lib/tensor). One thread at a time. */
#ifndef CT_BASE_ARENA_H
#define CT_BASE_ARENA_H

#include <stddef.h>

struct ct_arena_block;

struct ct_arena {
    struct ct_arena_block *head;
    size_t used_bytes;
    size_t limit_bytes;
};

/* Initialise an empty arena of at most `limit_bytes`. */
void ct_arena_init(struct ct_arena *arena, size_t limit_bytes);

/* Frees every block; the arena is empty again and may be used on. */
void ct_arena_deinit(struct ct_arena *arena);

/* Allocate `size` zeroed bytes, aligned for any type; NULL above the limit or without memory. */
void *ct_arena_alloc(struct ct_arena *arena, size_t size);

/* Allocate `count` zeroed elements of `size` bytes; NULL also when the product overflows. */
void *ct_arena_array(struct ct_arena *arena, size_t count, size_t size);

/* Return a copy of `text`, or of its first `length` bytes, terminated; NULL as above. */
char *ct_arena_strdup(struct ct_arena *arena, const char *text);
char *ct_arena_strndup(struct ct_arena *arena, const char *text, size_t length);

/* Print into the arena; NULL as above. */
char *ct_arena_printf(struct ct_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
