/* Splitting a group: all members learn each other's colour and key, then those of one colour make a
 * group, by themselves. Its name is the parent's key, how often that was split, and the colour: no
 * two groups of a round can have the same. */
#include "group/host_subgroup.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 128 };

/* What a member says. */
struct choice {
    int32_t colour, key;
};

/* A member of the part that is being made. */
struct place {
    int32_t key;
    int member; /* its rank in the parent */
};

static int by_key(const void *left, const void *right)
{
    const struct place *a = left, *b = right;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->member < b->member ? -1 : 1;
}

/* The job's ranks of those who chose `colour`, in their order in the part. Returns how many. */
static int pick(const struct ct_group *parent, const struct choice *choices, int colour,
                struct place *places, int *ranks)
{
    int count = 0;

    for (int i = 0; i < parent->size; i++)
        if (choices[i].colour == colour)
            places[count++] = (struct place){choices[i].key, i};
    CT_ASSERT(count > 0);
    qsort(places, (size_t)count, sizeof *places, by_key);
    for (int i = 0; i < count; i++)
        ranks[i] = parent->ranks[places[i].member];
    return count;
}

/* A part may lie on one node, or on nodes unequally: where the levels of hier are not to be had. */
static const char *backend_of_part(const struct ct_group *parent)
{
    return strcmp(parent->wanted, "hier") == 0 ? "auto" : parent->wanted;
}

/* All choices are known: make this member's part. */
static int make_part(struct ct_group *parent, const struct choice *choices,
                     struct ct_group **ret_group, struct ct_error *err)
{
    size_t size = (size_t)parent->size;
    int colour = choices[parent->rank].colour;
    struct place *places = calloc(size, sizeof *places);
    int *ranks = calloc(size, sizeof *ranks);
    char name[NAME_MAX_BYTES];
    int code;

    int used = snprintf(name, sizeof name, "%s:%llu:%d", parent->key,
                        (unsigned long long)parent->splits, colour);
    if (places == NULL || ranks == NULL) {
        code = ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", parent->size);
    } else if (used >= NAME_MAX_BYTES) {
        code = ct_error_set(err, CT_ELIMIT,
                            "group %s cannot be split further: its parts' names would be longer "
                            "than %d bytes",
                            parent->key, NAME_MAX_BYTES - 1);
    } else {
        struct ct_group_options options = {.name = name,
                                           .ranks = ranks,
                                           .nranks = pick(parent, choices, colour, places, ranks),
                                           .backend = backend_of_part(parent),
                                           .encrypt = parent->encrypt,
                                           .device = parent->device,
                                           .timeout_ms = parent->timeout_ms,
                                           .no_thread = parent->helper.disabled};

        code = ct_group_make(parent->job, &options, &parent->tuning, parent, ret_group, err);
    }
    free(places);
    free(ranks);
    return code;
}

static int learn_choices(struct ct_group *parent, const struct choice *mine, struct choice *choices,
                         struct ct_error *err)
{
    struct ct_data data = ct_from_to(mine, choices, 2, CT_I32);
    struct ct_group *host = parent;
    int code = ct_host_subgroup_acquire(parent, &host);

    if (code != 0)
        return ct_group_explain(parent, code, err);
    code = ct_group_explain(host, ct_all_gather(host, data, NULL), err);
    ct_host_subgroup_release(parent, host);
    return code;
}

/* What the parts may be made of, where the backend can do it at once for all of them. A member that
 * is alone in its part needs nothing. */
static int split_backend(struct ct_group *parent, const struct choice *choices,
                         struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    int colour = choices[parent->rank].colour, members = 0;

    for (int i = 0; i < parent->size; i++)
        members += choices[i].colour == colour;
    if (members == 1)
        colour = CT_NO_COLOUR;
    ct_helper_acquire(parent);
    int code = parent->backend->split(parent->state, colour, choices[parent->rank].key,
                                      now_ns + parent->timeout_ms * 1000000u, &parent->failure);
    if (code != 0) {
        ct_group_break(parent, code);
        code = ct_group_explain(parent, code, err);
    }
    ct_helper_release(parent);
    return code;
}

int ct_group_split(struct ct_group *parent, int colour, int key, struct ct_group **ret_group,
                   struct ct_error *err)
{
    struct ct_error unread = {0};
    struct choice mine = {colour, key};
    struct choice *choices;
    int code;

    err = err != NULL ? err : &unread;
    if (colour < 0 && colour != CT_NO_COLOUR)
        return ct_error_set(err, CT_EUSAGE, "colour %d: 0 or more, or CT_NO_COLOUR", colour);
    choices = calloc((size_t)parent->size, sizeof *choices);
    if (choices == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a group of %d ranks", parent->size);
    code = learn_choices(parent, &mine, choices, err);
    parent->splits++;
    if (code == 0 && parent->backend->split != NULL)
        code = split_backend(parent, choices, err);
    if (code != 0) {
        ct_error_prefix(err, "group %s cannot be split", parent->key);
    } else if (colour == CT_NO_COLOUR) {
        *ret_group = NULL;
    } else {
        code = make_part(parent, choices, ret_group, err);
    }
    free(choices);
    return code;
}
