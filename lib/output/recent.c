/* See recent.h. A line's head and text lie together; where they do not fit before the end of the
 * ring, the rest of it is skipped. */
#include "output/recent.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

struct head {
    uint32_t size;
    uint32_t rank;
    uint8_t stream;
    bool skip; /* no line: the rest of the ring is empty */
};

struct ct_recent {
    size_t bytes;
    uint64_t begin, end;     /* bytes ever put before the oldest line, and all together */
    uint64_t oldest, number; /* of that line, and of the next */
    _Alignas(16) char ring[];
};

enum { ALIGN = 16 }; /* so that a head fits wherever a line may begin */

static size_t room_of(size_t size)
{
    return (sizeof(struct head) + size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

struct ct_recent *ct_recent_new(size_t bytes)
{
    CT_ASSERT(bytes >= 64 && (bytes & (bytes - 1)) == 0);
    struct ct_recent *recent = malloc(sizeof *recent + bytes);

    if (recent != NULL)
        *recent = (struct ct_recent){.bytes = bytes};
    return recent;
}

void ct_recent_free(struct ct_recent *recent)
{
    free(recent);
}

static size_t place_of(const struct ct_recent *recent, uint64_t at)
{
    return (size_t)(at & (recent->bytes - 1));
}

static struct head head_at(const struct ct_recent *recent, uint64_t at)
{
    struct head head;

    memcpy(&head, recent->ring + place_of(recent, at), sizeof head);
    return head;
}

/* What lies between the place of `at` and the end of the ring. */
static size_t rest_of(const struct ct_recent *recent, uint64_t at)
{
    return recent->bytes - place_of(recent, at);
}

/* Forget the oldest lines, until there is room for `size` bytes. */
static void make_room(struct ct_recent *recent, size_t size)
{
    while (recent->end + size - recent->begin > recent->bytes) {
        struct head head = head_at(recent, recent->begin);

        recent->begin += head.skip ? rest_of(recent, recent->begin) : room_of(head.size);
        recent->oldest += !head.skip;
    }
}

static void put_head(struct ct_recent *recent, const struct head *head)
{
    memcpy(recent->ring + place_of(recent, recent->end), head, sizeof *head);
}

void ct_recent_put(struct ct_recent *recent, uint32_t rank, uint8_t stream, const char *text,
                   size_t size)
{
    size = size < recent->bytes / 2 - sizeof(struct head) ? size
                                                          : recent->bytes / 2 - sizeof(struct head);
    size_t room = room_of(size), rest = rest_of(recent, recent->end);

    if (room > rest) {
        make_room(recent, rest);
        put_head(recent, &(struct head){.skip = true});
        recent->end += rest;
    }
    make_room(recent, room);
    put_head(recent, &(struct head){.size = (uint32_t)size, .rank = rank, .stream = stream});
    if (size > 0)
        memcpy(recent->ring + place_of(recent, recent->end) + sizeof(struct head), text, size);
    recent->end += room;
    recent->number++;
}

struct ct_recent_cursor ct_recent_begin(const struct ct_recent *recent, uint64_t lines)
{
    struct ct_recent_cursor cursor = {.at = recent->begin, .number = recent->oldest};
    struct ct_recent_line line;

    while (recent->number - cursor.number > lines && ct_recent_look(recent, &cursor, &line))
        ct_recent_next(&cursor, &line);
    return cursor;
}

bool ct_recent_look(const struct ct_recent *recent, struct ct_recent_cursor *cursor,
                    struct ct_recent_line *ret_line)
{
    if (cursor->at < recent->begin) {
        cursor->missed += recent->oldest - cursor->number;
        cursor->at = recent->begin;
        cursor->number = recent->oldest;
    }
    if (cursor->at == recent->end)
        return false;
    struct head head = head_at(recent, cursor->at);
    if (head.skip) {
        cursor->at += rest_of(recent, cursor->at);
        head = head_at(recent, cursor->at); /* a line follows what is skipped */
    }
    *ret_line = (struct ct_recent_line){
        .number = cursor->number,
        .rank = head.rank,
        .stream = head.stream,
        .text = recent->ring + place_of(recent, cursor->at) + sizeof head,
        .size = head.size,
    };
    return true;
}

uint64_t ct_recent_behind(const struct ct_recent *recent, const struct ct_recent_cursor *cursor)
{
    return recent->number - cursor->number;
}

void ct_recent_next(struct ct_recent_cursor *cursor, const struct ct_recent_line *line)
{
    cursor->at += room_of(line->size);
    cursor->number++;
}
