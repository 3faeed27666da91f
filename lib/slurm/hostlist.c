/* Slurm's host lists; see hostlist.h.
 *
 * An item is expanded from the left: a name grows by its text and by one number of each group, and
 * is complete at the item's end. */
#include "slurm/hostlist.h"

#include "base/assert.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    DIGITS_MAX = 9, /* of a number: no sum below leaves 32 bits */
    GROUPS_MAX = 8, /* in an item */
};

struct expansion {
    const char *text; /* the whole list, for messages */
    const char **hosts;
    size_t count, room;
    struct ct_arena *arena;
    struct ct_error *err;
    char name[CT_HOSTLIST_NAME]; /* the name that grows */
};

static int complain(const struct expansion *to, const char *at, const char *what)
{
    return ct_error_set(to->err, CT_EUSAGE, "%s at character %td of the host list \"%.200s\"", what,
                        at - to->text + 1, to->text);
}

static int add(struct expansion *to)
{
    if (to->count == CT_HOSTLIST_MAX)
        return ct_error_set(to->err, CT_ELIMIT, "the host list names more than %d hosts",
                            CT_HOSTLIST_MAX);
    if (to->count == to->room) {
        size_t room = CT_MAX(2 * to->room, (size_t)16);
        const char **hosts = ct_arena_array(to->arena, room, sizeof *hosts);
        if (hosts == NULL)
            return ct_error_set(to->err, CT_ENOMEM, "out of memory for a list of hosts");
        if (to->count > 0)
            memcpy(hosts, to->hosts, to->count * sizeof *hosts);
        to->hosts = hosts;
        to->room = room;
    }
    to->hosts[to->count] = ct_arena_strdup(to->arena, to->name);
    if (to->hosts[to->count] == NULL)
        return ct_error_set(to->err, CT_ENOMEM, "out of memory for a list of hosts");
    to->count++;
    return 0;
}

/* Digits at *at: their value and how many; *at moves behind them. */
static int read_number(const struct expansion *to, const char **at, uint32_t *ret_value,
                       int *ret_width)
{
    const char *start = *at;
    uint32_t value = 0;

    while (isdigit((unsigned char)**at) && *at - start < DIGITS_MAX)
        value = value * 10 + (uint32_t)(*(*at)++ - '0');
    if (*at == start)
        return complain(to, *at, "a number is missing");
    if (isdigit((unsigned char)**at))
        return complain(to, start, "a number is too long");
    *ret_value = value;
    *ret_width = (int)(*at - start);
    return 0;
}

static int expand_from(struct expansion *to, size_t length, const char *at, int groups);

/* Each number of one range in the place of its group; `rest` is what follows the group. */
static int expand_range(struct expansion *to, size_t length, const char **at, const char *rest,
                        int groups)
{
    const char *start = *at;
    uint32_t low = 0, high;
    int width = 0, other;
    int rc = read_number(to, at, &low, &width);

    if (rc != 0)
        return rc;
    high = low;
    if (**at == '-') {
        ++*at;
        rc = read_number(to, at, &high, &other);
    }
    if (rc != 0)
        return rc;
    if (high < low)
        return complain(to, start, "a range runs backwards");
    if (high - low >= CT_HOSTLIST_MAX)
        return ct_error_set(to->err, CT_ELIMIT, "the host list names more than %d hosts",
                            CT_HOSTLIST_MAX);
    for (uint32_t number = low; number <= high && rc == 0; number++) {
        int size =
            snprintf(to->name + length, sizeof to->name - length, "%0*" PRIu32, width, number);
        if (size < 0 || (size_t)size >= sizeof to->name - length)
            return complain(to, start, "a host's name is too long");
        rc = expand_from(to, length + (size_t)size, rest, groups + 1);
    }
    return rc;
}

/* "[1-3,7]" at `at`. */
static int expand_group(struct expansion *to, size_t length, const char *at, int groups)
{
    const char *end = at + strcspn(at + 1, "[]") + 1;
    int rc;

    if (*end != ']')
        return complain(to, at, "a \"[\" is not closed");
    if (groups == GROUPS_MAX)
        return complain(to, at, "too many \"[\"");
    do {
        at++;
        rc = expand_range(to, length, &at, end + 1, groups);
    } while (rc == 0 && *at == ',');
    if (rc == 0 && at != end)
        return complain(to, at, "a \",\" or \"]\" is missing");
    return rc;
}

/* The rest of an item, behind a name of `length` characters. */
static int expand_from(struct expansion *to, size_t length, const char *at, int groups)
{
    size_t size = strcspn(at, "[],");

    if (length + size >= sizeof to->name)
        return complain(to, at, "a host's name is too long");
    memcpy(to->name + length, at, size);
    length += size;
    at += size;
    if (*at == '[')
        return expand_group(to, length, at, groups);
    if (*at == ']')
        return complain(to, at, "a \"]\" without \"[\"");
    if (length == 0)
        return complain(to, at, "a host's name is missing");
    to->name[length] = '\0';
    return add(to);
}

int ct_hostlist_expand(const char *text, struct ct_arena *arena, const char *const **ret_hosts,
                       size_t *ret_count, struct ct_error *err)
{
    struct expansion to = {.text = text, .arena = arena, .err = err};
    const char *at = text;

    for (;;) {
        int rc = expand_from(&to, 0, at, 0);
        if (rc != 0)
            return rc;
        for (bool inside = false; *at != '\0' && (inside || *at != ','); at++)
            inside = *at == '[' || (inside && *at != ']');
        if (*at == '\0')
            break;
        at++;
    }
    *ret_hosts = to.hosts;
    *ret_count = to.count;
    return 0;
}
