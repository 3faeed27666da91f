/* See save_alone.h. */
#include "save_alone.h"

#include "train/checkpoint/checkpoint_parts.h"

#include <stdlib.h>

/* Every tensor as a part; they belong to the caller. */
static int list_parts(const struct ct_ckpt_save *save, const struct ct_ckpt_places *places,
                      struct ct_ckpt_part **ret_parts, size_t *ret_count)
{
    size_t count = 0;

    for (size_t i = 0; i < save->file_count; i++)
        count += save->files[i].count;
    *ret_parts = calloc(count + 1, sizeof **ret_parts);
    if (*ret_parts == NULL)
        return CT_ENOMEM;
    *ret_count = 0;
    for (size_t i = 0; i < save->file_count; i++)
        for (size_t k = 0; k < save->files[i].count; k++) {
            const struct ct_st_tensor *tensor = &save->files[i].tensors[k];
            (*ret_parts)[(*ret_count)++] =
                (struct ct_ckpt_part){i, places->at[i][k], ct_st_bytes(tensor), tensor->data};
        }
    return 0;
}

int save_alone(const struct ct_ckpt_save *save, uint64_t *ret_digest, struct ct_error *err)
{
    struct ct_ckpt_places places;
    struct ct_ckpt_shares shares;
    struct ct_ckpt_part *parts = NULL;
    size_t count = 0;
    struct ct_error why = {0};
    int code = ct_ckpt_place(&places, save->files, save->file_count, err);

    if (code != 0)
        return code;
    code = ct_ckpt_begin(save, &shares, err);
    if (code == 0) {
        if (list_parts(save, &places, &parts, &count) != 0)
            code = ct_error_set(&why, CT_ENOMEM, "out of memory");
        else
            code = ct_ckpt_write(save, &places, parts, count, NULL, &shares, &why);
        code = code != 0 ? ct_ckpt_abandon(save, why.text, err)
                         : ct_ckpt_end(save, &places, &shares, ret_digest, err);
    }
    free(parts);
    ct_ckpt_places_deinit(&places);
    return code;
}
