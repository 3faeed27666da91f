/* See portion.h. */
#include "portion.h"

#include "base/assert.h"

#include <stdlib.h>

/* What is being listed; the memory comes when its size is known. */
struct list {
    struct ct_buf parts, pieces;
    size_t bytes;
};

/* `piece` as tensor number `entry` of file number `file`. */
static void add(struct list *list, const struct ct_ckpt_places *places, size_t file, size_t entry,
                const struct ct_plan_piece *piece)
{
    const struct ct_ckpt_part part = {
        .file = file, .at = places->at[file][entry] + piece->at, .bytes = piece->bytes};

    (void)ct_buf_append(&list->parts, &part, sizeof part);
    (void)ct_buf_append(&list->pieces, piece, sizeof *piece);
    list->bytes += piece->bytes;
}

static void add_tensor(struct list *list, const struct ct_plan *plan, int tensor,
                       const struct ct_ckpt_places *places, size_t file, size_t entry, bool owned)
{
    struct ct_plan_walk walk;
    struct ct_plan_piece piece;

    for (ct_plan_walk_tensor(&walk, plan, tensor); ct_plan_walk_next(&walk, &piece);)
        if (!owned || ct_plan_own(&piece))
            add(list, places, file, entry, &piece);
}

/* Forget all but the memory. */
static void clear(struct ct_portion *portion)
{
    free(portion->parts);
    free(portion->pieces);
    free(portion->data);
    portion->parts = NULL;
    portion->pieces = NULL;
    portion->data = NULL;
    portion->count = 0;
}

static int reserve(struct ct_portion *portion, size_t bytes, struct ct_error *err)
{
    if (bytes <= portion->room)
        return 0;
    free(portion->memory);
    portion->memory = malloc(bytes);
    portion->room = portion->memory != NULL ? bytes : 0;
    return portion->memory != NULL
               ? 0
               : ct_error_set(err, CT_ENOMEM, "out of memory for %zu bytes of a checkpoint", bytes);
}

/* Every tensor once in memory, in the plan's order. */
static int place_whole(struct ct_portion *portion, const struct ct_plan *plan)
{
    size_t at = 0;

    portion->data = calloc((size_t)plan->tensor_count, sizeof *portion->data);
    if (portion->data == NULL)
        return CT_ENOMEM;
    for (int i = 0; i < plan->tensor_count; at += plan->tensors[i++].bytes)
        portion->data[i] = portion->memory + at;
    for (size_t i = 0; i < portion->count; i++)
        portion->parts[i].data = portion->data[portion->pieces[i].tensor];
    return 0;
}

static void place_pieces(struct ct_portion *portion)
{
    char *at = portion->memory;

    for (size_t i = 0; i < portion->count; at += portion->parts[i++].bytes)
        portion->parts[i].data = at;
}

int ct_portion_list(struct ct_portion *portion, const struct ct_snapshot *snapshot,
                    const struct ct_plan *plan, const struct ct_ckpt_places *places,
                    enum ct_portion_of of, struct ct_error *err)
{
    struct list list = {.bytes = 0};

    clear(portion);
    ct_buf_init(&list.parts, 0);
    ct_buf_init(&list.pieces, 0);
    for (size_t file = 0; file < places->count; file++)
        for (size_t entry = 0; entry < snapshot->files[file].count; entry++) {
            int tensor = ct_snapshot_number(snapshot, file, entry);
            const struct ct_plan_piece all = {.tensor = tensor,
                                              .bytes = plan->tensors[tensor].bytes};
            if (of == CT_PORTION_WHOLE)
                add(&list, places, file, entry, &all);
            else
                add_tensor(&list, plan, tensor, places, file, entry, of == CT_PORTION_OWNED);
        }
    if (list.parts.failed || list.pieces.failed) {
        ct_buf_deinit(&list.parts);
        ct_buf_deinit(&list.pieces);
        return ct_error_set(err, CT_ENOMEM, "out of memory for the parts of a checkpoint");
    }
    portion->count = list.parts.size / sizeof *portion->parts;
    portion->parts = (void *)list.parts.data;
    portion->pieces = (void *)list.pieces.data;
    int code = reserve(portion, list.bytes, err);
    if (code == 0 && of == CT_PORTION_WHOLE)
        code = place_whole(portion, plan);
    else if (code == 0)
        place_pieces(portion);
    if (code != 0)
        clear(portion);
    return code;
}

void ct_portion_deinit(struct ct_portion *portion)
{
    clear(portion);
    free(portion->memory);
    *portion = (struct ct_portion){.count = 0};
}

void ct_portion_copy_out(struct ct_portion *portion, struct ct_exec *exec)
{
    for (size_t i = 0; i < portion->count; i++)
        ct_exec_take(exec, &portion->pieces[i], portion->parts[i].data);
}

void ct_portion_copy_in(const struct ct_portion *portion, struct ct_exec *exec)
{
    for (size_t i = 0; i < portion->count; i++)
        ct_exec_put(exec, &portion->pieces[i], portion->parts[i].data);
}
