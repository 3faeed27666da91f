/* See failure_list.h. */
#include "failure_list.h"

#include "base/fs.h"

#include <string.h>

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

const char *failures_text(const struct ct_worker_failure *failure)
{
    const struct ct_error_file *file = failure->error_file;

    if (file == NULL)
        return failure->text;
    return file->callstack[0] != '\0' ? file->callstack : file->message;
}

void failures_note(struct failures_noted *noted, const struct ct_worker_failure *failure,
                   const char *note)
{
    const char *text = failures_text(failure);
    size_t length = strlen(text);

    *noted = (struct failures_noted){.failure = *failure};
    ct_buf_init(&noted->text, 0);
    if (note[0] == '\0')
        return;
    (void)ct_buf_printf(&noted->text, "%s%s%s", text,
                        length > 0 && text[length - 1] != '\n' ? "\n" : "", note);
    noted->failure.text = ct_buf_str(&noted->text);
    noted->failure.shown = false; /* nobody has seen the note */
    if (failure->error_file == NULL)
        return;
    noted->file = *failure->error_file;
    if (noted->file.callstack[0] != '\0')
        noted->file.callstack = ct_buf_str(&noted->text);
    else
        noted->file.message = ct_buf_str(&noted->text);
    noted->failure.error_file = &noted->file;
}

void failures_noted_deinit(struct failures_noted *noted)
{
    ct_buf_deinit(&noted->text);
}

static void begin(struct failures *failures, uint64_t generation)
{
    if (generation == failures->generation)
        return;
    failures_deinit(failures);
    failures_init(failures);
    failures->generation = generation;
}

void failures_add(struct failures *failures, uint64_t generation, const char *host,
                  const struct ct_worker_failure *failure)
{
    begin(failures, generation);
    if (failures->count == FAILURES_MAX)
        return;
    failures->list[failures->count++] = (struct ct_failure){
        .host = keep(failures, host),
        .rank = failure->rank,
        .local_rank = failure->local_rank,
        .pid = failure->pid,
        .end = failure->end,
        .stopped = failure->stopped,
        .time_ms = failure->time_ms,
        .path = keep(failures, failure->error_file != NULL ? failure->own_error_file : ""),
        .text = keep(failures, failures_text(failure)),
        .shown = failure->shown,
    };
}

void failures_add_others(struct failures *failures, const struct ct_rdzv_result *result)
{
    uint64_t generation = result->generation;

    for (size_t i = 0; i < result->other_count; i++) {
        const struct ct_rdzv_other *other = &result->others[i];

        if (failures_of(failures, generation, other->rank) != NULL ||
            failures->count == FAILURES_MAX)
            continue;
        begin(failures, generation);
        failures->list[failures->count++] = (struct ct_failure){
            .host = keep(failures, other->host),
            .rank = (uint32_t)other->rank,
            .local_rank = (uint32_t)other->local_rank,
            .pid = other->pid,
            .end = {.status = other->status, .signal = other->signal},
            .time_ms = (int64_t)other->time_ms,
            .path = keep(failures, other->error_file),
            .text = keep(failures, other->text),
        };
    }
}

const struct ct_failure *failures_of(const struct failures *failures, uint64_t generation,
                                     int32_t rank)
{
    for (size_t i = 0; generation == failures->generation && i < failures->count; i++)
        if (rank >= 0 && failures->list[i].rank == (uint32_t)rank)
            return &failures->list[i];
    return NULL;
}

void failures_write(const struct ct_failure *failure, const char *path)
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
