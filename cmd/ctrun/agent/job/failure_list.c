/* See failure_list.h. */
#include "failure_list.h"

#include "base/fs.h"

enum { ARENA_BYTES = 16 << 20 };

void failures_init(struct failures *failures)
{
    *failures = (struct failures){.generation = 0};
    ct_arena_init(&failures->arena, ARENA_BYTES);
}

void failures_deinit(struct failures *failures)
{
    ct_arena_deinit(&failures->arena);
}

static const char *keep(struct failures *failures, const char *text)
{
    const char *kept = ct_arena_strdup(&failures->arena, text);

    return kept != NULL ? kept : "";
}

static void begin(struct failures *failures, uint64_t generation)
{
    if (generation == failures->generation)
        return;
    failures_deinit(failures);
    failures_init(failures);
    failures->generation = generation;
}

void failures_add(struct failures *failures, uint64_t generation,
                  const struct ct_worker_failure *failure)
{
    begin(failures, generation);
    if (failures->count == FAILURES_MAX)
        return;
    struct ct_worker_failure *kept = &failures->list[failures->count++];
    *kept = *failure;
    kept->record.host = keep(failures, failure->record.host);
    kept->record.text = keep(failures, failure->record.text);
    kept->record.error_file = keep(failures, failure->record.error_file);
    kept->sentence = keep(failures, failure->sentence);
    kept->own_path = keep(failures, failure->own_path);
}

void failures_add_others(struct failures *failures, const struct ct_rdzv_result *result)
{
    for (size_t i = 0; i < result->other_count; i++) {
        const struct ct_worker_failure other = {
            .record = result->others[i], .sentence = "", .own_path = ""};

        if (failures_of(failures, result->generation, other.record.rank) == NULL)
            failures_add(failures, result->generation, &other);
    }
}

const struct ct_worker_failure *failures_of(const struct failures *failures, uint64_t generation,
                                            int32_t rank)
{
    for (size_t i = 0; generation == failures->generation && i < failures->count; i++)
        if (rank >= 0 && failures->list[i].record.rank == rank)
            return &failures->list[i];
    return NULL;
}

void failures_write(const struct ct_wire_failure *failure, const char *path)
{
    struct ct_arena arena;
    struct ct_buf text;

    ct_arena_init(&arena, CT_ERROR_FILE_BYTES);
    ct_buf_init(&text, 2 * CT_ERROR_FILE_BYTES);
    const struct ct_error_file file = ct_report_error_file(failure, &arena);
    ct_error_file_print(&file, &text);
    (void)ct_fs_replace(path, text.data, text.size, NULL);
    ct_buf_deinit(&text);
    ct_arena_deinit(&arena);
}
