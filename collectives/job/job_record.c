/* What a job says of itself for who watches it; see ctrun.h and wire/worker_record.h. */
#include "job/job.h"

#include "base/assert.h"
#include "base/clock.h"

#include <limits.h>
#include <link.h>
#include <unistd.h>

_Static_assert((int)CT_AT_START == (int)CT_RECORD_START && (int)CT_AT_STEP == (int)CT_RECORD_STEP &&
                   (int)CT_AT_EVALUATE == (int)CT_RECORD_EVALUATE &&
                   (int)CT_AT_CHECKPOINT == (int)CT_RECORD_CHECKPOINT &&
                   (int)CT_AT_PUBLISH == (int)CT_RECORD_PUBLISH,
               "the sections of the API are those of the record");

/* The first object that the loader lists is the program. */
static int find_program(struct dl_phdr_info *info, size_t size, void *ret_at)
{
    (void)size;
    *(uint64_t *)ret_at = info->dlpi_addr;
    return 1;
}

void ct_job_introduce(struct ct_job *job)
{
    char path[PATH_MAX] = "";
    uint64_t at = 0;

    if (job->record == NULL)
        return;
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    (void)dl_iterate_phdr(find_program, &at);
    ct_worker_record_program(job->record, (uint32_t)getpid(), path, at);
}

void ct_job_at(struct ct_job *job, enum ct_section section, uint64_t step)
{
    if (job->record != NULL)
        ct_worker_record_at(job->record, (enum ct_record_section)section, step,
                            ct_clock_mono_ns(&ct_clock_system));
}

void ct_job_away(struct ct_job *job)
{
    if (job->record != NULL)
        ct_worker_record_at(job->record, CT_RECORD_AWAY, 0, ct_clock_mono_ns(&ct_clock_system));
}

void ct_job_straggler(struct ct_job *job, int rank, int share, int cost)
{
    CT_ASSERT(rank >= 0 && share >= 0 && cost >= 0);
    ct_worker_record_straggler(job->record, (uint32_t)rank, (uint32_t)share, (uint32_t)cost);
}
