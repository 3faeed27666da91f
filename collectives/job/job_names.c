/* See job_names.h. */
#include "job/job_names.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct name {
    struct name *next;
    uint64_t count;
    char text[];
};

struct ct_job_names {
    pthread_mutex_t lock;
    struct name *first;
};

struct ct_job_names *ct_job_names_new(void)
{
    struct ct_job_names *names = calloc(1, sizeof *names);

    if (names != NULL)
        (void)pthread_mutex_init(&names->lock, NULL);
    return names;
}

void ct_job_names_reset(struct ct_job_names *names)
{
    (void)pthread_mutex_lock(&names->lock);
    while (names->first != NULL) {
        struct name *name = names->first;

        names->first = name->next;
        free(name);
    }
    (void)pthread_mutex_unlock(&names->lock);
}

void ct_job_names_free(struct ct_job_names *names)
{
    if (names == NULL)
        return;
    ct_job_names_reset(names);
    (void)pthread_mutex_destroy(&names->lock);
    free(names);
}

/* The entry of `text`, made when it is new; NULL without memory. */
static struct name *entry_of(struct ct_job_names *names, const char *text)
{
    struct name *name = names->first;
    size_t size = strlen(text) + 1;

    while (name != NULL && strcmp(name->text, text) != 0)
        name = name->next;
    if (name != NULL)
        return name;
    name = calloc(1, sizeof *name + size);
    if (name == NULL)
        return NULL;
    memcpy(name->text, text, size);
    name->next = names->first;
    names->first = name;
    return name;
}

uint64_t ct_job_names_count(struct ct_job_names *names, const char *name)
{
    (void)pthread_mutex_lock(&names->lock);
    struct name *entry = entry_of(names, name);
    uint64_t count = entry != NULL ? ++entry->count : 0;

    (void)pthread_mutex_unlock(&names->lock);
    return count;
}
