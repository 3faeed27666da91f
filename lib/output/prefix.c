/* See prefix.h. */
#include "output/prefix.h"

#include "base/assert.h"
#include "output/template.h"

#include <stdio.h>

const char *ct_prefix_text(const struct ct_prefix *prefix, struct ct_arena *arena)
{
    static const char torchrun[] = "[${role_name}${local_rank}]:";
    const char *template =
        prefix->template[0] == '\0' && prefix->torchrun ? torchrun : prefix->template;
    char rank[16], local_rank[16];

    if (template[0] == '\0')
        return ct_arena_printf(arena, "[%u:%u] ", prefix->node, prefix->rank);
    (void)snprintf(rank, sizeof rank, "%u", prefix->rank);
    (void)snprintf(local_rank, sizeof local_rank, "%u", prefix->local_rank);
    const struct ct_template_value values[] = {
        {"role_name", prefix->role},
        {"local_rank", local_rank},
        {"rank", rank},
        {"hostname", prefix->host},
    };
    struct ct_buf text;
    ct_buf_init(&text, 0);
    ct_template_expand(template, values, CT_COUNT(values), &text);
    const char *copy = text.failed ? NULL : ct_arena_strdup(arena, ct_buf_str(&text));
    ct_buf_deinit(&text);
    return copy;
}
